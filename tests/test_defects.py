"""One test for each defect of the official implementation: ours is free of it.

The numbers are those of the list in the project's notes on methods; each sub-clause of a defect is a test or a line.
"""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Subset, TensorDataset, WeightedRandomSampler

from infobatch import DriftError, InfoBatch

N = 23
BATCH = 4


def numbers(size: int = N) -> TensorDataset:
    """Sample i is (i,): what a batch holds tells which samples it is."""
    return TensorDataset(torch.arange(float(size)))


def make(num_epochs: int, *, loading: dict[str, Any] | None = None, **options: Any) -> tuple[InfoBatch, DataLoader]:
    train_data = InfoBatch(numbers(), num_epochs, **options)
    loader = DataLoader(train_data, batch_size=BATCH, sampler=train_data.sampler, **(loading or {}))
    return train_data, loader


def train_epoch(train_data: InfoBatch, loader: Any) -> None:
    for (x,) in loader:
        train_data.update(x)


# -- 1: on torch >= 2.6 in one process -------------------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [False, True])
def test_defect_1_an_epoch_ends_and_is_counted_once(drop_last: bool) -> None:
    train_data, loader = make(8, loading={"drop_last": drop_last}, delta=0.875)
    kept = []
    for epoch in range(8):
        for batches, (x,) in enumerate(loader, 1):
            train_data.update(x)
            assert batches <= 6, "the epoch does not end"
            assert train_data.epoch == epoch  # the counter does not run ahead with the batches
        kept.append(len(train_data.plan))
    assert kept[0] == kept[7] == N
    assert all(count < N for count in kept[1:7])  # pruning goes on for as long as it should


# -- 2: Accelerate ---------------------------------------------------------------------------------------------------


def test_defect_2_accelerate_never_shifts_losses_in_silence() -> None:
    train_data, loader = make(3)
    with pytest.raises(DriftError, match="fetches ahead"):
        train_epoch(train_data, Accelerator(cpu=True).prepare(loader))
    assert np.isnan(train_data.scores).all()


def test_defect_2_accelerate_books_every_loss_to_its_sample() -> None:
    train_data, loader = make(3, delta=1.0, index_key="index")
    loader = Accelerator(cpu=True).prepare(loader)
    for epoch in range(3):
        for x, index in loader:
            train_data.update(x + epoch / 16, index)
        kept = train_data.plan.indices
        np.testing.assert_array_equal(train_data.scores[kept], kept + epoch / 16)
        np.testing.assert_array_equal(np.floor(train_data.scores), np.arange(N))


# -- 3: precision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("explicit", [False, True])
def test_defect_3_losses_of_any_precision(dtype: torch.dtype, explicit: bool) -> None:
    train_data, loader = make(2, delta=1.0)
    for _ in range(2):
        for (x,) in loader:
            loss = x.to(dtype).requires_grad_()
            mean = train_data.update(loss, x.long() if explicit else None)
            mean.backward()
            assert mean.dtype == dtype
    np.testing.assert_array_equal(train_data.scores, np.arange(N))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_defect_3_indices_are_never_rounded(dtype: torch.dtype) -> None:
    train_data = InfoBatch(range(50_000), 2)
    index = torch.tensor([49_999, 49_984, 49_920])
    train_data.update(torch.tensor([1.0, 2.0, 3.0], dtype=dtype), index)
    assert train_data.scores[index].tolist() == [1.0, 2.0, 3.0]
    assert np.isnan(train_data.scores).sum() == 50_000 - 3


def test_defect_3_indices_past_what_float32_can_count() -> None:
    size = 2**25 + 64
    train_data = InfoBatch(range(size), 2)
    index = torch.arange(size - 128, size)
    train_data.update(torch.arange(128.0), index)
    np.testing.assert_array_equal(train_data.scores[-128:], np.arange(128))
    assert int(np.isnan(train_data.scores).sum()) == size - 128


def test_defect_3_indices_that_are_floats_are_refused() -> None:
    train_data = InfoBatch(range(50_000), 2)
    with pytest.raises(TypeError, match=r"index must hold whole numbers, got torch\.float16"):
        train_data.update(torch.ones(1), torch.tensor([49_999.0], dtype=torch.float16))


# -- 4: the mean of equal scores -------------------------------------------------------------------------------------


