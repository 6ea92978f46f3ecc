"""Accelerate's own loop: the same training as without it, on one process and on two."""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader

import infobatch
from distributed.launch import ROOT, torchrun
from infobatch import DriftError, InfoBatch
from infobatch.integrations.accelerate import prepare
from integrations.accelerate_training import (
    EPOCHS,
    SIZE,
    TRAIN,
    VALID,
    Augmented,
    Trace,
    accelerated,
    parts,
    plain,
    replayed,
    same_bits,
)


def check_one_process(trace: Trace, rates: list[list[float]], kept: list[bool]) -> None:
    """Every epoch's plan was trained on, in its order, and each loss stands at its sample."""
    assert trace.seen == trace.plans
    assert [len(seen) < SIZE for seen in trace.seen] == kept
    assert [trace.losses[i] for i in range(SIZE)] == trace.scores.tolist()
    assert trace.validated == [len(VALID)] * EPOCHS
    assert trace.totals == [(len(r), len(r)) for r in rates]


def rates_of_full_data(steps: int) -> list[list[float]]:
    """Of each epoch, after each step: the bare schedule's."""
    *_, optimizer, scheduler = parts(8, full=True, steps=steps)
    rates: list[list[float]] = [[] for _ in range(EPOCHS)]
    for epoch, _ in itertools.product(rates, range(steps)):
        optimizer.step()
        scheduler.step()
        epoch.append(scheduler.get_last_lr()[0])
    return rates


# -- one process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_pruned_training_is_that_of_the_plain_loop(workers: int) -> None:
    trace, expected = accelerated(num_workers=workers), plain()

    check_one_process(trace, expected.rates, kept=[False, True, True, False])
    assert trace.seen == expected.seen
    assert trace.rates == expected.rates
    assert same_bits(trace, expected)


def test_full_and_pruned_training_have_one_learning_rate_trajectory() -> None:
    full, pruned = accelerated(full=True), accelerated()

    check_one_process(full, full.rates, kept=[False] * EPOCHS)
    assert [r[-1] for r in pruned.rates] == [r[-1] for r in full.rates]
    assert pruned.rates[-1][-1] == pytest.approx(0.1 / 25 / 1e4)  # where OneCycle ends
    for some, all_of_them in zip(pruned.rates, full.rates, strict=True):
        assert set(some) <= set(all_of_them)
    assert sum(map(len, pruned.rates)) < sum(map(len, full.rates))


