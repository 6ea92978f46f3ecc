"""The three lines with torch's own loader, in every way it is used."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import datasets
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler

import infobatch
from infobatch import InfoBatch

N = 23  # no multiple of a batch size
BATCH = 4

Reader = Callable[[Any], torch.Tensor]


class Pair(NamedTuple):
    x: float
    y: int


class Made(Dataset):
    """Sample i is what ``make`` makes of i."""

    def __init__(self, make: Callable[[int], Any], size: int = N) -> None:
        self.make, self.size = make, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class BatchOnly(Made):
    """Can be read by batches only, as remote data would like to be."""

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("sample by sample")

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.make(i) for i in indices]


def numbers(size: int = N) -> TensorDataset:
    """Sample i is (i,): what a batch holds tells which samples it is."""
    return TensorDataset(torch.arange(float(size)))


def first(batch: Any) -> torch.Tensor:
    return batch[0]


def loader_of(train_data: InfoBatch, workers: int = 0, *, start: str = "fork", **options: Any) -> DataLoader:
    options = {"batch_size": BATCH, **options}
    context = start if workers else None
    return DataLoader(
        train_data,
        sampler=train_data.sampler,
        num_workers=workers,
        multiprocessing_context=context,
        **options,
    )


def known_loss(index: torch.Tensor, epoch: int) -> torch.Tensor:
    """A loss that names its sample and its epoch."""
    return (index + epoch / 16).float().requires_grad_()


def weight_of(train_data: InfoBatch, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The plan's weight of every sample of the data set, 0 where left out."""
    weight = np.zeros(len(train_data))
    weight[train_data.plan.indices] = train_data.plan.weights
    return torch.from_numpy(weight).to(dtype)


def step(train_data: InfoBatch, index: torch.Tensor, *named: torch.Tensor) -> torch.Tensor:
    """One training step on the samples ``index``; checks value and gradient of the returned mean."""
    loss = known_loss(index, train_data.epoch)
    weight = weight_of(train_data)[index]
    mean = train_data.update(loss, *named)
    mean.backward()
    torch.testing.assert_close(mean, (weight * loss).sum() / len(loss))
    torch.testing.assert_close(loss.grad, weight / len(loss))
    return mean.detach()


def train_epoch(
    train_data: InfoBatch,
    loader: DataLoader,
    read: Reader = first,
    *,
    name: Reader | None = None,
    drop_last: bool = False,
    between: Callable[[], object] = lambda: None,
) -> infobatch.EpochPlan:
    """One epoch, every promise of it checked: each kept sample once, in order, its score booked to it, no other."""
    expected = train_data.scores.copy()
    seen: list[int] = []
    for batch in loader:
        index = read(batch).long().flatten()
        step(train_data, index, *([name(batch)] if name else []))
        seen += index.tolist()
        between()
    plan = train_data.plan
    kept = plan.indices[: len(plan) - len(plan) % BATCH] if drop_last else plan.indices
    assert seen == kept.tolist()
    expected[kept] = kept + plan.epoch / 16
    np.testing.assert_array_equal(train_data.scores, expected)
    return plan


def train(train_data: InfoBatch, loader: DataLoader, read: Reader = first, **options: Any) -> list[int]:
    """All epochs; how many samples each kept."""
    plans = [train_epoch(train_data, loader, read, **options) for _ in range(train_data.num_epochs)]
    assert [plan.epoch for plan in plans] == list(range(train_data.num_epochs))
    return [len(plan) for plan in plans]


# -- torch's loader, in every way -----------------------------------------------------------------------------------

LOADERS = [
    pytest.param(0, False, "fork", id="0"),
    pytest.param(1, False, "fork", id="1-fork"),
    pytest.param(1, True, "fork", id="1-fork-persistent"),
    pytest.param(2, False, "fork", id="2-fork"),
    pytest.param(2, True, "fork", id="2-fork-persistent"),
    pytest.param(1, False, "spawn", id="1-spawn"),
    pytest.param(2, True, "spawn", id="2-spawn-persistent"),
]


@pytest.mark.parametrize(("workers", "persistent", "start"), LOADERS)
def test_the_three_lines(workers: int, persistent: bool, start: str) -> None:
    num_epochs = 4 if start == "fork" else 3  # each spawned worker costs seconds
    train_data = InfoBatch(numbers(), num_epochs, 0.5, 0.7)
    loader = loader_of(train_data, workers, start=start, persistent_workers=persistent)
    kept = train(train_data, loader)
    assert kept[0] == N
    pruned = min(0.7 * num_epochs, num_epochs - 1)  # the last epoch is full
    assert all((count < N) == (epoch < pruned) for epoch, count in enumerate(kept[1:], 1))


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator is found:UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_pinned_memory(workers: int) -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0)
    kept = train(train_data, loader_of(train_data, workers, pin_memory=True), lambda batch: batch[0].cpu())
    assert kept[1] < N


@pytest.mark.parametrize("workers", [0, 2])
def test_a_custom_collate_function(workers: int) -> None:
    def collate(samples: list[tuple[torch.Tensor]]) -> dict[str, Any]:
        return {"ids": torch.stack([x for (x,) in samples]), "note": ["as text"] * len(samples)}

    train_data = InfoBatch(numbers(), 3, delta=1.0)
    loader = loader_of(train_data, workers, collate_fn=collate)
    assert train(train_data, loader, lambda batch: batch["ids"])[1] < N