def test_defect_4_equal_scores_are_never_below_their_mean() -> None:
    """Other sizes and values: tests/core/test_thresholds.py."""
    size = 5_592_409
    train_data = InfoBatch(range(size), 8)
    train_data.update(torch.full((size,), 0.1), torch.arange(size))
    train_data.set_epoch(1)
    assert len(train_data.plan) == size
    assert train_data.plan.weights[[0, -1]].tolist() == [1.0, 1.0]
    loss = torch.ones(4)
    assert train_data.update(loss, torch.arange(4)) == 1.0  # the loss does not double


def test_defect_4_without_scores_nothing_is_pruned() -> None:
    train_data, _ = make(8)
    train_data.set_epoch(1)
    assert len(train_data.plan) == N


# -- 5: annealing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_epochs", "delta", "pruned"),
    [(10, 0.875, range(1, 9)), (8, 0.875, range(1, 7)), (10, 0.85, range(1, 9)), (7, 0.5, range(1, 4))],
)
def test_defect_5_annealing_when_delta_times_epochs_is_not_whole(num_epochs: int, delta: float, pruned: range) -> None:
    train_data, loader = make(num_epochs, delta=delta)
    for epoch in range(num_epochs):
        train_epoch(train_data, loader)
        plan = train_data.plan
        assert plan.epoch == epoch
        if epoch in pruned:
            assert len(plan) < N
            assert plan.weights.max() > 1
            assert plan.weights.mean() * len(plan) == pytest.approx(N)
        else:
            assert sorted(plan.indices) == list(range(N))
            assert set(plan.weights.tolist()) == {1.0}  # no stale weights
    assert train_data.update(torch.ones(2), torch.arange(2)) == 1.0


# -- 6: copies and subsets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_defect_6_copies_do_not_recurse(duplicate: Any) -> None:
    train_data, loader = make(3, delta=1.0)
    train_epoch(train_data, loader)
    twin = duplicate(train_data)
    np.testing.assert_array_equal(twin.scores, train_data.scores)
    twin.set_epoch(1)
    train_data.set_epoch(1)
    np.testing.assert_array_equal(twin.plan.indices, train_data.plan.indices)
    assert twin[3] == train_data[3]


def test_defect_6_spawned_workers_over_a_subset() -> None:
    """Inputs are what the subset holds, not its indices."""
    train_data = InfoBatch(Subset(numbers(60), [59 - i for i in range(10)]), 2)
    loader = DataLoader(
        train_data,
        batch_size=BATCH,
        sampler=train_data.sampler,
        num_workers=1,
        multiprocessing_context="spawn",
    )
    inputs: list[float] = []
    for (x,) in loader:
        train_data.update(x)
        inputs += x.tolist()
    assert inputs == [59.0 - i for i in train_data.plan.indices]
    np.testing.assert_array_equal(train_data.scores, [59 - i for i in range(10)])


# -- 7: nothing global, nothing in place -----------------------------------------------------------------------------

SNAPSHOT = """
import torch.utils.data.dataloader as dataloader
from torch.utils.data import BatchSampler, DataLoader, Sampler, TensorDataset, _utils
import torch
places = [dataloader, DataLoader, dataloader._BaseDataLoaderIter, dataloader._SingleProcessDataLoaderIter,
          dataloader._MultiProcessingDataLoaderIter, BatchSampler, Sampler, _utils.fetch, _utils.collate,
          _utils.collate.default_collate_fn_map, torch.Tensor]
def snapshot():
    return [dict(place) if isinstance(place, dict) else dict(vars(place)) for place in places]
before = snapshot()
from infobatch import InfoBatch
train_data = InfoBatch(TensorDataset(torch.arange(24.)), 3, delta=1.0)
loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
for _ in range(3):
    for x, in loader:
        train_data.update(x)
assert len(train_data.plan) < 24
assert snapshot() == before
"""


