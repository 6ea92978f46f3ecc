"""Books that cannot lie: what users really do to a training loop, and what is counted, booked and resumed then.

`td` is an InfoBatch over numbers, so that a loss names its sample.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, random_split

import infobatch
from infobatch import DriftError, InfoBatch, paced

BATCH = 4


def numbers(size: int) -> TensorDataset:
    return TensorDataset(torch.arange(float(size)))


def make(
    size: int = 20, num_epochs: int = 4, *, workers: int = 0, loading: dict[str, Any] | None = None, **options: Any
):
    td = InfoBatch(numbers(size), num_epochs, **{"delta": 1.0, **options})
    loader = DataLoader(td, batch_size=BATCH, sampler=td.sampler, num_workers=workers, **(loading or {}))
    return td, loader


def resumed_from(td: InfoBatch, size: int = 20, **options: Any) -> tuple[InfoBatch, Any]:
    twin, loader = make(size, td.num_epochs, **options)
    twin.load_state_dict(td.state_dict())
    return twin, loader


def rest_of_epoch(td: InfoBatch, loader: Any) -> list[int]:
    """The samples that the loader still delivers of the current epoch."""
    epoch, seen = td.epoch, []
    for x, index in loader:
        if td.epoch != epoch:
            break
        seen += index.tolist()
        td.update(x, index)
    return seen


# -- row 1: the state in a signal handler ---------------------------------------------------------------------------


class Slow(Dataset[tuple[float]]):
    """Sample i is (i,) and takes a while to read."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[float]:
        time.sleep(0.002)
        return (float(index),)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_is_real_in_a_signal_handler_while_the_loader_fetches(workers: int) -> None:
    td = InfoBatch(Slow(), 3)
    loader = DataLoader(td, batch_size=BATCH, sampler=td.sampler, num_workers=workers)
    states: list[dict[str, Any]] = []
    copies: list[InfoBatch] = []

    def handler(*_: object) -> None:
        states.append(td.state_dict())
        copies.append(pickle.loads(pickle.dumps(td)))
        copies.append(copy.deepcopy(td))
        signal.setitimer(signal.ITIMER_REAL, 0.003)  # the next one, when this one is done

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.003)
    try:
        for (x,) in loader:
            td.update(x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert states
    for state in states:
        twin = InfoBatch(Slow(), 3)
        twin.load_state_dict(state)
        assert state["done"] in range(0, 21, BATCH)
    assert all(twin.stats.size == 20 for twin in copies)


# -- rows 2, 3, 4: by index, counted by plan entry ------------------------------------------------------------------


@pytest.mark.parametrize("how", ["two views in one update", "two updates"])
@pytest.mark.parametrize("done", [1, 3, 5])
def test_two_losses_for_a_batch_are_one_batch(how: str, done: int) -> None:
    td, loader = make(index_key="index")
    seen = []
    for number, (x, index) in enumerate(loader, 1):
        if how == "two updates":
            assert float(td.update(x, index)) == pytest.approx(float(x.mean()))
            td.update(x + 0.5, index)
        else:
            mean = td.update(torch.cat([x, x + 0.5]), torch.cat([index, index]))
            assert float(mean) == pytest.approx(float(x.mean()) + 0.25)
        seen += index.tolist()
        assert (td.position, td.batches_done) == ((number * BATCH, 20), number)
        if number == done:
            break
    state = td.state_dict()
    assert (state["done"], state["complete"]) == (done * BATCH, done == 5)
    twin, loader = resumed_from(td, index_key="index")
    assert seen + (rest_of_epoch(twin, loader) if done < 5 else []) == td.plan.indices.tolist()
    assert td.scores[seen].tolist() == [i + 0.5 for i in seen]


def test_paced_learns_the_steps_of_a_loop_with_two_updates_a_batch() -> None:
    td, loader = make(num_epochs=3, index_key="index", delta=0.9)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = paced(lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 15), td)
    rates = []
    for epoch in range(3):
        td.set_epoch(epoch)
        for x, index in loader:
            td.update(x, index)
            td.update(x, index)
            optimizer.step()
            scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    assert rates == pytest.approx([1 - 5 / 15, 1 - 10 / 15, 0])


