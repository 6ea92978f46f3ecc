import time
from dataclasses import replace

import pytest
import torch

from infobatch.lab import demo, fashion
from infobatch.lab.method import MethodSpec

DATA = fashion.load()
SMALL = fashion.Fashion(DATA.train.head(600), DATA.test.head(200))
RECIPE = replace(demo.RECIPE, epochs=4, batch_size=32, lr=0.1)
INFOBATCH = MethodSpec("infobatch", "infobatch")


@pytest.fixture(scope="module")
def pair():
    return demo.train(*demo.prepare(RECIPE, INFOBATCH, 0, SMALL))


def test_full_data_sees_everything_and_infobatch_less(pair):
    assert pair.full.kept == (600,) * 4
    first, *pruned, last = pair.pruned.kept
    assert first == last == 600
    assert all(300 < kept < 600 for kept in pruned)


@pytest.mark.parametrize("run", ["full", "pruned"])
def test_the_announced_saving_is_what_the_loop_counted(pair, run):
    record = getattr(pair, run)
    assert record.saving == pytest.approx(1 - record.samples / (4 * 600), abs=1e-12)


def test_both_learn(pair):
    for run in (pair.full, pair.pruned):
        assert run.losses[-1] < run.losses[0] / 2
        assert run.value > 60
        assert len(run.times) == 4
        assert min(run.times) > 0
        assert len(run.scores) == 600


def test_the_runs_are_one_until_the_first_plan_differs(pair):
    assert pair.full.losses[0] == pair.pruned.losses[0]
    assert pair.full.losses[1] != pair.pruned.losses[1]


def test_the_same_seed_gives_the_same_runs_and_another_seed_others(pair):
    again = demo.train(*demo.prepare(RECIPE, INFOBATCH, 0, SMALL))
    assert again.pruned.losses == pair.pruned.losses
    assert again.pruned.kept == pair.pruned.kept
    assert again.full.values == pair.full.values
    other = demo.train(*demo.prepare(replace(RECIPE, epochs=1), INFOBATCH, 1, SMALL))
    assert other.full.losses[0] != pair.full.losses[0]


def test_ratio_and_method_reach_the_library():
    def kept(method):
        return demo.train(*demo.prepare(replace(RECIPE, epochs=3), MethodSpec.parse(method), 0, SMALL)).pruned.kept[1]

    assert kept("infobatch:ratio=0.0") == 600
    assert kept("infobatch:ratio=0.2") > kept("infobatch:ratio=0.8")
    assert kept("random:ratio=0.3") == 416  # of 420: its last batch is one that full data has too


def test_the_losses_of_pruned_epochs_estimate_the_loss_of_all_the_data():
    """With a learning rate of 0 the model stands still: both runs measure the same loss, one from a part."""
    recipe = replace(RECIPE, epochs=8, lr=1e-12)
    full, pruned = demo.prepare(recipe, INFOBATCH, 0, SMALL)
    pair = demo.train(full, pruned)
    assert pair.pruned.samples < 0.85 * pair.full.samples
    for estimate in pair.pruned.losses:
        assert estimate == pytest.approx(pair.full.losses[0], rel=0.03)


def test_the_learning_rate_ends_where_it_would_with_full_data():
    full, pruned = demo.prepare(RECIPE, INFOBATCH, 0, SMALL)
    demo.train(full, pruned)
    ends = [run.optimizer.param_groups[0]["lr"] for run in (full, pruned)]
    assert pruned.train_data.stats.saving > 0.1
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)
    assert ends[0] < RECIPE.lr / 1000


def test_training_leaves_the_callers_random_state_alone():
    before = torch.get_rng_state()
    demo.train(*demo.prepare(replace(RECIPE, epochs=2), INFOBATCH, 0, SMALL))
    assert torch.equal(torch.get_rng_state(), before)


def test_ticks_tell_of_every_epoch_of_both_runs_in_turn():
    ticks = []
    pair = demo.train(*demo.prepare(replace(RECIPE, epochs=3), INFOBATCH, 0, SMALL), ticks.append)
    ends = [tick for tick in ticks if tick.done == tick.kept]
    turns = [("full", 0), ("infobatch", 0), ("infobatch", 1), ("full", 1), ("full", 2), ("infobatch", 2)]
    assert [(tick.method, tick.epoch) for tick in ends] == turns
    assert tuple(tick.kept for tick in ends if tick.method == "infobatch") == pair.pruned.kept
    assert [tick.loss for tick in ends if tick.method == "full"] == pytest.approx(pair.full.losses)
    assert all(0 < tick.done <= tick.kept <= tick.total == 600 for tick in ticks)


def test_watching_is_not_timed():
    def slow(tick):
        time.sleep(0.2)

    started = time.perf_counter()
    pair = demo.train(*demo.prepare(replace(RECIPE, epochs=1), INFOBATCH, 0, SMALL), slow)
    elapsed = time.perf_counter() - started
    # 19 steps of 32: watched at steps 0, 8, 16 and at the end, in both runs.
    assert pair.full.seconds + pair.pruned.seconds < elapsed - 8 * 0.2