KINDS: dict[str, tuple[Callable[[int], Any], Reader]] = {
    "tuple": (lambda i: (float(i), -i), first),
    "list": (lambda i: [float(i), -i], first),
    "dict": (lambda i: {"x": float(i), "y": -i}, lambda batch: batch["x"]),
    "namedtuple": (lambda i: Pair(float(i), -i), lambda batch: batch.x),
    "tensor": (lambda i: torch.tensor(float(i)), lambda batch: batch),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_sample(kind: str, workers: int) -> None:
    make, read = KINDS[kind]
    train_data = InfoBatch(Made(make), 3, delta=1.0)
    plain = next(iter(DataLoader(Made(make), batch_size=BATCH)))
    ours = next(iter(loader_of(train_data, workers)))
    assert type(ours) is type(plain)
    if kind != "tensor":
        assert len(ours) == len(plain)
    assert train(train_data, loader_of(train_data, workers), read)[1] < N


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_is_read_by_batches(workers: int) -> None:
    train_data = InfoBatch(BatchOnly(lambda i: (float(i),)), 3, delta=1.0)
    assert train(train_data, loader_of(train_data, workers))[1] < N


@pytest.mark.parametrize("workers", [0, 2])
def test_a_subset(workers: int) -> None:
    chosen = [40 - i for i in range(N)]  # position i of the subset holds number 40 - i
    train_data = InfoBatch(Subset(numbers(60), chosen), 3, delta=1.0)
    assert train(train_data, loader_of(train_data, workers), lambda batch: 40 - batch[0])[1] < N


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("index_key", [None, "index"])
def test_hugging_face_data(workers: int, index_key: str | None) -> None:
    data = datasets.Dataset.from_dict({"x": [float(i) for i in range(N)]}).with_format("torch")
    train_data = InfoBatch(data, 3, delta=1.0, index_key=index_key)
    assert train_data.column_names == ["x"]
    loader = loader_of(train_data, workers)
    assert train(train_data, loader, lambda batch: batch["x"])[1] < N
    assert ("index" in next(iter(loader))) == (index_key is not None)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [N, 24])
def test_the_last_batch_is_partial_or_dropped(size: int, drop_last: bool, workers: int) -> None:
    train_data = InfoBatch(numbers(size), 4, delta=0.5)
    loader = loader_of(train_data, workers, drop_last=drop_last)
    assert train(train_data, loader, drop_last=drop_last)[1] < size
    whole = size - size % BATCH if drop_last else size
    assert [epoch.seen for epoch in train_data.stats.epochs][::3] == [whole, whole]


@pytest.mark.parametrize("batch_size", [1, N, 100])
def test_extreme_batch_sizes(batch_size: int) -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0)
    assert train(train_data, loader_of(train_data, batch_size=batch_size))[1] < N


def test_a_loader_without_batches() -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0)
    loader = DataLoader(train_data, batch_size=None, sampler=train_data.sampler)
    assert train(train_data, loader, lambda sample: sample[0].reshape(1))[1] < N


def test_a_batch_sampler_around_ours() -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0)
    loader = DataLoader(train_data, batch_sampler=BatchSampler(train_data.sampler, BATCH, False), num_workers=2)
    assert train(train_data, loader)[1] < N


def test_the_sampler_without_a_loader() -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0)
    for _ in range(3):
        seen = []
        for index in train_data.sampler:
            step(train_data, torch.tensor([index]))
            seen.append(index)
        assert seen == train_data.plan.indices.tolist()
        assert train_data.scores[seen].tolist() == [i + train_data.epoch / 16 for i in seen]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_too_small_for_one_batch_gives_none(workers: int) -> None:
    train_data = InfoBatch(numbers(3), 3)
    loader = loader_of(train_data, workers, drop_last=True)
    assert list(loader) == []
    assert 0 <= train_data.progress <= 1


def test_workers_end_with_the_loop() -> None:
    before = set(multiprocessing.active_children())
    train_data = InfoBatch(numbers(), 3)
    for (x,) in loader_of(train_data, 2):
        step(train_data, x.long())
        break
    assert set(multiprocessing.active_children()) == before


