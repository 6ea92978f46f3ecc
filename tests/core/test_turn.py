"""Random draws seeded by (seed, epoch, index): the same for any workers and after a resume; nothing global moves."""

from __future__ import annotations

import itertools
import pickle
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from infobatch import InfoBatch
from infobatch.core.turn import Turn, own_draws, read

SIZE, EPOCHS = 30, 4


class Augmented(Dataset):
    """Each sample is its index and three random draws: by torch, numpy and Python, from their global generators."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> list[float]:
        assert type(index) is int
        return [index, float(torch.rand(())), np.random.rand(), random.random()]  # noqa: NPY002

    def __getitems__(self, indices: list[int]) -> list[list[float]]:
        raise AssertionError("samples that are seeded one by one are read one by one")


def stack(samples: list[list[float]]) -> torch.Tensor:
    return torch.tensor([[float(value) for value in sample] for sample in samples], dtype=torch.float64)


def states() -> list[Any]:
    """Where the global generators stand."""
    return [torch.get_rng_state().tolist(), pickle.dumps(np.random.get_state()), random.getstate()]  # noqa: NPY002


def test_a_turn_is_a_number_that_survives_the_way_to_a_worker() -> None:
    turn = pickle.loads(pickle.dumps([Turn(5, seed=2, epoch=3)]))[0]
    assert (turn, turn.seed, turn.epoch, repr(turn)) == (5, 2, 3, "5")
    assert {5: "x"}[turn] == "x"
    assert torch.arange(9)[turn] == 5


def test_draws_are_those_of_seed_epoch_and_index_and_leave_nothing_behind() -> None:
    turns = [Turn(i, seed, epoch) for seed in (0, 1) for epoch in (0, 1) for i in (0, 1)]
    before = states()
    samples = read(Augmented(), turns)
    assert states() == before
    draws = [tuple(sample[1:]) for sample in samples]
    assert len({value for draw in draws for value in draw}) == 3 * len(turns)
    assert [sample[1:] for sample in read(Augmented(), turns[::-1])] == [list(draw) for draw in draws[::-1]]
    with pytest.raises(ZeroDivisionError):
        read(Broken(), turns)
    assert states() == before


class Broken:
    def __getitem__(self, index: int) -> float:
        return random.random() / 0


def test_a_batch_draws_by_its_first_turn() -> None:
    def draw(first: int) -> list[float]:
        with own_draws(first):
            return Augmented()[0][1:]

    before = states()
    turn = Turn(3, seed=1, epoch=2)
    assert draw(turn) == draw(Turn(3, 1, 2)) != draw(Turn(3, 1, 3))
    assert draw(turn) != read(Augmented(), [turn])[0][1:]
    assert states() == before
    assert draw(3) != draw(3)  # not seeded: the global generators move on
    assert states() != before


def test_draws_are_spread_as_chance_is() -> None:
    draws = np.array(read(Augmented(), [Turn(i, 0, e) for e in range(20) for i in range(200)]))[:, 1:]
    assert np.abs(draws.mean(0) - 0.5).max() < 0.02  # 4.4 standard errors
    assert np.abs(np.corrcoef(draws.T) - np.eye(3)).max() < 0.07
    assert np.abs(np.corrcoef(draws[:-1, 0], draws[1:, 0])[0, 1]) < 0.07


def test_an_index_without_a_turn_is_refused() -> None:
    train_data = InfoBatch(Augmented(), EPOCHS, seed_samples=True)
    with pytest.raises(TypeError, match=r"index 3 did not come from train_data.sampler.*read train_data.dataset"):
        train_data[3]
    with pytest.raises(ValueError, match="seed_samples=True cannot be used with order="):
        InfoBatch(Augmented(), EPOCHS, seed_samples=True, order=range(SIZE))
    with pytest.raises(TypeError, match="seed_samples must be True, False or None"):
        InfoBatch(Augmented(), EPOCHS, seed_samples=3)


# -- in training -----------------------------------------------------------------------------------------------------

LOADERS = [
    {"num_workers": 0},
    {"num_workers": 2},
    {"num_workers": 2, "persistent_workers": True},
]


def training(train_data: InfoBatch, **how: Any) -> Iterator[torch.Tensor]:
    """The batches of a run; its losses depend on the draws."""
    loader = DataLoader(train_data, collate_fn=stack, **how)
    while True:
        for batch in loader:
            train_data.update(batch[:, 1] + batch[:, 2] + batch[:, 3], batch[:, -1].long())
            yield batch
        if train_data.epoch == EPOCHS - 1:
            return


def run(how: dict[str, Any], stay: bool, state: dict[str, Any] | None = None, batches: int = 10**6) -> Any:
    train_data = InfoBatch(Augmented(), EPOCHS, 0.5, 0.75, index_key="index", seed_samples=True)
    if state is not None:
        train_data.load_state_dict(state)
    cut = {"batch_sampler": train_data.batches(4)} if stay else {"batch_size": 4, "sampler": train_data.sampler}
    return list(itertools.islice(training(train_data, **how, **cut), batches)), train_data.state_dict()


@pytest.mark.parametrize("stay", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_run_resumed_in_mid_epoch_draws_as_one_that_was_not_stopped(stay: bool) -> None:
    torch.manual_seed(0)
    whole, end = run(LOADERS[0], stay)
    for number, how in enumerate(LOADERS):
        torch.manual_seed(number + 1)
        before, state = run(how, stay, batches=11)
        after, resumed_end = run(LOADERS[number - 1], stay, state)
        assert all(torch.equal(a, b) for a, b in zip(whole, [*before, *after], strict=True))
        assert resumed_end["checksum"] == end["checksum"]
    first, second = whole[0], whole[-1]
    assert not set(first[:, 1].tolist()) & set(second[:, 1].tolist())  # another epoch, other draws


def test_without_it_draws_are_the_loaders() -> None:
    """What the option is for: the test above can fail."""
    torch.manual_seed(0)
    drawn = []
    for _ in range(2):
        train_data = InfoBatch(list(range(SIZE)), EPOCHS)
        loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler, collate_fn=draw)
        drawn.append(next(iter(loader)))
    assert drawn[0] != drawn[1]


def draw(samples: list[int]) -> list[float]:
    return [float(torch.rand(())) for _ in samples]


def test_the_page_holds(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/bit-for-bit.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, str(script)], check=True, timeout=300)


@pytest.mark.slow
def test_a_spawned_worker_draws_alike() -> None:
    train_data = InfoBatch(Augmented(), EPOCHS, seed_samples=True)
    loaders = [
        DataLoader(train_data, 4, sampler=train_data.sampler, collate_fn=stack, **how)
        for how in ({}, {"num_workers": 1, "multiprocessing_context": "spawn"})
    ]
    here, there = (next(iter(loader)) for loader in loaders)
    assert torch.equal(here, there)