def test_defect_7_nothing_of_torch_is_patched() -> None:
    done = subprocess.run([sys.executable, "-c", SNAPSHOT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_defect_7_global_random_states_are_left_alone() -> None:
    def states() -> list[bytes]:
        return [
            pickle.dumps(np.random.get_state()),  # noqa: NPY002 (it is what must not change)
            pickle.dumps(random.getstate()),
            torch.get_rng_state().numpy().tobytes(),
        ]

    before = states()
    train_data = InfoBatch(numbers(), 4, delta=1.0)
    for epoch in range(4):
        train_data.set_epoch(epoch)
        index = torch.tensor(list(train_data.sampler))
        train_data.update(index.float())
    assert len(train_data.plan) < N
    assert states() == before


@pytest.mark.parametrize("last", [torch.exp, torch.sqrt])
@pytest.mark.parametrize("explicit", [False, True])
def test_defect_7_the_callers_loss_is_untouched(last: Any, explicit: bool) -> None:
    """exp and sqrt need their result for the backward pass."""
    train_data, loader = make(2, delta=1.0)
    train_epoch(train_data, loader)
    pruned = False
    for (x,) in loader:
        inputs = (x / N + 1).requires_grad_()
        loss = last(inputs)
        before = loss.detach().clone()
        train_data.update(loss, x.long() if explicit else None).backward()
        assert torch.equal(loss, before)
        weights = dict(zip(train_data.plan.indices.tolist(), train_data.plan.weights.tolist(), strict=True))
        weight = torch.tensor([weights[i] for i in x.long().tolist()])
        pruned |= bool((weight > 1).any())
        (expected,) = torch.autograd.grad(last(inputs), inputs, weight / len(x))
        torch.testing.assert_close(inputs.grad, expected)
    assert pruned


# -- 8: values that are not finite -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_defect_8_one_bad_loss_changes_nothing_else(bad: float) -> None:
    clean, clean_loader = make(6, delta=1.0)
    dirty, dirty_loader = make(6, delta=1.0)
    train_epoch(clean, clean_loader)
    train_epoch(dirty, dirty_loader)
    for (x,), (same,) in zip(clean_loader, dirty_loader, strict=True):
        clean.update(x)
        same[same == N - 1] = bad
        dirty.update(same)
    np.testing.assert_array_equal(dirty.scores, clean.scores)
    with pytest.warns(RuntimeWarning, match="1 loss values were NaN or infinite"):
        dirty.set_epoch(2)
    clean.set_epoch(2)
    for _ in range(2, 6):
        train_epoch(clean, clean_loader)
        train_epoch(dirty, dirty_loader)
        assert len(dirty.plan) < N  # pruning goes on, and not of everything
        np.testing.assert_array_equal(dirty.plan.indices, clean.plan.indices)
        np.testing.assert_array_equal(dirty.plan.weights, clean.plan.weights)
    assert dirty.stats.rejected == 1


# -- 9: all the rest -------------------------------------------------------------------------------------------------


def test_defect_9_the_loaders_length_is_the_current_epochs() -> None:
    train_data, loader = make(6, delta=0.7)
    for epoch in range(6):
        train_data.set_epoch(epoch)
        announced = len(loader)
        assert sum(train_data.update(x).numel() for (x,) in loader) == announced
    assert train_data.stats.saved > 0


def test_defect_9_there_is_a_state_to_save() -> None:
    (whole, whole_loader), (resumed, resumed_loader) = make(4), make(4)
    train_epoch(whole, whole_loader)
    resumed.load_state_dict(whole.state_dict())
    train_epoch(whole, whole_loader)
    train_epoch(resumed, resumed_loader)
    np.testing.assert_array_equal(resumed.plan.indices, whole.plan.indices)


@pytest.mark.parametrize("ratio", [-1, 3, 1, 1.0, float("nan"), float("inf")])
def test_defect_9_impossible_ratios_are_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match=rf"ratio must lie in \[0, 1\).*got {ratio!r}"):
        make(4, ratio=ratio)


def test_defect_9_a_custom_collate_function() -> None:
    train_data, loader = make(3, delta=1.0, loading={"collate_fn": lambda samples: {"all": [x for (x,) in samples]}})
    for _ in range(3):
        for batch in loader:
            train_data.update(torch.stack(batch["all"]))
    np.testing.assert_array_equal(train_data.scores, np.arange(N))


def test_defect_9_the_users_own_sampler() -> None:
    weights = [0.0] * 3 + [1.0] * (N - 3)  # never the first three
    train_data, loader = make(3, delta=1.0, order=WeightedRandomSampler(weights, 200))
    for _ in range(3):
        train_epoch(train_data, loader)
        assert train_data.plan.indices.min() >= 3
    assert len(train_data.plan) < 200
    np.testing.assert_array_equal(train_data.scores[3:], np.arange(3, N))


def test_defect_9_a_scalar_loss_is_told_what_to_do() -> None:
    train_data, loader = make(3)
    (x,) = next(iter(loader))
    with pytest.raises(ValueError, match=r'loss is a scalar.*reduction="none"'):
        train_data.update(x.mean())