# -- what else happens in an epoch ----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_validation_in_the_middle_of_an_epoch(workers: int) -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0)
    validation = DataLoader(numbers(9), batch_size=2, num_workers=workers)
    on_train_data = DataLoader(train_data, batch_size=5)  # all of it, in order, not by our sampler

    def validate() -> None:
        assert [len(x) for (x,) in validation] == [2, 2, 2, 2, 1]
        assert sum(len(x) for (x,) in on_train_data) == N

    assert train(train_data, loader_of(train_data, workers), between=validate)[1] < N


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("when", ["after update", "after fetching"])
def test_an_epoch_left_early(when: str, persistent: bool, workers: int) -> None:
    train_data = InfoBatch(numbers(), 4, delta=1.0)
    loader = loader_of(train_data, workers, persistent_workers=persistent and workers > 0)
    train_epoch(train_data, loader)
    seen: list[int] = []
    before = train_data.scores.copy()
    for number, (x,) in enumerate(loader):
        if when == "after fetching" and number == 2:
            break
        step(train_data, x.long())
        seen += x.long().tolist()
        if when == "after update" and number == 1:
            break
    assert train_data.epoch == 1
    assert seen == train_data.plan.indices[: 2 * BATCH].tolist()
    assert train_data.scores[seen].tolist() == [i + 1 / 16 for i in seen]
    rest = np.setdiff1d(np.arange(N), seen)
    np.testing.assert_array_equal(train_data.scores[rest], before[rest])
    assert train_data.stats.epochs[1].seen == len(seen)
    assert train_epoch(train_data, loader).epoch == 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_peek_is_not_an_epoch(workers: int, persistent: bool) -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0)
    loader = loader_of(train_data, workers, persistent_workers=persistent and workers > 0)
    for epoch in range(3):
        batches = [next(iter(loader))[0].tolist() for _ in range(2)]
        assert batches[0] == batches[1] == train_data.plan.indices[:BATCH].tolist()
        assert len(list(loader)) == len(loader)  # a whole pass without update(), as for statistics
        assert train_data.epoch == epoch
        assert len(train_data.stats.epochs) == epoch
        assert train_epoch(train_data, loader).epoch == epoch


@pytest.mark.parametrize("who", ["dataset", "sampler"])
def test_set_epoch_makes_every_length_true(who: str) -> None:
    train_data = InfoBatch(numbers(), 6)
    loader = loader_of(train_data)
    lengths = []
    for epoch in range(8):
        (train_data if who == "dataset" else train_data.sampler).set_epoch(epoch)
        assert train_data.epoch == train_data.sampler.epoch == epoch
        assert len(train_data.sampler) == len(train_data.plan)
        lengths.append(len(loader))
        assert train_epoch(train_data, loader).epoch == epoch
        assert train_data.stats.epochs[-1].seen == len(train_data.plan)
        assert lengths[-1] == -(-len(train_data.plan) // BATCH)
    full = -(-N // BATCH)
    assert lengths[0] == lengths[6] == lengths[7] == full
    assert all(length < full for length in lengths[1:5])


def test_set_epoch_is_idempotent_until_trained_on_and_then_starts_anew() -> None:
    train_data = InfoBatch(numbers(), 6)
    loader = loader_of(train_data)
    train_epoch(train_data, loader)
    train_data.set_epoch(1)
    plan = train_data.plan
    next(iter(loader))
    train_data.set_epoch(1)
    assert train_data.plan is plan
    batches = iter(loader)
    step(train_data, next(batches)[0].long())
    train_data.set_epoch(1)
    assert train_epoch(train_data, loader).epoch == 1


def test_epochs_can_be_skipped() -> None:
    train_data = InfoBatch(numbers(), 6)
    loader = loader_of(train_data)
    train_epoch(train_data, loader)
    train_data.set_epoch(3)
    assert train_epoch(train_data, loader).epoch == 3
    assert train_epoch(train_data, loader).epoch == 4


def test_past_num_epochs_the_data_is_full() -> None:
    train_data = InfoBatch(numbers(), 2, delta=1.0)
    loader = loader_of(train_data)
    assert [len(train_epoch(train_data, loader)) for _ in range(4)] == [N, train_data.stats.epochs[1].kept, N, N]
    assert train_data.stats.epochs[1].kept < N
    assert train_data.progress == 1.0


def test_progress_counts_epochs() -> None:
    train_data = InfoBatch(numbers(16), 4, delta=1.0)
    loader = loader_of(train_data)
    noted = [train_data.progress]
    ends = []
    for _ in range(4):
        train_epoch(train_data, loader, between=lambda: noted.append(train_data.progress))
        ends.append(train_data.progress)
    assert noted[:5] == [0, 1 / 16, 2 / 16, 3 / 16, 4 / 16]
    assert ends == [0.25, 0.5, 0.75, 1.0]
    assert noted == sorted(noted)


def test_progress_counts_what_drop_last_leaves() -> None:
    train_data = InfoBatch(numbers(), 2)
    train_epoch(train_data, loader_of(train_data, drop_last=True), drop_last=True)
    assert train_data.progress == 0.5


# -- the wrapper ----------------------------------------------------------------------------------------------------


def test_it_is_a_dataset_whose_attributes_stay_readable() -> None:
    data = numbers()
    data.classes = ["a", "b"]
    train_data = InfoBatch(data, 3)
    assert isinstance(train_data, Dataset)
    assert len(train_data) == N
    assert train_data.classes == ["a", "b"]
    assert train_data.tensors is data.tensors
    assert train_data[5] == data[5]
    assert not hasattr(train_data, "nothing_of_the_kind")
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = train_data.nothing_of_the_kind


def test_its_sampler_is_one_that_frameworks_leave_alone() -> None:
    sampler = InfoBatch(numbers(), 3).sampler
    assert isinstance(sampler, torch.utils.data.DistributedSampler)
    assert (sampler.rank, sampler.num_replicas) == (0, 1)


def copy_by_pickle(train_data: InfoBatch) -> InfoBatch:
    return pickle.loads(pickle.dumps(train_data))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy_by_pickle])