@pytest.mark.parametrize("stop", [1, 2, 4, 5])
@pytest.mark.parametrize("prefetch", [False, True])
def test_filtered_batches_are_not_delivered_again(stop: int, prefetch: bool) -> None:
    td, loader = make(index_key="index")
    seen: list[int] = []
    for number, (x, index) in enumerate(one_ahead(loader) if prefetch else loader, 1):
        keep = index % 3 != 0
        keep[0] = True
        td.update(x[keep], index[keep])
        seen += index.tolist()
        if number == stop:
            break
    twin, loader = resumed_from(td, index_key="index")
    assert twin.epoch == (stop == 5)
    if stop < 5:
        seen += rest_of_epoch(twin, loader)
    assert Counter(seen) == Counter(range(20))


def test_batches_that_were_skipped_whole_end_with_the_epoch() -> None:
    td, loader = make(index_key="index")
    for number, (x, index) in enumerate(loader):
        if number != 2:
            td.update(x, index)
    assert resumed_from(td, index_key="index")[0].epoch == 1


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_out_of_order_delivery_resumes_with_what_is_left(stop: int) -> None:
    for seed in range(5):
        td, _ = make(index_key="index", seed=seed)
        order = np.random.default_rng(seed).permutation(5)
        loader = DataLoader(td, sampler=td.sampler, batch_size=BATCH, num_workers=2, in_order=False)
        batches = [list(batch) for batch in loader]  # as they happened to be ready, and then in any order
        seen = []
        for number in order[:stop]:
            x, index = batches[number]
            td.update(x, index)
            seen += index.tolist()
        del loader
        twin, loader = resumed_from(td, index_key="index", seed=seed)
        assert twin.epoch == 0
        seen += rest_of_epoch(twin, loader)
        assert Counter(seen) == Counter(range(20))
        np.testing.assert_array_equal(twin.scores[seen], seen)


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_a_loop_over_an_unordered_loader_resumes_with_what_is_left(stop: int) -> None:
    td, _ = make(index_key="index")
    loader = DataLoader(td, sampler=td.sampler, batch_size=BATCH, num_workers=2, in_order=False)
    seen = []
    for number, (x, index) in enumerate(loader, 1):
        td.update(x, index)
        seen += index.tolist()
        if number == stop:
            state = td.state_dict()
            break
    twin, loader = make(index_key="index")
    twin.load_state_dict(state)
    assert Counter(seen + rest_of_epoch(twin, loader)) == Counter(range(20))


# -- rows 5, 6: the loader that is not ours -------------------------------------------------------------------------

