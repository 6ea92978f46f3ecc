"""Weights applied and scores noted: by position from a window, by index, on one rank and on several."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infobatch.core.booking import Booking, Window, weighted_sum
from infobatch.core.plan import EpochPlan, Slice
from infobatch.core.position import Position
from infobatch.core.scores import ScoreTable
from infobatch.core.shuffle import Order
from infobatch.core.weights import Weights


@pytest.fixture
def window():
    return Window(torch.tensor([5, 3, 8, 1, 7]), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), batch=2)


def test_batches_are_weighed_in_turn_and_noted(window):
    assert window.weigh_and_note(torch.tensor([1.0, 1.0]), torch.tensor([0.1, 0.2]))[0] == 3
    assert window.weigh_and_note(torch.tensor([2.0, 1.0]), torch.tensor([0.3, 0.4]))[0] == 10
    index, score = window.noted()
    assert index.tolist() == [5, 3, 8, 1]
    torch.testing.assert_close(score, torch.tensor([0.1, 0.2, 0.3, 0.4]))


def test_the_last_batch_may_be_short(window):
    for size in (2, 2, 1):
        assert window.fits(size, torch.zeros(size))
        assert not window.fits(3 - size, torch.zeros(3 - size))
        window.weigh_and_note(torch.ones(size), torch.ones(size))
    assert not window.fits(1, torch.zeros(1))
    assert len(window.noted()[0]) == 5


def test_it_fits_only_its_precision(window):
    assert window.fits(2, torch.zeros(2, dtype=torch.bfloat16))
    assert not window.fits(2, torch.zeros(2, dtype=torch.float64))


def test_without_weights_it_is_the_plain_mean():
    loss = torch.rand(4, requires_grad=True)
    mean, _ = Window(torch.arange(4), None, batch=4).weigh_and_note(loss, loss.detach())
    assert torch.equal(mean, loss.mean())


def test_the_sum_is_in_the_weights_precision():
    assert weighted_sum(torch.ones(2, dtype=torch.float16), torch.tensor([65504.0, 65504.0])) == 131008


# -- the mean over ranks ----------------------------------------------------------------------------------------------


def step_means(plan: EpochPlan, world: int, batch: int, start: int, by_index: bool) -> list[float]:
    """The mean over ranks of what update() returns, step by step: the loss whose gradient DDP and FSDP follow."""
    means: list[list[float]] = []
    for rank in range(world):
        position = Position(Slice(plan.order, rank, world, start), plan.by_sample.size, plan.repeats)
        booking = Booking(plan, position, ScoreTable(plan.by_sample.size))
        indices = itertools.chain.from_iterable(position.open(None))
        means.append([])
        while taken := list(itertools.islice(indices, batch)):
            index = torch.tensor(taken)
            loss = losses(index)
            mean = booking.update_named(loss, index, loss) if by_index else booking.update(loss, loss)
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


def test_padding_leaves_the_score_it_has() -> None:
    """The plan's first sample was trained on, and scored, before the epoch was resumed."""
    plan = plan_of(np.array([4, 2, 3, 1]), 6, weighted=False)
    table = ScoreTable(6)
    table.values[4] = 7.0
    position = Position(Slice(plan.order, rank=1, world=2, start=1), 6)
    booking = Booking(plan, position, table)
    assert position.part[:].tolist() == [3, 4]
    assert booking.weights_of(torch.tensor([3, 4])).tolist() == [1, 0]
    position.open(None)
    booking.update_named(torch.tensor([1.0, torch.nan]), index := torch.tensor([3, 4]), torch.tensor([1.0, torch.nan]))
    assert table.values[index].tolist() == [1.0, 7.0]
    assert int(table.rejected) == 0