@pytest.mark.parametrize("accumulate", [2, 3, 5])
def test_gradients_are_accumulated_and_a_short_last_group_is_stepped(accumulate: int) -> None:
    trace, expected = accelerated(accumulate=accumulate), plain(accumulate=accumulate)

    assert [len(r) for r in trace.rates] == [-(-len(seen) // (8 * accumulate)) for seen in trace.seen]
    assert trace.rates == expected.rates
    assert same_bits(trace, expected)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's loader, for the validation
@pytest.mark.parametrize(
    "config",
    [{"even_batches": False}, {"split_batches": True}, {"dispatch_batches": True}, {"use_stateful_dataloader": True}],
    ids=str,
)
def test_on_one_process_settings_for_many_change_nothing(config: dict[str, bool]) -> None:
    assert same_bits(accelerated(config=config), plain())


def test_a_schedule_that_is_paced_already_is_left_so() -> None:
    trace = accelerated(schedule=lambda scheduler, train_data: infobatch.paced(scheduler, train_data))
    assert trace.rates == plain().rates


@pytest.mark.parametrize(
    ("accumulate", "epoch", "batch"),
    [(1, 0, 4), (1, 1, 2), (2, 2, 1), (1, 1, -1), (2, 0, -1)],
)
def test_load_state_goes_on_bit_for_bit(accumulate: int, epoch: int, batch: int, tmp_path: Path) -> None:
    whole = accelerated(accumulate=accumulate)
    batches = -(-len(whole.seen[epoch]) // 8)
    before = accelerated(accumulate=accumulate, save=(epoch, batch % batches, tmp_path))
    after = accelerated(accumulate=accumulate, load=tmp_path)

    assert same_bits(after, whole)
    if batch == -1:
        assert before.seen + after.seen == whole.seen
    else:
        assert [*before.seen[:-1], before.seen[-1] + after.seen[0], *after.seen[1:]] == whole.seen
    assert after.rates[-1] == whole.rates[-1]


@pytest.mark.parametrize("workers", [0, 2])
def test_load_state_goes_on_bit_for_bit_with_augmentation_and_dropout(workers: int, tmp_path: Path) -> None:
    def train(seeded: bool = True, **options: Any) -> Trace:
        torch.manual_seed(0)
        own = {
            "generator": torch.Generator(),
            "num_workers": workers,
        }  # so that a new loop draws nothing from dropout's
        return accelerated(data=Augmented(), dropout=0.5, pruning={"seed_samples": seeded}, **own, **options)

    whole = train()
    for seeded, save in ((True, (1, 2, tmp_path)), (False, (1, 2, tmp_path / "unseeded"))):
        train(seeded, save=save)
        after = train(seeded, load=save[2])
        assert same_bits(after, whole) == seeded  # what is not seeded is drawn anew


def test_the_plans_seed_is_accelerates() -> None:
    def plan(chosen: int | None, data_seed: int | None = None, **options: Any) -> list[int]:
        if chosen is not None:
            set_seed(chosen)
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(data_seed=data_seed))
        train_data = InfoBatch(TRAIN, EPOCHS, index_key="index", **options)
        prepare(accelerator, DataLoader(train_data, 8, sampler=train_data.sampler))
        return train_data.plan.indices.tolist()

    plans = [plan(seed) for seed in (1, 2, 3)]
    assert len({str(each) for each in plans}) == 3
    assert plans[2] == plan(3) == plan(1, data_seed=3)
    torch.seed()  # nobody's choice
    assert plan(None) == InfoBatch(TRAIN, EPOCHS).plan.indices.tolist() == plan(1, seed=0)


@pytest.mark.parametrize(("workers", "accumulate"), [(0, 1), (2, 1), (0, 3), (0, 5)])
def test_where_steps_stay_it_is_the_plain_loop_with_the_bare_schedule(workers: int, accumulate: int) -> None:
    trace = accelerated(num_workers=workers, accumulate=accumulate, stay=True)
    expected = plain(accumulate=accumulate, stay=True)

    if accumulate == 1:
        check_one_process(trace, expected.rates, kept=[False, True, True, False])
    assert [n for n, _ in trace.totals] == [12] * EPOCHS
    assert trace.seen == expected.seen
    assert trace.rates == expected.rates == rates_of_full_data(-(-12 // accumulate))
    assert same_bits(trace, expected)


@pytest.mark.parametrize(("accumulate", "epoch", "batch"), [(1, 1, 2), (2, 2, 5), (1, 1, 11), (5, 0, 11)])
def test_load_state_goes_on_where_steps_stay(accumulate: int, epoch: int, batch: int, tmp_path: Path) -> None:
    whole = accelerated(accumulate=accumulate, stay=True)
    before = accelerated(accumulate=accumulate, stay=True, save=(epoch, batch, tmp_path))
    after = accelerated(accumulate=accumulate, stay=True, load=tmp_path)

    assert same_bits(after, whole)
    assert flat(before.seen) + flat(after.seen) == flat(whole.seen)
    assert flat(before.rates) + flat(after.rates) == flat(whole.rates)


def flat(epochs: list[list[Any]]) -> list[Any]:
    return list(itertools.chain(*epochs))


def prepared(**options: Any) -> tuple[InfoBatch, Any, Accelerator]:
    accelerator = Accelerator(cpu=True)
    train_data, loader, *_ = parts(8, full=False, steps=12, **options)
    return train_data, prepare(accelerator, loader), accelerator


def step(train_data: InfoBatch, batch: list[torch.Tensor]) -> None:
    train_data.update(batch[0].mean((1, 2)), batch[-1])


def test_an_epoch_left_early_is_an_epoch_and_a_peek_is_not() -> None:
    train_data, loader, _ = prepared()
    next(iter(loader))
    for epoch in range(EPOCHS):
        for batch in loader:
            step(train_data, batch)
            break
        assert train_data.epoch == epoch


def test_drop_last_is_kept() -> None:
    train_data, loader, _ = prepared(drop_last=True)
    for epoch in range(2):
        loader.set_epoch(epoch)
        count = len(loader)
        assert count == len(train_data.plan) // 8
        for batch in loader:
            step(train_data, batch)
            count -= 1
        assert count == 0
        done, total = train_data.position
        assert done == total == len(train_data.plan) // 8 * 8


def test_a_schedule_by_epochs_steps_once_an_epoch() -> None:
    accelerator = Accelerator(cpu=True)
    train_data, loader, model, *_ = parts(8, full=False, steps=12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
    model, optimizer, loader, scheduler = prepare(accelerator, model, optimizer, loader, scheduler)
    rates = []
    for _ in range(EPOCHS):
        for x, _, index in loader:
            accelerator.backward(train_data.update(model(x).square().mean(1), index))
            optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    assert rates == [0.05, 0.025, 0.0125, 0.00625]


def test_a_schedule_by_a_metric_is_left_to_accelerate() -> None:
    accelerator = Accelerator(cpu=True)
    _, loader, model, *_ = parts(8, full=False, steps=12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer, loader, scheduler = prepare(accelerator, optimizer, loader, ReduceLROnPlateau(optimizer, patience=0))
    for loss in (1.0, 2.0):
        scheduler.step(loss)
    assert scheduler.get_last_lr() == pytest.approx([0.01])


def test_update_by_position_raises_because_accelerate_fetches_ahead() -> None:
    train_data, loader, _ = prepared()
    for x, *_ in loader:
        with pytest.raises(DriftError, match="fetches ahead"):
            train_data.update(x.mean((1, 2)))
        break


# -- what is refused -------------------------------------------------------------------------------------------------


def test_batches_cannot_be_skipped() -> None:
    _, loader, accelerator = prepared()
    for skip in (skip_first_batches, accelerator.skip_first_batches):
        with pytest.raises(AttributeError, match=r"leave skip_first_batches\(\) out"):
            skip(loader, 2)


def test_train_data_must_carry_its_index() -> None:
    train_data = InfoBatch(TRAIN, EPOCHS)
    with pytest.raises(ValueError, match=r'index_key=None.*index_key="index"'):
        prepare(Accelerator(cpu=True), DataLoader(train_data, 8, sampler=train_data.sampler))


@pytest.mark.parametrize("wrong", [{"batch_size": 8, "shuffle": True}, {"batch_size": None}], ids=str)
def test_the_batches_must_come_from_our_sampler(wrong: dict[str, Any]) -> None:
    train_data = InfoBatch(TRAIN, EPOCHS, index_key="index")
    sampler = None if "shuffle" in wrong else train_data.sampler  # without batches Accelerate would lose it
    with pytest.raises(ValueError, match=r"make it DataLoader\(train_data, batch_size, sampler=train_data.sampler\)"):
        prepare(Accelerator(cpu=True), DataLoader(train_data, sampler=sampler, **wrong))


def test_processes_that_share_a_model_are_refused() -> None:
    """Accelerate allows it on GPUs only: the accelerator is a stand-in with a real configuration."""
    train_data = InfoBatch(TRAIN, EPOCHS, index_key="index")
    train_data.sampler.num_replicas = 2
    shared = SimpleNamespace(
        num_processes=2, dispatch_batches=None, split_batches=False, parallelism_config=ParallelismConfig(tp_size=2)
    )
    with pytest.raises(ValueError, match=r"(?s)tp_size=2.*Use data-parallel sizes only"):
        prepare(shared, DataLoader(train_data, 8, sampler=train_data.sampler))


def test_there_must_be_one_loader_over_an_infobatch() -> None:
    _, loader, model, optimizer, _ = parts(8, full=False, steps=12)
    with pytest.raises(ValueError, match=r"got 0 in \['Sequential', 'DataLoader'\]"):
        prepare(Accelerator(cpu=True), model, DataLoader(VALID))
    with pytest.raises(ValueError, match="got 2"):
        prepare(Accelerator(cpu=True), loader, optimizer, loader)


def test_without_accelerate_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    monkeypatch.delitem(sys.modules, "infobatch.integrations.accelerate")
    with pytest.raises(ImportError, match=r'pip install "infobatch\[accelerate\]"'):
        importlib.import_module("infobatch.integrations.accelerate")


# -- two processes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes has seen: see accelerate_two.py."""
    folder = tmp_path_factory.mktemp("two")
    torchrun(Path(__file__).with_name("accelerate_two.py"), folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def test_two_processes_share_the_seed_of_the_first(two: list[dict[str, Any]]) -> None:
    assert [process["seed"] for process in two] == [7, 7]


def test_two_processes_resume_with_random_augmentation(two: list[dict[str, Any]]) -> None:
    for process in two:
        assert same_bits(process["augmented resumed"], process["augmented"])


def test_two_processes_see_every_kept_sample_once(two: list[dict[str, Any]]) -> None:
    one, other = (process["pruned"] for process in two)
    assert one.plans == other.plans
    for mine, theirs, plan, total in zip(one.seen, other.seen, one.plans, one.totals, strict=True):
        assert len(mine) == len(theirs) == -(-len(plan) // 2)
        padding = [plan[0]] * (len(plan) % 2)
        assert sorted(mine + theirs) == sorted(plan + padding)
        assert total == (-(-len(mine) // 4),) * 2
    assert any(len(plan) % 2 for plan in one.plans)  # or the padding is not tested
    assert one.validated == other.validated == [len(VALID)] * EPOCHS


def test_two_processes_are_one_with_twice_the_batch(two: list[dict[str, Any]]) -> None:
    expected = plain(batch=8)
    for name in ("pruned", "uneven"):
        for process in two:
            trace = process[name]
            assert trace.plans == expected.plans
            assert trace.rates == expected.rates
            np.testing.assert_allclose(trace.scores, expected.scores, rtol=1e-4)
            for mine, theirs in zip(trace.weights, expected.weights, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    for process in two:
        assert same_bits(process["pruned"], two[0]["pruned"])  # on both, and with even_batches=False
        assert same_bits(process["uneven"], two[0]["pruned"])


def test_two_processes_book_every_loss_to_its_sample(two: list[dict[str, Any]]) -> None:
    traces = [process["pruned"] for process in two]
    first = traces[0].plans[-1][0]  # where the plan does not divide it is the padding of rank 1, and rank 0's own
    losses = {i: trace.losses[i] for trace in reversed(traces) for i in trace.seen[-1]}
    assert first in traces[0].seen[-1]
    assert [losses[i] for i in range(SIZE)] == traces[0].scores.tolist() == traces[1].scores.tolist()


def test_two_processes_accumulate(two: list[dict[str, Any]]) -> None:
    expected = plain(batch=8, accumulate=3)
    for process in two:
        trace = process["accumulated"]
        assert trace.rates == expected.rates
        for mine, theirs in zip(trace.weights, expected.weights, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


def test_two_processes_go_on_bit_for_bit(two: list[dict[str, Any]]) -> None:
    for process in two:
        assert same_bits(process["resumed"], process["pruned"])


def test_two_processes_where_steps_stay(two: list[dict[str, Any]]) -> None:
    """Equally many on both, nothing sharded twice, every loss at its sample, and the step of all samples together."""
    traces = [process["stay"] for process in two]
    one, other = traces
    assert same_bits(one, other)
    assert one.plans == other.plans
    assert any(len(plan) % 2 for plan in one.plans)  # or the padding is not tested
    for mine, theirs, plan in zip(one.seen, other.seen, one.plans, strict=True):
        assert sorted(mine + theirs) == sorted(plan + [plan[0]] * (len(plan) % 2))
    losses = {i: trace.losses[i] for trace in reversed(traces) for i in trace.seen[-1]}
    assert one.scores.tolist() == [losses[i] for i in range(SIZE)]
    for trace in traces:
        assert trace.totals == [(12, 12)] * EPOCHS
        assert trace.rates == rates_of_full_data(12)
        assert trace.validated == [len(VALID)] * EPOCHS
    torch.testing.assert_close(one.weights, replayed(traces, 12), rtol=1e-4, atol=1e-6)
    for process in two:
        assert same_bits(process["stay resumed"], one)
        accumulated = process["stay accumulated"]
        assert accumulated.totals == [(12, 12)] * EPOCHS
        assert accumulated.rates == rates_of_full_data(4)


def test_two_processes_gather_all_of_the_last_batch(two: list[dict[str, Any]]) -> None:
    for process in two:
        trace = process["pruned"]
        assert trace.gathered == [2 * ((len(seen) - 1) % 4 + 1) for seen in trace.seen]


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("dispatch_batches", "leave dispatch_batches at None"),
        ("split_batches", "give the loader the batch size of one process"),
        ("made too early", "make the Accelerator first"),
    ],
)
def test_two_processes_refuse(two: list[dict[str, Any]], setting: str, remedy: str) -> None:
    for process in two:
        assert remedy in process["refused"][setting]


@pytest.mark.slow
def test_the_example_runs_on_two_processes() -> None:
    done = torchrun(ROOT / "examples" / "accelerate_loop.py", "--epochs", 3, "--samples", 1003)
    assert re.search(r"saved [1-9]\d?\.\d% of full training", done.stdout)
    assert done.stdout.count("test accuracy") == 3
    assert "learning rate 0.0e+00 with 2 processes" in done.stdout  # where the cosine ends