OTHERS = {
    "subset of it": lambda td: Subset(td, list(range(19, -1, -1))),
    "concatenated": lambda td: ConcatDataset([numbers(7), td]),
    "another data set": lambda td: numbers(20),
    "random_split": lambda td: random_split(td, [0.5, 0.5])[0],
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("index_key", [None, "index"])
def test_a_loader_over_another_data_set_is_refused_at_the_first_batch(other: str, workers: int, index_key: Any) -> None:
    td, _ = make(index_key=index_key)
    loader = DataLoader(OTHERS[other](td), batch_size=BATCH, sampler=td.sampler, num_workers=workers)
    with pytest.raises(DriftError, match=r"reads a \w+, whose samples have other indices.*InfoBatch\(Subset\(data"):
        next(iter(loader))
    assert np.isnan(td.scores).all()


def test_the_wrapped_data_itself_may_be_read() -> None:
    td, _ = make()
    for (x,) in DataLoader(td.dataset, batch_size=BATCH, sampler=td.sampler):
        td.update(x)
    np.testing.assert_array_equal(td.scores, np.arange(20))


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_forgotten_sampler_is_said_at_the_first_epochs_end(drop_last: bool) -> None:
    td = InfoBatch(numbers(22), 4, index_key="index")
    loader = DataLoader(td, batch_size=BATCH, shuffle=True, drop_last=drop_last)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number, (x, index) in enumerate(loader):
            td.update(x, index)
            assert not said or number >= 4
        assert len(said) == 1
        for x, index in loader:
            td.update(x, index)
    assert len(said) == 1
    assert "train_data.sampler has handed out none" in str(said[0].message)
    assert "sampler=train_data.sampler" in str(said[0].message)


def test_scores_booked_by_hand_and_own_loops_are_no_forgotten_sampler() -> None:
    by_hand = InfoBatch(numbers(20), 4)
    by_hand.update(torch.arange(20.0), torch.arange(20))
    own = InfoBatch(numbers(20), 4)
    for epoch in range(4):
        own.set_epoch(epoch)
        for index in torch.from_numpy(own.plan.indices.astype(np.int64)).split(5):
            own.update(index.float(), index)
    assert own.stats.saved > 0


# -- row 7: batches that come back late -----------------------------------------------------------------------------


def one_ahead(loader: Any) -> Iterator[Any]:
    batches = iter(loader)
    held = next(batches)
    for batch in batches:
        yield held
        held = batch
    yield held


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_late_batch_has_its_own_epochs_weights(workers: int, ahead: int) -> None:
    for seed in range(24 if not workers else 3):
        td, loader = make(22, num_epochs=8, seed=seed, index_key="index", workers=workers)
        batches: Iterator[Any] = endless(loader)
        plans, held, returned = {}, [], []
        for _ in range(ahead):
            held.append((*next(batches), td.epoch))
        while td.epoch < 7:
            held.append((*next(batches), td.epoch))
            plans[td.epoch] = td.plan
            x, index, epoch = held.pop(0)
            weights = np.array(plans.get(epoch, td.plan).by_sample.of(index.numpy()))
            loss = 1 + torch.sin(x + epoch)
            try:
                mean = td.update(loss, index)
            except DriftError as error:
                assert "call train_data.set_epoch(epoch) between epochs" in str(error)  # noqa: PT017 (or no error)
                break
            assert float(mean) == pytest.approx(float((loss * torch.from_numpy(weights)).mean()))
            returned.append((epoch, index.tolist()))
            np.testing.assert_allclose(td.scores[index], loss, rtol=1e-6)
        for epoch in range(1, td.epoch - 1):
            seen = [i for e, batch in returned if e == epoch for i in batch]
            assert Counter(seen) == Counter(plans[epoch].indices.tolist())
        assert [e.seen for e in td.stats.epochs[1:-2]] == [e.kept for e in td.stats.epochs[1:-2]]


# -- row 8: torch.compile around an update by position --------------------------------------------------------------


def test_compiled_around_an_update_by_position() -> None:
    td, loader = make()
    compiled = torch.compile(lambda x: 2 * td.update(x + 1), backend="eager")
    for _ in range(3):
        for (x,) in loader:
            weight = torch.from_numpy(np.array(td.plan.by_sample.of(x.long().numpy())))
            assert float(compiled(x)) == pytest.approx(2 * float(((x + 1) * weight).mean()), rel=1e-6)
    np.testing.assert_array_equal(td.scores, np.arange(20) + 1.0)
    torch._dynamo.reset()


def test_compiled_as_one_graph_says_what_to_do() -> None:
    td, loader = make()
    compiled = torch.compile(lambda x: td.update(x), backend="eager", fullgraph=True)
    told = "reason" in inspect.signature(torch.compiler.disable).parameters  # torch 2.6 raises with its own words alone
    with pytest.raises(Exception, match=r"name the samples: InfoBatch\(\.\.\., index_key" if told else "Run.update"):
        compiled(next(iter(loader))[0])
    torch._dynamo.reset()


# -- row 11: persistent workers -------------------------------------------------------------------------------------


def test_persistent_workers_leave_nothing_behind() -> None:
    td, loader = make(8, 60, workers=1, loading={"persistent_workers": True})
    for _ in range(60):
        for (x,) in loader:
            td.update(x)
        assert len(td._run.position._older) <= 1
    loader._iterator = None


# -- row 12: inference mode -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("index_key", [None, "index"])
@pytest.mark.parametrize("inside", ["made", "loaded", "first batches"])
def test_inference_mode_leaves_no_trace(inside: str, index_key: Any) -> None:
    with torch.inference_mode(inside == "made"):
        td, loader = make(index_key=index_key)
    if inside == "loaded":
        with torch.inference_mode():
            td.load_state_dict(make(index_key=index_key)[0].state_dict())
    for epoch in range(3):
        for number, (x, *index) in enumerate(loader):
            with torch.inference_mode(inside == "first batches" and epoch == 0 and number < 2):
                mean = td.update((x + 1).requires_grad_() if not torch.is_inference_mode_enabled() else x + 1, *index)
            if mean.requires_grad:
                mean.backward()
    np.testing.assert_array_equal(td.scores, np.arange(20) + 1.0)
    td.state_dict()


# -- row 15: epochs left between the last delivery and its update ---------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shorter", [2, 4, 5])
def test_set_epoch_settles_an_epoch_that_was_left(shorter: int, workers: int) -> None:
    td, loader = make(workers=workers)
    for (x,), _ in zip(loader, range(shorter), strict=False):
        td.update(x)
    td.set_epoch(1)
    for (x,) in loader:
        td.update(x + 100)
    kept = td.plan.indices
    np.testing.assert_array_equal(td.scores[kept], kept + 100)


def test_set_epoch_settles_an_interrupt_before_the_last_update() -> None:
    td, loader = make()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        for number, (x,) in enumerate(loader):
            if number == 4:
                raise KeyboardInterrupt
            td.update(x)
    td.set_epoch(0)
    for (x,) in loader:
        td.update(x)
    assert td.stats.epochs[0].seen == 20


# -- row 17: no batch that full data would not have had -------------------------------------------------------------


def batch_sizes(td: InfoBatch, loader: Any) -> list[int]:
    found = []
    for x, *_ in loader:
        td.update(torch.rand(len(x), generator=torch.Generator().manual_seed(len(found) + td.epoch)))
        found.append(len(x))
    return found


@pytest.mark.parametrize("size", [2048, 2049, 2050, 2000, 500, 70])
@pytest.mark.parametrize("method", ["infobatch", "infobatch-quantile", "random", "ucb", "kakurenbo", "seta", "rs2"])
def test_no_plan_ends_in_a_batch_that_full_data_does_not_have(method: str, size: int) -> None:
    td = InfoBatch(numbers(size), 6, method=method)
    loader = DataLoader(td, batch_size=32, sampler=td.sampler)
    full = set(batch_sizes(td, loader))
    for _ in range(5):
        assert set(batch_sizes(td, loader)) <= full
    if size > 100:
        assert td.stats.saved > 0


def test_batch_norm_survives() -> None:
    """5 of 8 seeds died between epochs 8 and 26 when plans ended in a batch of one."""
    rng = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2048, 8, generator=rng), torch.randn(2048, generator=rng)
    data = TensorDataset(x, (x[:, 0] + 0.5 * noise > 0).long())
    for seed in range(8):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        td = InfoBatch(data, 30, seed=seed)
        loader = DataLoader(td, batch_size=32, sampler=td.sampler)
        criterion = nn.CrossEntropyLoss(reduction="none")
        for _ in range(30):
            for inputs, labels in loader:
                optimizer.zero_grad()
                td.update(criterion(model(inputs), labels)).backward()
                optimizer.step()
        assert td.stats.saving > 0.1


