"""Methods and seeds in turn, in folders of their own; what was interrupted goes on, what is done is not repeated."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from infobatch.lab.comparison import RECORD, STATE, Comparison, read
from infobatch.lab.data import fashion
from infobatch.lab.data.datasets import Images, ImageSplit
from infobatch.lab.method import MethodSpec
from infobatch.lab.tasks.classification import Classification, ClassificationRecipe

RECIPE = ClassificationRecipe("fashion-mnist", "small-cnn", epochs=4, batch_size=32, lr=0.1, augment="crop-flip")
METHODS = ["full", "infobatch", "full-shortened"]
TIMED = ("times", "overhead", "beside")  # what no two runs share


def task():
    data = fashion.load()
    train, test = (
        ImageSplit(s.images[:n, ..., None], s.labels[:n].astype(np.int64))
        for s, n in ((data.train, 400), (data.test, 100))
    )
    return Classification(
        RECIPE, Images("fashion-mnist", train, test, (fashion.MEAN,), (fashion.STD,), fashion.CLASSES)
    )


def comparison(folder, methods=METHODS, seeds=(0, 1), recipe=RECIPE):
    return Comparison(recipe, [MethodSpec.parse(m) for m in methods], seeds, folder)


def results(records):
    return {(r.method, r.seed): {k: v for k, v in json.loads(r.to_json()).items() if k not in TIMED} for r in records}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return comparison(tmp_path_factory.mktemp("whole")).run(task())


@pytest.mark.slow
def test_every_method_and_seed_is_recorded(whole):
    runs = results(whole)
    assert set(runs) == {(m, s) for m in METHODS for s in (0, 1)}
    full, pruned = runs["full", 0], runs["infobatch", 0]
    assert full["kept"] == [400] * 4
    assert pruned["kept"][0] == 400 > pruned["kept"][1]
    assert pruned["saving"] == pytest.approx(1 - sum(pruned["kept"]) / 1600)
    assert full["losses"][0] == pruned["losses"][0]  # they start from the same weights and see the same
    assert len(pruned["values"]) == 4
    assert all(sum(h) == 400 for h in pruned["histograms"])
    assert len(pruned["hardest"]) == 12
    assert sum(n for _, n in pruned["most_pruned"]) <= 1600 - sum(pruned["kept"])


def test_a_shortened_schedule_costs_what_pruning_costs(whole):
    runs = results(whole)
    cost = sum(runs["infobatch", 0]["kept"])
    assert abs(sum(runs["full-shortened", 0]["kept"]) - cost) <= 200  # half an epoch


def test_what_is_done_is_not_repeated(tmp_path, whole):
    mine = comparison(tmp_path, ["full"], [0])
    mine.run(task())
    before = (tmp_path / "full" / "seed-0" / RECORD).stat().st_mtime_ns
    ticks = []
    records = comparison(tmp_path, ["full", "infobatch"], [0]).run(task(), ticks.append)
    assert {tick.method for tick in ticks} == {"infobatch"}
    assert (tmp_path / "full" / "seed-0" / RECORD).stat().st_mtime_ns == before
    assert results(records) == {k: v for k, v in results(whole).items() if k in {("full", 0), ("infobatch", 0)}}


def test_methods_take_turns(tmp_path):
    ticks = []
    comparison(tmp_path, ["full", "infobatch", "random"], [0]).run(task(), ticks.append)
    ends = [(t.epoch, t.method) for t in ticks if t.done == t.kept]
    assert [epoch for epoch, _ in ends] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert [method for _, method in ends[::3]] == ["full", "infobatch", "random", "full"]


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from lab.test_comparison import comparison, task
comparison(__import__("pathlib").Path({folder!r}), ["full", "infobatch"], [0]).run(task())
"""


@pytest.mark.slow
def test_a_killed_comparison_goes_on_and_ends_as_if_nothing_had_happened(tmp_path, whole):
    code = KILLED.format(tests=os.path.dirname(os.path.dirname(__file__)), folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"OMP_NUM_THREADS": "1"})
    state = tmp_path / "infobatch" / "seed-0" / STATE
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if state.exists() and len(torch.load(state)["history"]["kept"]) >= 2:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.002)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "infobatch" / "seed-0" / RECORD).exists()
    ticks = []
    records = comparison(tmp_path, ["full", "infobatch"], [0]).run(task(), ticks.append)
    assert min(t.epoch for t in ticks if t.method == "infobatch") >= 2  # not from the start
    assert results(records) == {k: v for k, v in results(whole).items() if k in {("full", 0), ("infobatch", 0)}}
    assert not state.exists()


