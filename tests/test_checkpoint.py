"""Checkpoints: written whole or not at all, read back whole or refused."""

from __future__ import annotations

import copy
import io
import os
import pickle
import random
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from distributed.launch import _context
from distributed.training import differences
from infobatch import InfoBatch, checkpoint
from infobatch.core import state as core_state


def some_state() -> dict[str, Any]:
    train_data = trained()
    return {"train_data": train_data.state_dict(), "weights": torch.arange(50.0), "step": 3, "notes": ["a", 2.5, None]}


def trained(size: int = 23, **options: Any) -> InfoBatch:
    """After two steps of the pruned epoch 1."""
    train_data = InfoBatch(TensorDataset(torch.arange(float(size))), 4, **options)
    loader = DataLoader(train_data, batch_size=4, sampler=train_data.sampler)
    for (x,) in loader:
        train_data.update(x)
    for (x,), _ in zip(loader, range(2), strict=False):
        train_data.update(x)
    return train_data


def test_a_saved_state_is_loaded_unchanged(tmp_path: Path) -> None:
    state = some_state()
    path = tmp_path / "new" / "folder" / "last.pt"
    checkpoint.save(state, path)
    checkpoint.save(state, path)  # again, over the old one

    loaded = checkpoint.load(path)

    assert loaded["notes"] == state["notes"]
    assert torch.equal(loaded["weights"], state["weights"])
    trained_on = trained()
    trained_on.load_state_dict(loaded["train_data"])
    assert trained_on.plan.indices.tolist() == trained().plan.indices.tolist()
    assert os.listdir(path.parent) == ["last.pt"]


def test_other_users_may_read_it_as_any_file_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    checkpoint.save({"step": 1}, tmp_path / "last.pt")

    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("last.pt", "plain")]
    assert modes[0] == modes[1]


@given(share=st.floats(0, 1))
def test_a_file_cut_short_is_refused(share: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "last.pt"
    checkpoint.save(some_state(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: min(int(share * len(whole)), len(whole) - 1)])

    with pytest.raises(ValueError, match=r"last\.pt .*damaged"):
        checkpoint.load(path)


@given(content=st.binary(max_size=200))
def test_garbage_is_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("garbage") / "last.pt"
    path.write_bytes(content)

    with pytest.raises(ValueError, match=r"last\.pt"):
        checkpoint.load(path)


def test_no_changed_bit_is_read_as_another_state(tmp_path: Path) -> None:
    """Every single bit of a small checkpoint. Names, dates and padding may change: torch keeps no checksum of them."""
    path, state = tmp_path / "last.pt", {"scores": torch.arange(100.0), "step": 3}
    checkpoint.save(state, path)
    content = path.read_bytes()
    refused = 0
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            loaded = checkpoint.load(path)
        except ValueError:
            refused += 1
        else:
            assert differences(state, loaded) == [], bit
    assert refused > 4000  # 400 bytes of scores alone are 3,200 bits


def test_a_record_that_became_a_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save({"scores": torch.arange(100.0)}, path)
    content = bytearray(path.read_bytes())
    entry = content.index(b"archive/data/0", content.index(b"PK\x01\x02")) - 46  # in the central directory
    assert content[entry : entry + 4] == b"PK\x01\x02"
    content[entry + 38] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"last\.pt is cut short or damaged"):
        checkpoint.load(path)


class Odd:
    """Not a tensor and not a plain value."""


def test_objects_are_refused(tmp_path: Path) -> None:
    checkpoint.save({"odd": Odd()}, tmp_path / "odd.pt")

    with pytest.raises(ValueError, match=r"odd\.pt is not a checkpoint of tensors and plain values"):
        checkpoint.load(tmp_path / "odd.pt")


def test_a_file_without_a_dict_is_refused(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pt")

    with pytest.raises(ValueError, match="holds a list"):
        checkpoint.load(tmp_path / "list.pt")


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "none.pt")


def test_a_state_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save({"step": 1}, path)

    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        checkpoint.save({"step": 2, "bad": lambda: None}, path)

    assert checkpoint.load(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["last.pt"]


def save_for_ever(path: Path) -> None:
    step = 0
    while True:
        checkpoint.save({"step": step, "values": torch.full((300_000,), float(step))}, path)
        step += 1


@pytest.mark.slow
def test_killed_while_saving_there_is_always_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    chance = random.Random(5)
    rounds = interrupted = 0
    while rounds < 12 or (not interrupted and rounds < 60):
        rounds += 1
        before = path.stat().st_ino if path.exists() else None
        process = _context.Process(target=save_for_ever, args=(path,))
        process.start()
        while not path.exists() or path.stat().st_ino == before:  # until it has saved once
            time.sleep(0.001)
        time.sleep(chance.random() * 0.02)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        state = checkpoint.load(path)
        assert bool((state["values"] == state["step"]).all())
        interrupted = len(os.listdir(tmp_path)) - 1
    assert interrupted  # at least one was killed between the first byte and the renaming


# -- what load_state_dict refuses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 24}, "size: 23 in the state, 24 here"),
        ({"seed": 1}, "seed: 0 in the state, 1 here"),
        ({"method": "random"}, "method: 'infobatch' in the state, 'random' here"),
        ({"ratio": 0.4}, "'ratio': 0.4"),
        ({"momentum": 0.5}, "momentum: 1.0 in the state, 0.5 here"),
    ],
)
def test_a_state_of_another_run_is_refused_and_changes_nothing(options: dict[str, Any], message: str) -> None:
    size = options.pop("size", 23)
    other = trained(size, **options)
    before = other.state_dict()

    with pytest.raises(ValueError, match=r"different run and was not loaded") as error:
        other.load_state_dict(trained().state_dict())

    assert message in str(error.value)
    assert torch.equal(other.state_dict()["scores"], before["scores"])
    assert torch.equal(other.state_dict()["plan"]["indices"], before["plan"]["indices"])


