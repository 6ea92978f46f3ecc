"""State after any step: a new run that loads it goes on as if nothing had happened."""

from __future__ import annotations

import gc
import io
import re
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from distributed.training import differences
from infobatch import InfoBatch, methods

SIZE, EPOCHS = 23, 5

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's own


class Numbered(Dataset):
    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, i: int) -> dict[str, int]:
        return {"number": i}


def orders(train_data: InfoBatch) -> list[list[int]]:
    """The plans of all epochs; losses are the samples' numbers."""
    plans = []
    for epoch in range(EPOCHS):
        train_data.set_epoch(epoch)
        plans.append(train_data.plan.indices.tolist())
        index = torch.tensor(train_data.plan.indices)
        train_data.update(index.float(), index)
    return plans


def test_the_seed_is_the_users_or_the_frameworks_or_0() -> None:
    def plans(framework: int | None = None, **options: Any) -> list[list[int]]:
        train_data = InfoBatch(Numbered(), EPOCHS, **options)
        train_data.adopt_seed(framework)
        return orders(train_data)

    assert plans() == plans(seed=0) == orders(InfoBatch(Numbered(), EPOCHS))
    assert plans(7) == plans(seed=7) == plans(8, seed=7)
    assert len({str(plans(seed)) for seed in (None, 1, 2, 3)}) == 4
    assert plans(2**63 - 1) == plans(seed=2**63 - 1)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        plans(-1)
    with pytest.raises(TypeError, match="seed must be a whole number"):
        plans("1")  # type: ignore[arg-type]


def test_a_run_that_has_begun_keeps_its_seed() -> None:
    train_data = InfoBatch(Numbered(), EPOCHS)
    train_data.adopt_seed(1)
    train_data.adopt_seed(2)  # nothing was trained on yet
    assert train_data.sampler.seed == 2
    train_data.update(torch.arange(4.0), torch.arange(4))
    train_data.adopt_seed(3)
    assert train_data.sampler.seed == train_data.state_dict()["seed"] == 2
    train_data.set_epoch(0)  # over again
    train_data.adopt_seed(3)
    assert train_data.sampler.seed == 3


@pytest.mark.parametrize("framework", [None, 1, 5])
def test_a_state_brings_its_seed_where_none_was_given(framework: int | None) -> None:
    whole = InfoBatch(Numbered(), EPOCHS, seed=5)
    expected = orders(whole)
    saved = InfoBatch(Numbered(), EPOCHS, seed=5)
    for epoch in range(2):
        saved.set_epoch(epoch)
        index = torch.tensor(saved.plan.indices)
        saved.update(index.float(), index)
    for order in ("before", "after"):
        train_data = InfoBatch(Numbered(), EPOCHS)
        if order == "before":
            train_data.adopt_seed(framework)
        train_data.load_state_dict(saved.state_dict())
        if order == "after":
            train_data.adopt_seed(framework)
        assert (train_data.sampler.seed, train_data.epoch) == (5, 2)
        assert train_data.plan.indices.tolist() == expected[2]
    with pytest.raises(ValueError, match="seed: 5 in the state, 0 here"):
        InfoBatch(Numbered(), EPOCHS, seed=0).load_state_dict(saved.state_dict())
    with pytest.raises(ValueError, match="seed: -1 in the state, 0 here"):
        InfoBatch(Numbered(), EPOCHS).load_state_dict({**saved.state_dict(), "seed": -1})


@dataclass
class Setting:
    options: dict[str, Any] = field(default_factory=dict)
    drop_last: bool = False
    batch: int = 4
    stateful: bool = False
    workers: int = 0

    def make(self) -> tuple[InfoBatch, Any]:
        train_data = InfoBatch(Numbered(), EPOCHS, seed=1, **self.options)
        kind: Any = DataLoader
        if self.stateful:
            from torchdata.stateful_dataloader import StatefulDataLoader as kind  # noqa: N813
        loader = kind(
            train_data,
            batch_size=self.batch,
            sampler=train_data.sampler,
            drop_last=self.drop_last,
            num_workers=self.workers,
        )
        return train_data, loader


