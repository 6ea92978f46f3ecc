"""Which batch is in the user's hands: torch's private names, wrappers and other people's loaders."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard, DataLoaderShard, prepare_data_loader
from torch.utils.data import BatchSampler, DataLoader, Sampler, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torchdata.stateful_dataloader import StatefulDataLoader

from infobatch import DriftError, InfoBatch
from infobatch.core.delivery import Delivery, find_delivery

# torchdata 0.11 calls what torch 2.13 has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

N = 24
BATCH = 4
REMEDY = r"index_key=.*update\(loss, index\)"


def make(**options: Any) -> InfoBatch:
    """Sample i is (i,): what a batch holds tells which samples it is."""
    return InfoBatch(TensorDataset(torch.arange(float(N))), 3, delta=1.0, **options)


def train_by_position(train_data: InfoBatch, loader: Any) -> list[int]:
    seen: list[int] = []
    for (x,) in loader:
        train_data.update(x + 1000 * train_data.epoch)
        seen += x.long().tolist()
    return seen


def train_by_index(train_data: InfoBatch, loader: Any) -> list[int]:
    """One epoch with named samples; checks that the scores of exactly these were booked."""
    expected = train_data.scores.copy()
    seen: list[int] = []
    for x, index in loader:
        loss = x + 1000 * train_data.epoch
        train_data.update(loss, index)
        expected[index] = loss
        seen += index.tolist()
    np.testing.assert_array_equal(train_data.scores, expected)
    return seen


def assert_true(train_data: InfoBatch) -> None:
    """Every score is that of its own sample, from some epoch, or unknown."""
    known = ~np.isnan(train_data.scores)
    np.testing.assert_array_equal(train_data.scores[known] % 1000, np.arange(N)[known])


# -- torch's own loader ---------------------------------------------------------------------------------------------

OWN_LOADERS = pytest.mark.parametrize(
    ("kind", "workers"), [*itertools.product([DataLoader, StatefulDataLoader], [0, 2])]
)


@OWN_LOADERS
def test_the_private_names_are_where_we_look(kind: type[DataLoader], workers: int) -> None:
    """If this fails, torch or torchdata has moved what core/delivery.py asks: adapt it there."""
    loader = kind(range(5), batch_size=2, num_workers=workers)
    batches = iter(loader)
    assert isinstance(batches, _BaseDataLoaderIter)
    attributes = vars(batches)
    assert attributes["_index_sampler"] is loader.batch_sampler
    for delivered in range(3):
        assert attributes["_num_yielded"] == delivered
        next(batches)
    assert attributes["_num_yielded"] == 3
    assert next(batches, None) is None
    assert attributes["_num_yielded"] == 3
    if workers:
        assert attributes["_in_order"] is True
        unordered = iter(kind(range(5), num_workers=workers, in_order=False))
        assert vars(unordered)["_in_order"] is False
    del batches
    assert attributes["_num_yielded"] == 3  # the dict outlives the iterator


@OWN_LOADERS
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_delivery_of_a_loader_is_found(kind: type[DataLoader], workers: int, drop_last: bool) -> None:
    found: list[Delivery | None] = []

    class Looking(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            found.append(find_delivery(self))
            return iter(range(7))

        def __len__(self) -> int:
            return 7

    loader = kind(range(7), batch_size=3, sampler=Looking(), num_workers=workers, drop_last=drop_last)
    for number, _ in enumerate(loader, 1):
        delivery = found[-1]
        assert delivery is not None
        assert (delivery.batch_size, delivery.drop_last, delivery.delivered) == (3, drop_last, number)
        assert delivery.obstacle() is None


def test_without_a_loader_nothing_is_found() -> None:
    assert find_delivery(make().sampler) is None


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_stateful_loader_works_by_position(workers: int, persistent: bool) -> None:
    train_data = make()
    loader = StatefulDataLoader(
        train_data,
        batch_size=5,
        sampler=train_data.sampler,
        num_workers=workers,
        persistent_workers=persistent and workers > 0,
    )
    for epoch in range(3):
        assert train_by_position(train_data, loader) == train_data.plan.indices.tolist()
        assert train_data.epoch == epoch
        kept = train_data.plan.indices
        np.testing.assert_array_equal(train_data.scores[kept], kept + 1000 * epoch)
    assert len(train_data.plan) < N
    assert_true(train_data)


def test_a_stateful_loader_with_spawned_workers() -> None:
    train_data = make()
    loader = StatefulDataLoader(
        train_data, batch_size=5, sampler=train_data.sampler, num_workers=1, multiprocessing_context="spawn"
    )
    assert train_by_position(train_data, loader) == train_data.plan.indices.tolist()
    np.testing.assert_array_equal(train_data.scores, np.arange(N))


def test_a_stateful_loaders_workers_do_not_send_our_state() -> None:
    """They would send the whole score table with every batch."""
    train_data = make()
    loader = StatefulDataLoader(train_data, batch_size=5, sampler=train_data.sampler, num_workers=2)
    (x,) = next(iter(loader))
    assert len(x) == 5
    assert "scores" not in repr(loader.state_dict())


def test_a_stateful_loader_that_skips_is_noticed() -> None:
    train_data = make()
    loader = StatefulDataLoader(train_data, batch_size=5, sampler=train_data.sampler, num_workers=2)
    batches = iter(loader)
    next(batches)
    with pytest.raises(DriftError, match="delivered 2 batches"):
        train_data.update(next(batches)[0])


# -- out of order ---------------------------------------------------------------------------------------------------


def test_delivery_out_of_order_raises_at_once() -> None:
    train_data = make()
    loader = DataLoader(train_data, batch_size=BATCH, sampler=train_data.sampler, num_workers=2, in_order=False)
    with pytest.raises(DriftError, match=rf"in_order=False.*{REMEDY}"):
        train_by_position(train_data, loader)
    assert np.isnan(train_data.scores).all()


def test_delivery_out_of_order_is_no_obstacle_where_there_is_an_index() -> None:
    train_data = make(index_key="index")
    loader = DataLoader(train_data, batch_size=BATCH, sampler=train_data.sampler, num_workers=2, in_order=False)
    for epoch in range(3):
        assert sorted(train_by_index(train_data, loader)) == sorted(train_data.plan.indices.tolist())
        assert train_data.epoch == epoch


# -- wrappers that re-shard, regroup and drop -----------------------------------------------------------------------


class EveryOther(Sampler[int]):
    """A sampler wrapper of the re-sharding kind; named as such wrappers usually are."""

    def __init__(self, sampler: Sampler[int]) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[int]:
        return itertools.islice(iter(self.sampler), 0, None, 2)

    def __len__(self) -> int:
        return len(self.sampler) // 2


class DropsBatches(BatchSampler):
    """Leaves every other batch out; a BatchSampler by birth, with our sampler inside."""

    def __iter__(self) -> Iterator[list[int]]:
        return itertools.islice(super().__iter__(), 0, None, 2)


class Reorders(BatchSampler):
    """Whole batches, last one first."""

    def __iter__(self) -> Iterator[list[int]]:
        return reversed(list(super().__iter__()))


class SortsWithin(BatchSampler):
    """The batches as they are, their samples sorted: every count is right and every position wrong."""

    def __iter__(self) -> Iterator[list[int]]:
        return map(sorted, super().__iter__())


class Halves(BatchSampler):
    """This process's half of every batch."""

    def __iter__(self) -> Iterator[list[int]]:
        return (batch[: (len(batch) + 1) // 2] for batch in super().__iter__())


class LooseHalves:
    """The same without an ancestor, with the attributes loaders look at."""

    def __init__(self, sampler: Sampler[int], batch_size: int, drop_last: bool) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size // 2, drop_last
        self.inner = BatchSampler(sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch[: (len(batch) + 1) // 2] for batch in self.inner)


def with_batch_sampler(kind: Callable[..., Any]) -> Callable[..., DataLoader]:
    def loader(train_data: InfoBatch, workers: int) -> DataLoader:
        return DataLoader(train_data, batch_sampler=kind(train_data.sampler, BATCH, False), num_workers=workers)

    return loader


def with_sampler_wrapper(train_data: InfoBatch, workers: int) -> DataLoader:
    return DataLoader(train_data, batch_size=BATCH, sampler=EveryOther(train_data.sampler), num_workers=workers)


def with_unbatched_wrapper(train_data: InfoBatch, workers: int) -> DataLoader:
    """One sample at a time, given a batch dimension as models need it."""
    return DataLoader(
        train_data,
        batch_size=None,
        sampler=EveryOther(train_data.sampler),
        num_workers=workers,
        collate_fn=with_batch_dimension,
    )


def with_batch_dimension(sample: Iterable[Any]) -> list[torch.Tensor]:
    return [torch.as_tensor(part).reshape(1) for part in sample]


def sharded(split_batches: bool, process_index: int = 0) -> Callable[..., DataLoader]:
    def loader(train_data: InfoBatch, workers: int) -> DataLoader:
        inner = BatchSampler(train_data.sampler, BATCH, False)
        shard = BatchSamplerShard(inner, 2, process_index, split_batches=split_batches)
        return DataLoader(train_data, batch_sampler=shard, num_workers=workers)

    return loader


def prepared(process_index: int) -> Callable[..., DataLoader]:
    def loader(train_data: InfoBatch, workers: int) -> DataLoader:
        plain = DataLoader(train_data, batch_size=BATCH, sampler=train_data.sampler, num_workers=workers)
        return prepare_data_loader(plain, num_processes=2, process_index=process_index)

    return loader


WRAPPERS = {
    "sampler wrapper": with_sampler_wrapper,
    "sampler wrapper, no batches": with_unbatched_wrapper,
    "drops batches": with_batch_sampler(DropsBatches),
    "reorders batches": with_batch_sampler(Reorders),
    "sorts within batches": with_batch_sampler(SortsWithin),
    "half batches": with_batch_sampler(Halves),
    "half batches, no ancestor": with_batch_sampler(LooseHalves),
    "BatchSamplerShard 0 of 2": sharded(False),
    "BatchSamplerShard 1 of 2": sharded(False, 1),
    "BatchSamplerShard 1 of 2, split": sharded(True, 1),
    "prepare_data_loader 0 of 2": prepared(0),
    "prepare_data_loader 1 of 2": prepared(1),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_what_regroups_or_re_shards_is_noticed_at_the_first_step(wrapper: str, workers: int) -> None:
    train_data = make()
    with pytest.raises(DriftError, match=REMEDY):
        train_by_position(train_data, WRAPPERS[wrapper](train_data, workers))
    assert np.isnan(train_data.scores).all()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_what_regroups_is_no_obstacle_where_there_is_an_index_and_what_drops_is_told_of(
    wrapper: str, workers: int
) -> None:
    train_data = make(index_key="index")
    loader = WRAPPERS[wrapper](train_data, workers)
    for epoch in range(3):
        seen = train_by_index(train_data, loader)
        assert train_data.epoch == epoch
        assert seen
        assert set(seen) <= set(train_data.plan.indices.tolist())
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            train_data.set_epoch(epoch + 1)
        told = [str(w.message) for w in said]
        kept = train_data.stats.epochs[epoch].kept
        back = len(set(seen))
        assert len(told) == (back < kept)
        assert all(f"{kept} samples were handed out for this epoch, but only {back} came back" in t for t in told)


@pytest.mark.parametrize("wrapper", ["prepare_data_loader", "BatchSamplerShard"])
def test_two_shards_of_the_first_epoch_are_the_whole(wrapper: str) -> None:
    seen = []
    for process in range(2):
        train_data = make(index_key="index")
        seen += train_by_index(train_data, WRAPPERS[f"{wrapper} {process} of 2"](train_data, 0))
    assert sorted(seen) == list(range(N))


# -- Accelerate fetches one batch ahead -----------------------------------------------------------------------------


def accelerated(train_data: InfoBatch, workers: int) -> DataLoader:
    loader = DataLoader(train_data, batch_size=BATCH, sampler=train_data.sampler, num_workers=workers)
    return Accelerator(cpu=True).prepare(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_fetches_ahead_is_noticed_at_the_first_step(workers: int) -> None:
    train_data = make()
    loader = accelerated(train_data, workers)
    assert isinstance(loader, DataLoaderShard)
    with pytest.raises(DriftError, match=rf"delivered 2 batches.*fetches ahead.*{REMEDY}"):
        train_by_position(train_data, loader)
    assert np.isnan(train_data.scores).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_fetches_ahead_is_no_obstacle_where_there_is_an_index(workers: int) -> None:
    train_data = make(index_key="index")
    loader = accelerated(train_data, workers)
    for epoch in range(3):
        assert train_by_index(train_data, loader) == train_data.plan.indices.tolist()
        assert train_data.epoch == epoch
    assert len(train_data.plan) < N
