"""Never the wrong sample: what a user can do to update(), and what is booked then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from infobatch import DriftError, InfoBatch

N = 22  # batches of 4, 4, 4, 4, 4, 2
BATCH = 4
LAST = 5  # the number of the last batch in a full epoch
REMEDY = r"exactly once for every batch.*index_key=.*update\(loss, index\)"

WORKERS = pytest.mark.parametrize(
    "loading",
    [
        pytest.param({}, id="0"),
        pytest.param({"num_workers": 2}, id="2"),
        pytest.param({"num_workers": 2, "persistent_workers": True}, id="2-persistent"),
    ],
)


class Flaky(Dataset):
    """Sample i is (i,), but one of them cannot be read."""

    def __init__(self, broken: int) -> None:
        self.broken = broken

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[float]:
        if index == self.broken:
            raise OSError(f"sample {index} cannot be read")
        return (float(index),)


def numbers() -> TensorDataset:
    """Sample i is (i,): what a batch holds tells which samples it is."""
    return TensorDataset(torch.arange(float(N)))


def make(num_epochs: int = 4, data: Any = None, loading: dict[str, Any] | None = None, **options: Any) -> Any:
    """An InfoBatch over numbers, and its loader."""
    train_data = InfoBatch(data or numbers(), num_epochs, delta=1.0, **options)
    loader = DataLoader(train_data, batch_size=BATCH, sampler=train_data.sampler, **(loading or {}))
    return train_data, loader


def loss_of(train_data: InfoBatch, batch: Any) -> torch.Tensor:
    return batch[0] + 1000 * train_data.epoch


def train_epoch(train_data: InfoBatch, loader: Any) -> None:
    for batch in loader:
        train_data.update(loss_of(train_data, batch))


def assert_true(train_data: InfoBatch) -> None:
    """Every score is that of its own sample, from some epoch, or unknown."""
    known = ~np.isnan(train_data.scores)
    np.testing.assert_array_equal(train_data.scores[known] % 1000, np.arange(N)[known])


def assert_epoch_still_works(train_data: InfoBatch, loader: Any) -> None:
    """After an error the next epoch is trained and booked as ever."""
    train_data.set_epoch(train_data.epoch + 1)
    train_epoch(train_data, loader)
    kept = train_data.plan.indices
    np.testing.assert_array_equal(train_data.scores[kept], kept + 1000 * train_data.epoch)
    assert_true(train_data)


# -- updates skipped and doubled ------------------------------------------------------------------------------------


@WORKERS
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("skipped", [0, 2])
def test_a_skipped_update_raises_at_the_next(skipped: int, epoch: int, loading: dict[str, Any]) -> None:
    train_data, loader = make(loading=loading)
    for _ in range(epoch):
        train_epoch(train_data, loader)
    reached = -1

    def train() -> None:
        nonlocal reached
        for reached, batch in enumerate(loader):
            if reached != skipped:
                train_data.update(loss_of(train_data, batch))

    with pytest.raises(DriftError, match=rf"delivered {skipped + 2} batches.* skipped.*{REMEDY}"):
        train()
    assert reached == skipped + 1
    assert_true(train_data)
    assert_epoch_still_works(train_data, loader)


@WORKERS
@pytest.mark.parametrize("first_skipped", [LAST, LAST - 1])
@pytest.mark.parametrize("how", ["iter", "set_epoch"])
def test_skipped_last_updates_raise_at_the_epochs_end_unless_set_epoch_settles_it(
    how: str, first_skipped: int, loading: dict[str, Any]
) -> None:
    train_data, loader = make(loading=loading)
    for number, batch in enumerate(loader):
        if number < first_skipped:
            train_data.update(loss_of(train_data, batch))
    booked = train_data.plan.indices[: first_skipped * BATCH]
    if how == "iter":
        with pytest.raises(DriftError, match=rf"6 batches were all delivered, .*called for {first_skipped}.*{REMEDY}"):
            next(iter(loader))
    else:
        train_data.set_epoch(1)
    expected = np.full(N, np.nan)
    expected[booked] = booked
    np.testing.assert_array_equal(train_data.scores, expected)
    assert_epoch_still_works(train_data, loader)


@WORKERS
@pytest.mark.parametrize("doubled", [0, 2, LAST])
def test_a_doubled_update_raises_at_once(doubled: int, loading: dict[str, Any]) -> None:
    train_data, loader = make(loading=loading)
    for number, batch in enumerate(loader):
        train_data.update(loss_of(train_data, batch))
        if number == doubled:
            with pytest.raises(DriftError, match=rf"called again.*delivered only {number + 1} batches.*{REMEDY}"):
                train_data.update(loss_of(train_data, batch) + 0.5)
    np.testing.assert_array_equal(train_data.scores, np.arange(N))  # the good updates were booked, the bad one not
    assert_epoch_still_works(train_data, loader)


@WORKERS
def test_an_update_for_a_batch_held_back_raises(loading: dict[str, Any]) -> None:
    """Two batches fetched, then updated one after the other: not even the right order helps."""
    train_data, loader = make(loading=loading)
    batches = iter(loader)
    held = next(batches)
    next(batches)
    with pytest.raises(DriftError, match="delivered 2 batches"):
        train_data.update(loss_of(train_data, held))
    assert np.isnan(train_data.scores).all()


# -- the wrong loader, the wrong pass -------------------------------------------------------------------------------


def test_update_before_any_pass() -> None:
    train_data, _ = make()
    other = DataLoader(train_data, batch_size=BATCH, shuffle=True)
    with pytest.raises(DriftError, match=r"before .*handed out.*DataLoader\(train_data, sampler=train_data\.sampler"):
        train_data.update(loss_of(train_data, next(iter(other))))
    assert np.isnan(train_data.scores).all()


@WORKERS
def test_update_with_a_batch_of_another_loader(loading: dict[str, Any]) -> None:
    train_data, loader = make(loading=loading)
    other = DataLoader(train_data, batch_size=BATCH, shuffle=True)
    for batch in loader:
        train_data.update(loss_of(train_data, batch))
        with pytest.raises(DriftError, match=REMEDY):
            train_data.update(next(iter(other))[0])
    with pytest.raises(DriftError, match=REMEDY):
        train_data.update(next(iter(other))[0])
    np.testing.assert_array_equal(train_data.scores, np.arange(N))


@WORKERS
@pytest.mark.parametrize("peeked", [1, 2])
def test_a_peek_in_mid_epoch_never_shifts_the_books(peeked: int, loading: dict[str, Any]) -> None:
    """iter() begins another pass; the loop that goes on afterwards is of the old one."""
    train_data, loader = make(loading=loading)
    train_epoch(train_data, loader)

    def train() -> None:
        for number, batch in enumerate(loader):
            train_data.update(loss_of(train_data, batch))
            if number == 0:
                peek = iter(loader)
                for _ in range(peeked):
                    next(peek)

    with pytest.raises(DriftError, match=REMEDY):
        train()
    assert_true(train_data)
    assert_epoch_still_works(train_data, loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_taken_up_again_after_another_never_shifts_the_books(workers: int) -> None:
    """Both passes are of the same plan, but only one of them can be the one that is trained on."""
    train_data, loader = make(loading={"num_workers": workers})
    older, newer = iter(loader), iter(loader)
    next(older)
    next(newer)
    with pytest.raises(DriftError, match=REMEDY):  # noqa: PT012 (at this step or at the next one)
        train_data.update(loss_of(train_data, next(older)))
        train_data.update(loss_of(train_data, next(older)))
    assert_true(train_data)


@pytest.mark.parametrize("change", ["set_epoch", "load_state_dict"])
def test_a_pass_from_before_a_change_of_epoch_raises(change: str) -> None:
    train_data, loader = make()
    batches = iter(loader)
    train_data.update(loss_of(train_data, next(batches)))
    if change == "set_epoch":
        train_data.set_epoch(2)
    else:
        train_data.load_state_dict(train_data.state_dict())
    with pytest.raises(DriftError, match=r"sampler=train_data\.sampler|index_key"):
        train_data.update(loss_of(train_data, next(batches)))
    assert_true(train_data)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_could_not_be_read_never_shifts_the_books(workers: int) -> None:
    """Users step over broken files; the loader does not count the batch, but its samples are gone."""
    train_data, _ = make()
    broken = int(train_data.plan.indices[5])
    train_data, loader = make(data=Flaky(broken), loading={"num_workers": workers})
    batches = iter(loader)

    def train() -> None:
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except OSError:
                continue
            train_data.update(loss_of(train_data, batch))

    with pytest.raises(DriftError, match=REMEDY):
        train()
    assert_true(train_data)
    list(batches)  # to the end, so that the workers leave


@pytest.mark.parametrize("count", [0, 1, 3, 5, 8])
def test_a_loss_of_the_wrong_length(count: int) -> None:
    train_data, loader = make()
    for batch in loader:
        expected = len(batch[0])
        if count != expected:
            with pytest.raises(
                ValueError, match=rf"one value per sample.*got {count}, but the batch has {expected} samples"
            ):
                train_data.update(torch.zeros(count))
        train_data.update(loss_of(train_data, batch))
    np.testing.assert_array_equal(train_data.scores, np.arange(N))


def test_a_sampler_iterated_by_hand_counts_what_it_handed_out() -> None:
    train_data, _ = make()
    indices = iter(train_data.sampler)
    batch = torch.tensor([next(indices) for _ in range(3)])
    with pytest.raises(DriftError, match=rf"got 2 losses, but 3 samples were handed out.*{REMEDY}"):
        train_data.update(batch[:2].float())
    train_data.update(batch.float())
    with pytest.raises(DriftError, match=rf"got 3 losses, but 0 samples were handed out.*{REMEDY}"):
        train_data.update(batch.float())
    np.testing.assert_array_equal(train_data.scores[batch], batch)
    assert np.isnan(train_data.scores).sum() == N - 3


# -- an explicit index ----------------------------------------------------------------------------------------------


def all_but(*skipped: int) -> Callable[[Any], Iterator[Any]]:
    return lambda loader: (batch for number, batch in enumerate(loader) if number not in skipped)


def twice(loader: Any) -> Iterator[Any]:
    for batch in loader:
        yield batch
        yield batch


def one_ahead(loader: Any) -> Iterator[Any]:
    batches = iter(loader)
    held = next(batches)
    for batch in batches:
        yield held
        held = batch
    yield held


def halves(loader: Any) -> Iterator[Any]:
    for batch in loader:
        yield from zip(*(part.chunk(2) for part in batch), strict=True)


def backwards(loader: Any) -> Iterator[Any]:
    yield from reversed(list(loader))


@WORKERS
@pytest.mark.parametrize(
    "consume",
    [
        pytest.param(all_but(0), id="first skipped"),
        pytest.param(all_but(2), id="middle skipped"),
        pytest.param(all_but(LAST), id="last skipped"),
        pytest.param(all_but(LAST - 1, LAST), id="last two skipped"),
        twice,
        one_ahead,
        halves,
        backwards,
    ],
)
def test_an_explicit_index_needs_no_position(consume: Callable[[Any], Iterator[Any]], loading: dict[str, Any]) -> None:
    train_data, loader = make(num_epochs=3, loading=loading, index_key="index")
    for epoch in range(3):
        expected = train_data.scores.copy()
        for x, index in consume(loader):
            weight = dict(zip(train_data.plan.indices.tolist(), train_data.plan.weights.tolist(), strict=True))
            loss = x + 1000 * train_data.epoch
            mean = train_data.update(loss, index)
            weights = torch.tensor([weight[i] for i in index.tolist()])
            torch.testing.assert_close(mean, (weights * loss).sum() / len(loss))
            expected[index] = loss
        assert train_data.epoch == epoch
        np.testing.assert_array_equal(train_data.scores, expected)
    train_data.set_epoch(0)  # and the last epoch's end has nothing to complain of


@pytest.mark.parametrize("explicit", [{1}, {0, 3}, {0, 1, 2, 3, 4}])
def test_batches_named_and_batches_known_by_position_mix(explicit: set[int]) -> None:
    train_data, loader = make()
    for _ in range(3):
        expected = train_data.scores.copy()
        for number, (x,) in enumerate(loader):
            weights = dict(zip(train_data.plan.indices.tolist(), train_data.plan.weights.tolist(), strict=True))
            loss = x + 1000 * train_data.epoch
            mean = train_data.update(loss, x.long() if number in explicit else None)
            weight = torch.tensor([weights[i] for i in x.long().tolist()])
            torch.testing.assert_close(mean, (weight * loss).sum() / len(x))
            expected[x.long()] = loss
        np.testing.assert_array_equal(train_data.scores, expected)


def test_a_sample_that_was_pruned_cannot_be_named() -> None:
    train_data, loader = make(index_key="index")
    train_epoch(train_data, loader)
    batches = iter(loader)
    x, index = next(batches)
    pruned = int(np.setdiff1d(np.arange(N), train_data.plan.indices)[0])
    stray = index.clone()
    stray[1] = pruned
    before = train_data.scores.copy()
    with pytest.raises(DriftError, match=rf"sample {pruned} is not in this epoch's plan \(it was pruned\).*another"):
        train_data.update(x + 1000, stray)
    np.testing.assert_array_equal(train_data.scores, before)
    train_data.update(x + 1000, index)
    np.testing.assert_array_equal(train_data.scores[index], index + 1000.0)


def test_a_named_batch_of_an_older_epoch_is_told_by_its_pruned_samples() -> None:
    train_data, loader = make(index_key="index")
    train_epoch(train_data, loader)
    before = train_data.scores.copy()
    everything = torch.arange(N)
    train_data.set_epoch(1)
    with pytest.raises(DriftError, match="from another epoch"):
        train_data.update(everything + 1000.0, everything)
    np.testing.assert_array_equal(train_data.scores, before)


def test_an_explicit_step_compiles_without_a_break() -> None:
    train_data, loader = make(index_key="index")

    @torch.compile(fullgraph=True, backend="eager")
    def step(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return train_data.update(x + 1000 * train_data.epoch, index)

    for _ in range(2):
        for x, index in loader:
            weights = dict(zip(train_data.plan.indices.tolist(), train_data.plan.weights.tolist(), strict=True))
            weight = torch.tensor([weights[i] for i in index.tolist()])
            torch.testing.assert_close(step(x, index), (weight * (x + 1000 * train_data.epoch)).sum() / len(x))
    kept = train_data.plan.indices
    assert train_data.epoch == 1
    np.testing.assert_array_equal(train_data.scores[kept], kept + 1000.0)
    assert_true(train_data)


def test_compiled_steps_on_pruned_samples_raise_at_the_epochs_end() -> None:
    train_data, loader = make(index_key="index")
    train_epoch(train_data, loader)
    train_data.set_epoch(1)
    step = torch.compile(train_data.update, fullgraph=True, backend="eager")
    everything = torch.arange(N)
    step(everything + 1000.0, everything)
    strays = N - len(train_data.plan)
    with pytest.raises(DriftError, match=f"{strays} losses .* outside its plan"):
        train_data.set_epoch(2)