def test_runs_of_another_recipe_are_not_mixed_in(tmp_path):
    comparison(tmp_path, ["full"], [0], replace(RECIPE, epochs=1)).run(task())
    with pytest.raises(ValueError, match=r"runs of another recipe \(lr: 0.1 there, 0.2 here\)"):
        comparison(tmp_path, ["full"], [0], replace(RECIPE, epochs=1, lr=0.2)).run(task())


def test_a_folder_from_before_a_key_existed_is_gone_on_with(tmp_path):
    mine = comparison(tmp_path, ["full"], [0], replace(RECIPE, epochs=1))
    mine.run(task())
    path = tmp_path / "recipe.json"
    old = json.loads(path.read_text())
    del old["cutmix"]
    path.write_text(json.dumps(old))
    assert len(mine.run(task())) == 1
    with pytest.raises(ValueError, match=r"\(cutmix: 0.0 there, 1.0 here\)"):
        comparison(tmp_path, ["full"], [0], replace(RECIPE, epochs=1, cutmix=1.0)).run(task())


def test_a_shortened_schedule_needs_a_method_to_follow(tmp_path):
    with pytest.raises(ValueError, match="full-shortened needs a pruning method beside it"):
        comparison(tmp_path, ["full-shortened"], [0]).run(task())


def test_reading_records_back(tmp_path):
    comparison(tmp_path, ["full"], [0], replace(RECIPE, epochs=1)).run(task())
    assert [r.method for r in read([tmp_path])] == ["full"]
    with pytest.raises(FileNotFoundError, match="holds no finished run"):
        list(read([tmp_path / "nothing"]))


def test_a_cost_is_met_by_fewer_epochs(tmp_path):
    full, half = comparison(tmp_path, ["full", "full:cost=0.5"], [0]).run(task())
    assert (full.kept, half.kept) == ((400,) * 4, (400,) * 2)
    assert (full.recipe["epochs"], half.recipe["epochs"]) == (4, 2)
    assert half.saving == 0  # of its own schedule


def test_epochs_ahead_are_those_of_runs_that_are_not_finished(tmp_path):
    assert comparison(tmp_path, ["full"], [0]).epochs_ahead() == 4
    comparison(tmp_path, ["full"], [0]).run(task())
    assert comparison(tmp_path, ["full", "infobatch", "full:cost=0.5"], [0, 1]).epochs_ahead() == 4 + 3 * 4 - 2 + 4 - 2


def test_more_methods_than_fit_into_memory_take_turns_too(tmp_path, monkeypatch, whole):
    """Each is put away after its turn and goes on from its state, to the very same end."""
    monkeypatch.setattr("infobatch.lab.comparison.MAX_IN_MEMORY", 1)
    ticks = []
    records = comparison(tmp_path, seeds=[0]).run(task(), ticks.append)
    ends = [(t.epoch, t.method) for t in ticks if t.done == t.kept and t.method != "full-shortened"]
    assert ends == [(e, m) for e in range(4) for m in (["full", "infobatch"], ["infobatch", "full"])[e % 2]]
    assert results(records) == {key: run for key, run in results(whole).items() if key[1] == 0}


def test_a_record_says_who_took_turns(tmp_path, whole):
    beside = {run.method: run.beside for run in whole}
    assert set(beside["infobatch"]) == {"full", "infobatch"}
    assert beside["full-shortened"] == ("full-shortened",)  # its length is known only after the others
    late = comparison(tmp_path, ["full"], [0])
    late.run(task())
    [_, pruned] = comparison(tmp_path, ["full", "infobatch"], [0]).run(task())
    assert pruned.beside == ("infobatch",)  # full data had ended before


def test_scores_of_a_finished_run_are_kept(tmp_path):
    mine = comparison(tmp_path, ["full"], [0], replace(RECIPE, epochs=1))
    mine.run(task())
    assert np.isfinite(mine.scores("full", 0)).all()
    assert len(mine.scores("full", 0)) == 400
