"""One plan, sliced: every entry on one rank, equally many on each, and the mean over ranks is the plan's own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infobatch.core.ledger import EpochLedger
from infobatch.core.plan import EpochPlan
from infobatch.core.scores import ScoreTable
from infobatch.core.shuffle import Order
from infobatch.core.slice import Slice
from infobatch.core.weights import Weights


@given(size=st.integers(0, 200), world=st.integers(1, 9), start=st.integers(0, 210))
def test_every_entry_is_on_exactly_one_rank_and_all_ranks_have_equally_many(size: int, world: int, start: int) -> None:
    start = min(start, size)
    entries = np.random.default_rng(size).permutation(size)
    parts = [Slice(Order(entries), rank, world, start) for rank in range(world)]

    assert len({len(part) for part in parts}) == len({len(part[:]) for part in parts}) == 1
    real = [part[: len(part) - part.padded].tolist() for part in parts]
    assert sorted(itertools.chain(*real)) == sorted(entries[start:].tolist())
    padding = sum(part.padded for part in parts)
    assert padding < world
    assert {part.global_padding for part in parts} == {padding}
    assert all(part.start == start for part in parts)
    # Step by step the ranks together hold the blocks that one process with the world-fold batch would see.
    in_order = np.stack([part[:] for part in parts], axis=1).reshape(-1)[: size - start]
    assert in_order.tolist() == entries[start:].tolist()


def step_means(plan: EpochPlan, world: int, batch: int, start: int, by_index: bool) -> list[float]:
    """The mean over ranks of what update() returns, step by step: the loss whose gradient DDP and FSDP follow."""
    means: list[list[float]] = []
    for rank in range(world):
        ledger = EpochLedger(plan, Slice(plan.order, rank, world, start), ScoreTable(plan.by_sample.size))
        indices = itertools.chain.from_iterable(ledger.open(None))  # type: ignore[arg-type]
        means.append([])
        while taken := list(itertools.islice(indices, batch)):
            index = torch.tensor(taken)
            loss = losses(index)
            mean = ledger.update_by_index(loss, index, loss) if by_index else ledger.update(loss, loss)
            means[-1].append(float(mean))
    return [sum(step) / world for step in zip(*means, strict=True)]


def losses(index: torch.Tensor) -> torch.Tensor:
    return 1 + torch.cos(index.double())


def plan_of(indices: np.ndarray, size: int, weighted: bool) -> EpochPlan:
    weights = Weights.ones(size)
    if weighted:
        weights = Weights.dense(1 + np.random.default_rng(size).random(size))
    return EpochPlan(1, Order(indices), weights, size, repeats=len(set(indices.tolist())) < len(indices))


def true_means(plan: EpochPlan, block: int, start: int) -> list[float]:
    terms = plan.weights[start:] * losses(torch.from_numpy(plan.indices[start:].copy())).numpy()
    return [float(terms[k : k + block].mean()) for k in range(0, len(terms), block)]


@pytest.mark.parametrize("by_index", [False, True])
@given(
    size=st.integers(1, 80),
    world=st.integers(1, 5),
    batch=st.integers(1, 9),
    start=st.integers(0, 79),
    weighted=st.booleans(),
)
def test_the_mean_over_ranks_is_the_mean_over_the_step_s_samples(
    size: int, world: int, batch: int, start: int, weighted: bool, by_index: bool
) -> None:
    plan = plan_of(np.random.default_rng(size).permutation(size), size, weighted)
    start = min(start, size)

    assert step_means(plan, world, batch, start, by_index) == pytest.approx(true_means(plan, world * batch, start))


@pytest.mark.parametrize("by_index", [False, True])
def test_padding_weighs_nothing_when_the_same_sample_is_also_there_in_earnest(by_index: bool) -> None:
    """An own order may repeat samples: rank 1 holds sample 4 for real and gets it as padding too."""
    plan = plan_of(np.array([4, 4, 2, 3, 1]), 6, weighted=False)

    assert step_means(plan, 2, 2, 0, by_index) == pytest.approx(true_means(plan, 4, 0))


@given(size=st.integers(1, 60), world=st.integers(1, 7), data=st.data())
def test_padding_is_the_plan_s_first_sample_also_after_a_resume(size: int, world: int, data: st.DataObject) -> None:
    """Its weight is 0, but batch norm sees it: a resumed epoch must end as the whole one does."""
    start = data.draw(st.integers(0, size - 1))
    order = Order(np.random.default_rng(size).permutation(size))
    for rank in range(world):
        part = Slice(order, rank, world, start)
        if part.padded:
            assert part[:][-1] == order[:1][0]


def test_padding_leaves_the_score_it_has() -> None:
    """The plan's first sample was trained on, and scored, before the epoch was resumed."""
    plan = plan_of(np.array([4, 2, 3, 1]), 6, weighted=False)
    table = ScoreTable(6)
    table.values[4] = 7.0
    ledger = EpochLedger(plan, Slice(plan.order, rank=1, world=2, start=1), table)
    assert ledger.part[:].tolist() == [3, 4]
    assert ledger.weights_of(torch.tensor([3, 4])).tolist() == [1, 0]
    ledger.open(None)  # type: ignore[arg-type]
    ledger.update_by_index(
        torch.tensor([1.0, torch.nan]), index := torch.tensor([3, 4]), torch.tensor([1.0, torch.nan])
    )
    assert table.values[index].tolist() == [1.0, 7.0]
    assert int(table.rejected) == 0