def test_a_copy_at_an_epochs_end_goes_on_alike(duplicate: Callable[[InfoBatch], InfoBatch]) -> None:
    train_data = InfoBatch(numbers(), 4, delta=1.0)
    train_epoch(train_data, loader_of(train_data))
    twin = duplicate(train_data)
    assert twin.sampler.dataset is twin
    for _ in range(3):
        theirs = train_epoch(twin, loader_of(twin))
        ours = train_epoch(train_data, loader_of(train_data))
        np.testing.assert_array_equal(theirs.indices, ours.indices)
        np.testing.assert_array_equal(theirs.weights, ours.weights)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy_by_pickle])
def test_a_copy_in_mid_epoch_is_apart(duplicate: Callable[[InfoBatch], InfoBatch], workers: int) -> None:
    train_data = InfoBatch(numbers(), 4, delta=1.0)
    train_epoch(train_data, loader_of(train_data, workers))
    twins: list[InfoBatch] = []
    train_epoch(train_data, loader_of(train_data, workers), between=lambda: twins.append(duplicate(train_data)))
    for number, twin in enumerate(twins):
        done = min((number + 1) * BATCH, len(train_data.plan))
        booked = train_data.plan.indices[:done]
        assert (twin.epoch, twin.stats.epochs[1].seen) == (1, done)
        np.testing.assert_array_equal(twin.scores[booked], booked + 1 / 16)
        rest = np.setdiff1d(np.arange(N), booked)
        np.testing.assert_array_equal(twin.scores[rest], rest)
        assert train_epoch(twin, loader_of(twin)).epoch == 2


def test_repr_says_where_training_stands() -> None:
    train_data = InfoBatch(numbers(), 4)
    train_data.set_epoch(1)
    assert repr(train_data) == "InfoBatch(TensorDataset of 23, method='infobatch', epoch 1 of 4, kept 23)"


def test_the_plan_is_frozen_arrays() -> None:
    train_data = InfoBatch(numbers(), 4, delta=1.0)
    train_epoch(train_data, loader_of(train_data))
    train_data.set_epoch(1)
    plan = train_data.plan
    assert isinstance(plan, infobatch.EpochPlan)
    assert plan.indices.shape == plan.weights.shape == (len(plan),)
    assert np.issubdtype(plan.indices.dtype, np.integer)
    with pytest.raises(ValueError, match="read-only"):
        plan.indices[0] = 0
    with pytest.raises(AttributeError):
        plan.epoch = 5


def test_scores_are_a_read_only_float32_view() -> None:
    train_data = InfoBatch(numbers(), 4)
    assert np.isnan(train_data.scores).all()
    train_epoch(train_data, loader_of(train_data))
    assert train_data.scores.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        train_data.scores[0] = 3


# -- index_key ------------------------------------------------------------------------------------------------------

CARRIED: dict[str, tuple[Callable[[int], Any], Reader, Reader]] = {
    "dict": (lambda i: {"x": float(i)}, lambda batch: batch["x"], lambda batch: batch["id"]),
    "tuple": (lambda i: (float(i), -i), first, lambda batch: batch[-1]),
    "list": (lambda i: [float(i), -i], first, lambda batch: batch[-1]),
    "tensor": (lambda i: torch.tensor(float(i)), first, lambda batch: batch[-1]),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("by_batches", [False, True])
@pytest.mark.parametrize("kind", CARRIED)
def test_samples_carry_their_index(kind: str, by_batches: bool, workers: int) -> None:
    make, read, name = CARRIED[kind]
    train_data = InfoBatch((BatchOnly if by_batches else Made)(make), 3, delta=1.0, index_key="id")
    loader = loader_of(train_data, workers)
    batch = next(iter(loader))
    assert name(batch).dtype == torch.int64
    assert name(batch).tolist() == read(batch).tolist()
    assert train(train_data, loader, read, name=name)[1] < N


def test_samples_carry_their_index_through_spawned_workers() -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0, index_key="id")
    loader = loader_of(train_data, 1, start="spawn", persistent_workers=True)
    assert train(train_data, loader, name=lambda batch: batch[-1])[1] < N


def test_the_wrapped_sample_is_left_as_it_is() -> None:
    sample = {"x": 1.0}
    train_data = InfoBatch(Made(lambda i: sample), 3, index_key="id")
    assert train_data[2] == {"x": 1.0, "id": 2}
    assert sample == {"x": 1.0}


def test_with_an_index_key_the_position_is_still_enough() -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0, index_key="id")
    assert train(train_data, loader_of(train_data, 2))[1] < N


# -- update ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("explicit", [False, True])
def test_any_floating_dtype(dtype: torch.dtype, explicit: bool) -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0)
    loader = loader_of(train_data)
    for epoch in range(3):
        for (x,) in loader:
            index = x.long()
            loss = (x + 1).to(dtype).requires_grad_()  # up to 23: exact in every one
            mean = train_data.update(loss, index if explicit else None)
            mean.backward()
            weight = weight_of(train_data, torch.promote_types(dtype, torch.float32))[index]
            assert mean.dtype == loss.grad.dtype == dtype
            torch.testing.assert_close(mean, ((weight * (x + 1)).sum() / len(x)).to(dtype))
            torch.testing.assert_close(loss.grad, (weight / len(x)).to(dtype))
        assert train_data.epoch == epoch
    assert train_data.scores.dtype == np.float32
    assert train_data.scores.tolist() == [i + 1.0 for i in range(N)]