def test_a_state_of_a_newer_release_is_refused() -> None:
    state = trained().state_dict()
    state["version"] = core_state.VERSION + 1

    with pytest.raises(ValueError, match="newer release, so upgrade infobatch"):
        trained().load_state_dict(state)


@pytest.mark.parametrize("part", ["scores", "indices", "codes", "done"])
def test_a_damaged_state_is_refused_and_changes_nothing(part: str) -> None:
    state = copy.deepcopy(trained().state_dict())
    if part == "scores":
        state["scores"][3] += 1
    elif part == "done":
        state["done"] += 1
    else:
        state["plan"][part][0] = 5 - state["plan"][part][0]
    fresh = trained()
    before = fresh.state_dict()

    with pytest.raises(ValueError, match="damaged"):
        fresh.load_state_dict(state)
    assert torch.equal(fresh.state_dict()["scores"], before["scores"])


@pytest.mark.parametrize("state", [{}, {"version": "1"}, [], {"version": None}])
def test_values_that_are_no_states_are_refused(state: Any) -> None:
    with pytest.raises(ValueError, match="not the state of an InfoBatch"):
        trained().load_state_dict(state)


def test_a_state_of_an_older_release_is_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a version 0 that there might have been, the scores had another name."""

    def rename(state: dict[str, Any]) -> dict[str, Any]:
        return {**{k: v for k, v in state.items() if k != "losses"}, "scores": state["losses"], "version": 1}

    monkeypatch.setitem(core_state.MIGRATIONS, 0, rename)
    state = trained().state_dict()
    old = {**{k: v for k, v in state.items() if k != "scores"}, "losses": state["scores"], "version": 0}
    old["checksum"] = core_state.checksum(old)
    train_data = InfoBatch(TensorDataset(torch.arange(23.0)), 4)

    train_data.load_state_dict(old)

    assert torch.equal(train_data.state_dict()["scores"], state["scores"])


def test_a_state_of_version_1_had_no_memory() -> None:
    state = trained().state_dict()
    old = {**{k: v for k, v in state.items() if k not in ("memory", "passed over", "batch size")}, "version": 1}
    old["checksum"] = core_state.checksum(old)
    train_data = InfoBatch(TensorDataset(torch.arange(23.0)), 4)

    train_data.load_state_dict(old)

    unknown = {"batch size": 0, "checksum": 0}  # an old state did not say how the loader cuts its batches
    assert differences({**train_data.state_dict(), **unknown}, {**state, **unknown}) == []


def test_a_version_nobody_can_migrate_is_refused() -> None:
    with pytest.raises(ValueError, match="version"):
        trained().load_state_dict({**trained().state_dict(), "version": 0})


def test_the_state_of_imagenet_fits_into_12_megabytes(tmp_path: Path) -> None:
    size = 1_281_167
    train_data = InfoBatch(TensorDataset(torch.arange(float(size))), 4)
    loader = DataLoader(train_data, batch_sampler=None, batch_size=1 << 16, sampler=train_data.sampler)
    index = torch.arange(size)
    next(iter(loader))
    train_data.update(index.float(), index)
    train_data.set_epoch(1)
    state = train_data.state_dict()
    assert state["plan"]["kept"] < size

    checkpoint.save(state, tmp_path / "last.pt")

    assert (tmp_path / "last.pt").stat().st_size <= 12_000_000
    file = io.BytesIO((tmp_path / "last.pt").read_bytes())
    assert torch.equal(torch.load(file, weights_only=True)["scores"], index.float())


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    target, link = tmp_path / "runs" / "step-3.pt", tmp_path / "last.pt"
    checkpoint.save({"step": 3}, target)
    link.symlink_to(target)
    checkpoint.save({"step": 4}, link)
    assert link.is_symlink()
    assert checkpoint.load(target)["step"] == checkpoint.load(link)["step"] == 4
    assert sorted(f.name for f in tmp_path.rglob("*.pt")) == ["last.pt", "step-3.pt"]