# -- rows 18, 20: lengths and losses to show ------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("index_key", [None, "index"])
def test_lengths_are_true_without_set_epoch(workers: int, index_key: Any) -> None:
    td, loader = make(64, 6, workers=workers, delta=0.8, index_key=index_key)
    announced, counted, inside = [], [], []
    for _ in range(6):
        announced.append(len(loader))
        count = 0
        for x, *index in loader:
            td.update(x, *index)
            count += 1
            inside.append(len(loader) == announced[-1])  # also in the last step, after its update
        counted.append(count)
    assert announced == counted
    assert len(set(counted)) > 1
    assert all(inside)


def test_in_a_loop_that_fetches_ahead_the_length_stays_until_the_next_epoch() -> None:
    """The wrapper still holds the last batch when the loader's iterator has ended."""
    td, loader = make(64, 4, index_key="index")
    for epoch in range(4):
        td.set_epoch(epoch)
        announced = len(loader)
        for x, index in one_ahead(loader):
            td.update(x, index)
            assert len(loader) == announced


def test_looking_at_the_length_changes_nothing() -> None:
    for method in ("infobatch", "ucb", "dyn-unc", "rs2"):
        plans: list[list[Any]] = [[], []]
        for looks in (0, 1):
            td, loader = make(64, 6, method=method)
            for _ in range(6):
                for (x,) in loader:
                    td.update(torch.sin(x * 7 + td.epoch).abs())
                for _ in range(3 * looks):
                    len(loader)
                plans[looks].append((td.epoch, td.plan.indices.tolist()))
        assert plans[0] == plans[1]