def test_double_losses_are_weighted_in_double() -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0)
    train_epoch(train_data, loader_of(train_data))
    for (x,) in loader_of(train_data):
        loss = (x.double() + 1) / 3
        mean = train_data.update(loss)
        weight = weight_of(train_data, torch.float64)[x.long()]
        assert mean.item() == pytest.approx(float((weight * loss).sum() / len(x)), rel=1e-14)


@pytest.mark.parametrize("explicit", [False, True])
def test_a_score_replaces_the_loss_as_the_score(explicit: bool) -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0)
    for _ in range(2):
        for (x,) in loader_of(train_data):
            loss = torch.full_like(x, 7.0)
            weight = weight_of(train_data)[x.long()]
            mean = train_data.update(loss, x.long() if explicit else None, score=x + 0.5)
            torch.testing.assert_close(mean, (weight * loss).sum() / len(x))
    assert train_data.scores.tolist() == [i + 0.5 for i in range(N)]


@pytest.mark.parametrize("as_what", [torch.Tensor.int, torch.Tensor.tolist, torch.Tensor.numpy])
def test_an_index_of_any_whole_kind(as_what: Callable[[torch.Tensor], Any]) -> None:
    train_data = InfoBatch(numbers(), 2)
    for (x,) in loader_of(train_data):
        step(train_data, x.long(), as_what(x.long()))
    assert train_data.scores.tolist() == list(range(N))


def test_losses_that_are_not_finite_never_enter() -> None:
    train_data = InfoBatch(numbers(), 4, delta=1.0)
    loader = loader_of(train_data)
    train_epoch(train_data, loader)
    for (x,) in loader:
        loss = x + 1 / 16
        loss[x == train_data.plan.indices[0]] = torch.nan
        loss[x == train_data.plan.indices[5]] = torch.inf
        train_data.update(loss)
    bad = train_data.plan.indices[[0, 5]]
    assert train_data.scores[bad].tolist() == bad.tolist()
    assert train_data.stats.rejected == 2
    assert "2" in train_data.summary().splitlines()[-1]
    with pytest.warns(RuntimeWarning, match="2 loss values were NaN or infinite") as said:
        train_epoch(train_data, loader)
    assert len(said) == 1
    for (x,) in loader:
        train_data.update(torch.full_like(x, torch.nan))
    train_data.set_epoch(0)  # said once: a second warning would fail this test


# -- the options ----------------------------------------------------------------------------------------------------


def kept_per_epoch(train_data: InfoBatch) -> list[int]:
    return train(train_data, loader_of(train_data))


def test_warmup_epochs_are_full() -> None:
    kept = kept_per_epoch(InfoBatch(numbers(), 6, warmup=3, delta=1.0))
    assert kept[:3] == [N] * 3
    assert all(count < N for count in kept[3:])


@pytest.mark.parametrize("explicit", [False, True])
def test_momentum_averages_scores(explicit: bool) -> None:
    train_data = InfoBatch(numbers(), 4, delta=1.0, momentum=0.25)
    expected = np.full(N, np.nan)
    for epoch in range(4):
        for (x,) in loader_of(train_data):
            step(train_data, x.long(), *([x.long()] if explicit else []))
        kept = train_data.plan.indices
        new = kept + epoch / 16
        expected[kept] = new if epoch == 0 else 0.25 * new + 0.75 * expected[kept]
        np.testing.assert_allclose(train_data.scores, expected, rtol=1e-6)


def test_strata_are_pruned_evenly() -> None:
    size = 40
    labels = np.arange(size) // 20  # the first class has all the low losses
    plain = InfoBatch(numbers(size), 3, delta=1.0)
    even = InfoBatch(numbers(size), 3, delta=1.0, strata=labels)
    for train_data in (plain, even):
        train_epoch(train_data, loader_of(train_data, batch_size=5))  # 30 samples are whole batches
        train_data.set_epoch(1)
    left_out = [np.bincount(labels[np.setdiff1d(np.arange(size), t.plan.indices)], minlength=2) for t in (plain, even)]
    assert left_out[0].tolist() == [10, 0]
    assert left_out[1].tolist() == [5, 5]


@pytest.mark.parametrize(
    ("method", "rescale", "rescaled"),
    [
        ("infobatch", None, True),
        ("infobatch", False, False),
        ("infobatch-quantile", None, True),
        ("infobatch-quantile", False, False),
        ("random", None, False),
        ("random", True, True),
    ],
)
def test_rescaling_can_be_switched(method: str, rescale: bool | None, rescaled: bool) -> None:
    train_data = InfoBatch(numbers(), 3, delta=1.0, method=method, rescale=rescale)
    train_epoch(train_data, loader_of(train_data))
    train_data.set_epoch(1)
    assert len(train_data.plan) < N
    assert train_data.plan.weights.sum() == pytest.approx(N if rescaled else len(train_data.plan))
    train_epoch(train_data, loader_of(train_data))