def steps(train_data: InfoBatch, loader: Any) -> Iterator[tuple[int, list[int]]]:
    """Train to the end; of each step the epoch and the samples."""
    for epoch in range(train_data.epoch, EPOCHS):
        train_data.set_epoch(epoch)
        for batch in loader:
            number = batch["number"]
            loss = (1 + torch.sin(number * 1.7 + epoch)).float()
            index = batch.get("index")
            chosen = train_data.choose(loss, index, gradients=torch.stack([loss, loss**2], 1))
            train_data.update(loss[chosen], None if index is None else index[chosen])
            yield epoch, number.tolist()


def end(train_data: InfoBatch) -> dict[str, Any]:
    stats = train_data.stats
    return {
        "scores": torch.from_numpy(train_data.scores.copy()),
        "epochs": [[e.epoch, e.total, e.kept, e.seen] for e in stats.epochs],
        "expected": stats.expected_saving,
        "rejected": stats.rejected,
        "progress": train_data.progress,
    }


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


SETTINGS = {
    "plain": Setting(),
    "drop_last": Setting(drop_last=True),
    "drop_last, one batch": Setting(drop_last=True, batch=9),
    "momentum": Setting({"momentum": 0.3}),
    "strata": Setting({"strata": np.arange(SIZE) % 2}),
    "many strata": Setting({"strata": np.arange(SIZE)}),
    "saving": Setting({"saving": 0.3}),
    "warm-up, no annealing": Setting({"warmup": 2, "anneal": False}),
    "index_key": Setting({"index_key": "index"}),
    "stateful": Setting(stateful=True),
    "stateful, drop_last": Setting(stateful=True, drop_last=True),
    "stateful, index_key": Setting({"index_key": "index"}, stateful=True),
    **{f"method {name}": Setting({"method": name}) for name in methods.list()},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_resumed_after_any_step(name: str) -> None:
    setting = SETTINGS[name]
    train_data, loader = setting.make()
    way, states = [], []
    for step in steps(train_data, loader):
        way.append(step)
        loader_state = loader.state_dict() if setting.stateful else None
        states.append(through_a_file({"train_data": train_data.state_dict(), "loader": loader_state}))
    uninterrupted, other = setting.make()
    assert list(steps(uninterrupted, other)) == way  # taking the state changed nothing
    last = end(uninterrupted)

    for done, state in enumerate(states, start=1):
        resumed, loader = setting.make()
        resumed.load_state_dict(state["train_data"])
        if setting.stateful:
            loader.load_state_dict(state["loader"])
        assert list(steps(resumed, loader)) == way[done:], f"after step {done}"
        assert differences(last, end(resumed)) == [], f"after step {done}"


@pytest.mark.parametrize("stateful", [False, True])
def test_resumed_with_workers(stateful: bool) -> None:
    setting = Setting(stateful=stateful, workers=2)
    train_data, loader = setting.make()
    way, states = [], []
    for step in steps(train_data, loader):
        way.append(step)
        loader_state = loader.state_dict() if stateful else None
        states.append(through_a_file({"train_data": train_data.state_dict(), "loader": loader_state}))

    for done in (1, 5, 6, 8, len(way)):  # 6 is the end of the first epoch
        resumed, loader = setting.make()
        resumed.load_state_dict(states[done - 1]["train_data"])
        if stateful:
            loader.load_state_dict(states[done - 1]["loader"])
        assert list(steps(resumed, loader)) == way[done:], f"after step {done}"
        assert differences(end(train_data), end(resumed)) == []


def test_a_state_taken_right_after_loading_is_the_same_state() -> None:
    train_data, loader = Setting().make()
    for _ in zip(steps(train_data, loader), range(8), strict=False):
        pass
    state = train_data.state_dict()
    resumed, _ = Setting().make()
    resumed.load_state_dict(state)

    assert differences(state, resumed.state_dict()) == []
    assert resumed.position == train_data.position
    assert len(resumed.sampler) == len(train_data.plan) - state["done"]


def test_set_epoch_for_the_resumed_epoch_keeps_its_place() -> None:
    train_data, loader = Setting().make()
    for _ in zip(steps(train_data, loader), range(8), strict=False):
        pass
    resumed, loader = Setting().make()
    resumed.load_state_dict(train_data.state_dict())
    left = len(loader)
    resumed.set_epoch(resumed.epoch)

    assert len(loader) == left < -(-len(resumed.plan) // 4)


def test_a_stateful_loader_of_another_step_is_refused() -> None:
    train_data, loader = Setting(stateful=True).make()
    passed = zip(steps(train_data, loader), range(3), strict=False)
    states = [(train_data.state_dict(), loader.state_dict()) for _ in passed]
    resumed, loader = Setting(stateful=True).make()
    resumed.load_state_dict(states[1][0])
    loader.load_state_dict(states[0][1])

    with pytest.raises(RuntimeError, match="the loader's state is from epoch 0, sample 4"):
        next(iter(loader))


def test_longer_training_from_an_old_state() -> None:
    train_data, loader = Setting().make()
    for _ in zip(steps(train_data, loader), range(8), strict=False):
        pass
    longer = InfoBatch(Numbered(), 2 * EPOCHS, seed=1)
    longer.load_state_dict(train_data.state_dict())

    assert longer.epoch == train_data.epoch
    assert longer.plan.indices.tolist() == train_data.plan.indices.tolist()


def test_starting_over_after_loading_is_said() -> None:
    """The usual mistake: ``for epoch in range(num_epochs)`` with a state loaded before it."""
    train_data = InfoBatch(range(12), num_epochs=5)
    train_data.set_epoch(3)
    resumed = InfoBatch(range(12), num_epochs=5)
    resumed.load_state_dict(train_data.state_dict())
    with pytest.warns(RuntimeWarning, match=r"set_epoch\(0\) after a state of epoch 3.*range\(train_data\.epoch"):
        resumed.set_epoch(0)
    resumed.set_epoch(4)  # from here on nothing is said: it was the user's choice
    resumed.set_epoch(1)


def test_an_epoch_that_is_over_is_freed_at_once() -> None:
    """A plan is megabytes to gigabytes: no reference cycle may keep it until the collector comes."""
    train_data, loader = Setting().make()
    gc.collect()
    gc.disable()
    try:
        for epoch in range(3):
            train_data.set_epoch(epoch)
            old = weakref.ref(train_data._run.position)
            for _ in zip(steps(train_data, loader), range(3), strict=False):
                pass
            train_data.set_epoch(epoch + 1)
            assert old() is None
    finally:
        gc.enable()


def test_much_noise_is_said_once_with_the_remedy() -> None:
    """Half of the samples by chance: V is 2."""
    td = InfoBatch(TensorDataset(torch.arange(200.0)), 6, method="random", rescale=True)
    loader = DataLoader(td, 20, sampler=td.sampler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(6):
            for (x,) in loader:
                td.update(1 + x)
    (said,) = [w for w in caught if "times smaller" in str(w.message)]
    assert re.match(r"in epoch 1 .* as if batches were 2\.00 times smaller.*infobatch-adaptive", str(said.message))


def test_little_noise_is_not() -> None:
    td = InfoBatch(TensorDataset(torch.arange(200.0)), 6)
    loader = DataLoader(td, 20, sampler=td.sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(6):
            for (x,) in loader:
                td.update(1 + x)
    assert 1 < td.stats.noise < 1.5


class Listener:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []
        self.scored: list[int] = []

    def begin_epoch(self, epoch: int) -> None:
        self.heard.append(("begin", epoch))

    def end_epoch(self, plan: Any, scores: Any) -> None:
        self.heard.append(("end", plan.epoch))
        self.scored.append(int(np.count_nonzero(~np.isnan(scores))))


@pytest.mark.parametrize("on_purpose", [False, True])
def test_a_watcher_hears_of_epochs_as_they_begin_and_end(on_purpose: bool) -> None:
    train_data, listener = InfoBatch(TensorDataset(torch.arange(8.0)), 3), Listener()
    train_data.watch(listener)
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    next(iter(loader))  # a peek ends nothing
    for epoch in range(3):
        if on_purpose:
            train_data.set_epoch(epoch)
        for (x,) in loader:
            train_data.update(x)
    ends = [("end", 0), ("end", 1)]
    assert [event for event in listener.heard if event[0] == "end"] == ends
    assert listener.scored == [8, 8]
    assert listener.heard.index(("end", 0)) < listener.heard.index(("begin", 1))
    train_data.state_dict()  # which may be the last that is seen of the epoch
    assert listener.heard[-1] == ("end", 2)
    assert InfoBatch.__getstate__(train_data)["_run"].__getstate__()["watcher"] is None  # a copy has none