@pytest.mark.parametrize("index_key", [None, "index"])
def test_the_loss_to_log_does_not_jump_in_pruned_epochs(index_key: Any) -> None:
    td, loader = make(64, 5, index_key=index_key, delta=0.9)
    assert torch.isnan(td.loss)
    means = []
    for _ in range(5):
        for x, *index in loader:
            score = x + 1
            mean = td.update(torch.full_like(x, 3.0).requires_grad_(), *index, score=score)
            assert td.loss == pytest.approx(3.0)
            assert not td.loss.requires_grad
            means.append(float(mean.detach()))
    assert max(means) > 3.3


def test_the_loss_to_log_is_that_of_full_data_on_average() -> None:
    size = 2000
    losses = torch.rand(size, generator=torch.Generator().manual_seed(1)).square()
    td = InfoBatch(numbers(size), 40)
    loader = DataLoader(td, batch_size=50, sampler=td.sampler)
    logged = []
    for _ in range(30):
        for (x,) in loader:
            td.update(losses[x.long()])
            logged.append(float(td.loss))
    assert np.mean(logged) == pytest.approx(float(losses.mean()), rel=0.02)


# -- a loader followed by public means only -------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_followed_loader_needs_no_private_name(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(infobatch.core.sampler, "find_delivery", lambda _: pytest.fail("torch's loader was looked for"))
    td, loader = make(22, workers=workers)
    for _ in range(4):
        announced, count = len(loader), 0
        for (x,) in td.follow(loader):
            td.update(x + 100 * td.epoch)
            count += 1
        assert count == announced
        kept = td.plan.indices
        np.testing.assert_array_equal(td.scores[kept], kept + 100 * td.epoch)


def test_a_followed_loader_may_fetch_ahead() -> None:
    class Ahead:
        def __init__(self, loader: Any) -> None:
            self.loader, self.batch_sampler, self.dataset = loader, loader.batch_sampler, loader.dataset

        def __iter__(self) -> Iterator[Any]:
            return one_ahead(self.loader)

    td, loader = make(22)
    for epoch in range(4):
        for (x,) in td.follow(Ahead(loader)):
            td.update(x + 100 * epoch)
        kept = td.plan.indices
        np.testing.assert_array_equal(td.scores[kept], kept + 100 * epoch)


def test_a_followed_loader_is_checked_as_any_other() -> None:
    td, loader = make(22)
    batches = iter(td.follow(loader))
    next(batches)
    with pytest.raises(DriftError, match="delivered 2 batches"):
        td.update(next(batches)[0])
    with pytest.raises(DriftError, match="whose samples have other indices"):
        next(iter(td.follow(DataLoader(numbers(22), sampler=td.sampler))))
    unordered = DataLoader(td, BATCH, sampler=td.sampler, num_workers=1, in_order=False)
    with pytest.raises(DriftError, match="in_order=False"):
        td.update(next(iter(td.follow(unordered)))[0])


class Renamed(BatchSampler):
    """A batch sampler that regroups, so that positions cannot hold."""

    def __iter__(self) -> Iterator[list[int]]:
        return reversed(list(super().__iter__()))


def test_a_followed_loader_that_regroups_needs_an_index() -> None:
    td, _ = make(22)
    loader = DataLoader(td, batch_sampler=Renamed(td.sampler, BATCH, False))
    with pytest.raises(DriftError, match="regroups"):
        td.update(next(iter(td.follow(loader)))[0])