@pytest.mark.parametrize(
    ("method", "delta", "anneal", "full_from"),
    [
        ("infobatch", None, None, 7),
        ("infobatch", 0.5, None, 4),
        ("infobatch", 0.5, False, 8),
        ("random", None, None, 8),
        ("random", 0.5, None, 4),
        ("random", None, True, 7),
        ("random", 0.5, False, 8),
    ],
)
def test_annealing_can_be_switched(method: str, delta: float | None, anneal: bool | None, full_from: int) -> None:
    """A delta that is given is never passed over in silence."""
    kept = kept_per_epoch(InfoBatch(numbers(), 8, delta=delta, method=method, anneal=anneal))
    assert [count < N for count in kept] == [False] + [True] * (full_from - 1) + [False] * (8 - full_from)


def test_a_method_object() -> None:
    method = infobatch.methods.create("infobatch", ratio=0.25, condition="above")
    train_data = InfoBatch(numbers(), 3, delta=1.0, method=method)
    assert train_data.method is method
    train_epoch(train_data, loader_of(train_data, batch_size=1))
    train_data.set_epoch(1)
    left_out = np.setdiff1d(np.arange(N), train_data.plan.indices)
    assert len(left_out) == 2  # a quarter of the eleven above the mean
    assert left_out.min() > 11


def test_the_users_own_order() -> None:
    """A WeightedRandomSampler repeats samples: each entry is a draw, pruned ones are left out."""
    weights = torch.ones(N)
    weights[::2] = 4
    draws = torch.Generator().manual_seed(3)
    sampler = WeightedRandomSampler(weights, 60, generator=draws)
    twin = WeightedRandomSampler(weights, 60, generator=torch.Generator().manual_seed(3))
    train_data = InfoBatch(numbers(), 4, delta=1.0, order=sampler)
    loader = loader_of(train_data, batch_size=1)  # none is short, so that nothing is cut
    for epoch in range(4):
        seen = []
        for (x,) in loader:
            step(train_data, x.long())
            seen += x.long().tolist()
        wanted = list(twin)
        pruned = set(wanted) - set(train_data.plan.indices.tolist())
        assert bool(pruned) == (epoch > 0)
        assert seen == [index for index in wanted if index not in pruned]
        known = np.unique(seen)
        np.testing.assert_array_equal(train_data.scores[known], known + epoch / 16)
        assert train_data.stats.epochs[epoch].total == 60


@pytest.mark.parametrize("look", [False, True])
def test_momentum_follows_repeats_one_by_one(look: bool) -> None:
    """Repeats within an epoch average in the order they came, whether or not anyone reads the scores meanwhile."""
    order = [0, 1, 0, 2, 0, 1] * 3
    train_data = InfoBatch(numbers(3), 2, momentum=0.5, order=order)
    expected = np.full(3, np.nan)
    for number, (x,) in enumerate(loader_of(train_data, batch_size=1)):
        index = int(x)
        train_data.update(x + 10.0 * number)
        new = index + 10.0 * number
        expected[index] = new if np.isnan(expected[index]) else 0.5 * new + 0.5 * expected[index]
        if look:
            assert train_data.scores[index] == pytest.approx(expected[index])
    np.testing.assert_allclose(train_data.scores, expected, rtol=1e-6)


# -- statistics and a target saving ---------------------------------------------------------------------------------


def test_stats_and_summary_count_samples() -> None:
    train_data = InfoBatch(numbers(), 4)
    before = train_data.stats
    assert (before.seen, before.saved, before.epochs) == (0, 0, ())
    assert 0.1 < before.expected_saving < 0.5
    assert f"expected in all: {before.expected_saving:.1%}" in train_data.summary()
    kept = train(train_data, loader_of(train_data))
    stats = train_data.stats
    assert [e.epoch for e in stats.epochs] == [0, 1, 2, 3]
    assert [e.kept for e in stats.epochs] == [e.seen for e in stats.epochs] == kept
    assert [e.saved for e in stats.epochs] == [N - count for count in kept]
    assert (stats.seen, stats.saved, stats.full) == (sum(kept), 4 * N - sum(kept), 4 * N)
    assert stats.saving == stats.expected_saving == pytest.approx(stats.saved / stats.full)
    assert 0 < stats.seconds < 10
    text = train_data.summary()
    for epoch in stats.epochs:
        assert f"{epoch.epoch:>5} {epoch.seen:>12} {epoch.saved:>12}" in text
    assert f"saved {stats.saving:.1%} of full training (4 epochs of 23 samples)" in text
    assert "time spent in infobatch itself" in text


def two_blobs(size: int) -> TensorDataset:
    """A small problem with easy and hard samples."""
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(size) % 2
    x = torch.randn(size, 5, generator=rng) + 1.2 * (2.0 * y - 1)[:, None]
    return TensorDataset(x, y)


@pytest.mark.parametrize("saving", [0.2, 0.4])
@pytest.mark.parametrize("method", ["infobatch", "infobatch-quantile", "random"])
@pytest.mark.parametrize("num_epochs", [8, 15])
def test_a_target_saving_is_reached(method: str, saving: float, num_epochs: int) -> None:
    train_data = InfoBatch(two_blobs(600), num_epochs, method=method, saving=saving)
    assert train_data.stats.expected_saving == saving
    loader = loader_of(train_data, batch_size=50)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    criterion = nn.CrossEntropyLoss(reduction="none")
    for _ in range(num_epochs):
        for x, y in loader:
            loss = train_data.update(criterion(model(x), y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    stats = train_data.stats
    assert abs(stats.saving - saving) < 0.01
    assert stats.seen + stats.saved == stats.full
    accuracy = (model(train_data.tensors[0]).argmax(1) == train_data.tensors[1]).float().mean()
    assert accuracy > 0.95


# -- stopping and going on ------------------------------------------------------------------------------------------

EPOCHS = 5


def batches_of(train_data: InfoBatch, workers: int) -> Iterator[tuple[int, list[int], float]]:
    """(epoch, samples, mean) of every step until training ends."""
    loader = loader_of(train_data, workers)
    while True:
        for (x,) in loader:
            if train_data.epoch >= EPOCHS:
                return
            mean = step(train_data, x.long())
            yield train_data.epoch, x.long().tolist(), float(mean)


def through_a_file(state: dict[str, Any], path: Any) -> dict[str, Any]:
    torch.save(state, path)
    return torch.load(path, weights_only=True)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [0, 1, 6, 8, "epoch 1", "epoch 2"])
def test_going_on_gives_the_same_training(stop: int | str, workers: int, tmp_path: Any) -> None:
    """Stopped before the first step, in an epoch, or at its end (a full one has 6 steps)."""

    def make() -> InfoBatch:
        return InfoBatch(numbers(), EPOCHS, delta=0.8, momentum=0.7, seed=5)

    whole = make()
    reference = list(batches_of(whole, workers))
    if isinstance(stop, str):
        stop = sum(epoch <= int(stop[-1]) for epoch, *_ in reference)
    begun = make()
    training = batches_of(begun, workers)
    done = [next(training) for _ in range(stop)]
    state = through_a_file(begun.state_dict(), tmp_path / "state.pt")
    resumed = make()
    resumed.load_state_dict(state)
    assert resumed.progress == pytest.approx(begun.progress)
    np.testing.assert_array_equal(resumed.scores, begun.scores)
    done += list(batches_of(resumed, workers))
    assert done == reference
    np.testing.assert_array_equal(resumed.scores, whole.scores)
    assert resumed.stats.epochs[:EPOCHS] == whole.stats.epochs[:EPOCHS]


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_going_on_with_dropped_last_batches(stop: int) -> None:
    def make() -> tuple[InfoBatch, DataLoader]:
        train_data = InfoBatch(numbers(), 3, delta=1.0)
        return train_data, loader_of(train_data, drop_last=True)

    (whole, whole_loader), (begun, begun_loader), (resumed, resumed_loader) = make(), make(), make()
    train_epoch(whole, whole_loader, drop_last=True)
    train_epoch(begun, begun_loader, drop_last=True)
    for number, (x,) in enumerate(begun_loader, 1):
        step(begun, x.long())
        if number == stop:
            break
    resumed.load_state_dict(begun.state_dict())
    for (x,) in resumed_loader if resumed.epoch == 1 else ():
        step(resumed, x.long())
    train_epoch(whole, whole_loader, drop_last=True)
    np.testing.assert_array_equal(resumed.scores, whole.scores)
    assert resumed.progress == whole.progress
    assert train_epoch(resumed, resumed_loader, drop_last=True).epoch == 2


def test_taking_the_state_changes_nothing() -> None:
    quiet, noted = (InfoBatch(numbers(), 4, delta=1.0, momentum=0.5) for _ in range(2))
    for _ in range(4):
        train_epoch_plain(quiet, lambda: None)
        train_epoch_plain(noted, noted.state_dict)
        np.testing.assert_array_equal(noted.plan.indices, quiet.plan.indices)
        np.testing.assert_array_equal(noted.scores, quiet.scores)


def train_epoch_plain(train_data: InfoBatch, between: Callable[[], object]) -> None:
    for (x,) in loader_of(train_data):
        step(train_data, x.long())
        between()


def test_the_state_is_apart_from_what_goes_on() -> None:
    train_data = InfoBatch(numbers(), 3)
    train_epoch(train_data, loader_of(train_data))
    state = train_data.state_dict()
    kept = copy.deepcopy(state)
    train_epoch(train_data, loader_of(train_data))
    torch.testing.assert_close(state["scores"], kept["scores"])
    other = InfoBatch(numbers(), 3)
    other.load_state_dict(state)
    train_epoch(other, loader_of(other))
    torch.testing.assert_close(state["scores"], kept["scores"])


@pytest.mark.parametrize(
    "options",
    [
        {"method": "infobatch-quantile", "levels": [(0.5, 0.4)]},
        {"method": "random", "ratio": 0.3},
        {"method": "full"},
        {"strata": [f"class {i % 3}" for i in range(N)], "saving": 0.3},
        {"ratio": np.float64(0.3), "delta": np.float64(0.9), "momentum": np.float32(0.5)},
        {"seed": np.int64(3)},
        {"saving": np.float64(0.3)},
    ],
    ids=str,
)
def test_every_state_loads_with_weights_only(options: dict[str, Any], tmp_path: Any) -> None:
    train_data, other = (InfoBatch(numbers(), np.int64(4), **options) for _ in range(2))
    train_epoch(train_data, loader_of(train_data))
    train_data.sampler.set_epoch(np.int64(1))
    other.load_state_dict(through_a_file(train_data.state_dict(), tmp_path / "state.pt"))
    np.testing.assert_array_equal(other.plan.indices, train_data.plan.indices)
    np.testing.assert_array_equal(other.plan.weights, train_data.plan.weights)


def test_training_may_go_on_for_longer() -> None:
    train_data, longer = InfoBatch(numbers(), 3, delta=0.6), InfoBatch(numbers(), 30)
    kept = train(train_data, loader_of(train_data))
    assert kept[-1] == N
    longer.load_state_dict(train_data.state_dict())
    plan = train_epoch(longer, loader_of(longer))
    assert plan.epoch == 3
    assert len(plan) < N


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda: InfoBatch(numbers(N + 1), 3), r"size: 23 in the state, 24 here"),
        (
            lambda: InfoBatch(numbers(), 3, method="random"),
            r"method: 'infobatch' in the state, 'random' here",
        ),
        (lambda: InfoBatch(numbers(), 3, 0.3), r"options: .*0\.5.* in the state, .*0\.3.* here"),
        (lambda: InfoBatch(numbers(), 3, seed=1), r"seed: 0 in the state, 1 here"),
        (lambda: InfoBatch(numbers(), 3, momentum=0.5), r"momentum: 1\.0 in the state, 0\.5 here"),
    ],
)
def test_the_state_of_another_run_is_refused(other: Callable[[], InfoBatch], said: str) -> None:
    train_data, refusing = InfoBatch(numbers(), 3), other()
    train_epoch(train_data, loader_of(train_data))
    with pytest.raises(ValueError, match=rf"state_dict is from a different run and was not loaded .*{said}") as error:
        refusing.load_state_dict(train_data.state_dict())
    assert "Make the InfoBatch with the arguments of the saved run" in str(error.value)
    assert np.isnan(refusing.scores).all()
    assert train_epoch(refusing, loader_of(refusing)).epoch == 0


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda state: {**state, "version": 99},
            r"version 99, .* reads up to 3: .*newer release, so upgrade infobatch",
        ),
        (lambda state: {"model": state["scores"]}, r"not the state of an InfoBatch"),
        (lambda state: state["scores"], r"not the state of an InfoBatch"),
    ],
)
def test_what_is_no_state_of_ours_is_refused(spoil: Callable[[dict[str, Any]], Any], said: str) -> None:
    train_data = InfoBatch(numbers(), 3)
    train_epoch(train_data, loader_of(train_data))
    scores = train_data.scores.copy()
    with pytest.raises(ValueError, match=said):
        train_data.load_state_dict(spoil(train_data.state_dict()))
    np.testing.assert_array_equal(train_data.scores, scores)
    assert train_epoch(train_data, loader_of(train_data)).epoch == 1


SPAWNED = """
import multiprocessing, torch
from torch.utils.data import DataLoader, TensorDataset
from infobatch import InfoBatch

def train(train_data, results):
    for (x,) in DataLoader(train_data, batch_size=4, sampler=train_data.sampler):
        train_data.update(x + 1)
    results.put(train_data.scores.tolist())

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=train, args=(InfoBatch(TensorDataset(torch.arange(7.)), 3), results))
    process.start()
    process.join()
    assert process.exitcode == 0, process.exitcode
    print(results.get())
"""


def test_training_in_a_spawned_process(tmp_path: Any) -> None:
    """What torch.multiprocessing.spawn(train, args=(train_data, ...)) does."""
    script = tmp_path / "script.py"
    script.write_text(SPAWNED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([i + 1.0 for i in range(7)])


class RotatesByEpoch:
    """An own order of the kind that wants to be told the epoch."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter([(i + self.epoch) % 4 for i in range(4)])


def test_an_own_order_is_told_the_epoch() -> None:
    train_data = InfoBatch(numbers(4), 8, method="full", order=RotatesByEpoch())
    assert train_data.plan.indices.tolist() == [0, 1, 2, 3]
    train_data.set_epoch(3)
    assert train_data.plan.indices.tolist() == [3, 0, 1, 2]


@pytest.mark.parametrize("by_index", [False, True])
def test_repeats_in_one_batch_are_booked_one_after_the_other(by_index: bool) -> None:
    train_data = InfoBatch(numbers(2), 2, order=[0, 0, 1, 1], momentum=0.5, index_key="index")
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    for _, index in loader:
        train_data.update(torch.tensor([1.0, 3.0, 5.0, 9.0]), index if by_index else None)
    assert train_data.scores.tolist() == [2.0, 7.0]


def test_weights_of_samples_are_those_that_update_applies() -> None:
    train_data = InfoBatch(numbers(40), 4, index_key="index")
    train_data.update(torch.arange(40.0), torch.arange(40))
    train_data.set_epoch(1)
    index = torch.from_numpy(train_data.plan.indices.astype(np.int64))
    loss = torch.rand(len(index), dtype=torch.float64)
    weights = train_data.weights_of(index)
    assert weights.tolist() == train_data.plan.weights.tolist()
    assert float(train_data.update(loss, index)) == pytest.approx(float((weights * loss).mean()))
    left_out = np.setdiff1d(np.arange(40), train_data.plan.indices)
    assert train_data.weights_of(torch.from_numpy(left_out)).tolist() == [0] * len(left_out)
