"""``infobatch report`` of a state."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

from infobatch import InfoBatch, checkpoint
from infobatch.cli.app import app


def call(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return done.exit_code, " ".join(re.sub(r"[│╭╮╰╯─]", " ", done.output).split())


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A checkpoint with a model and the state of a run of 20 samples."""
    data = InfoBatch(TensorDataset(torch.arange(20.0)), 3, history=True)
    for _ in range(3):
        for (x,) in DataLoader(data, batch_size=5, sampler=data.sampler):
            data.update(x)
    checkpoint.save({"model": {"w": torch.ones(1)}, "train_data": data.state_dict()}, tmp_path / "last.pt")
    return tmp_path / "last.pt"


def test_a_state_gets_a_page_beside_it_or_where_it_is_wanted(state: Path) -> None:
    code, output = call(state)
    assert code == 0, output
    assert "3 epochs, saved" in output
    assert state.with_suffix(".html").read_text(encoding="utf-8").startswith("<!doctype html>")
    labels = state.with_name("labels.npy")
    np.save(labels, np.arange(20) % 3)
    wanted = state.parent / "new" / "page.html"
    code, output = call(state, "--out", wanted, "--labels", labels)
    assert code == 0, output
    assert '"labels":["0","1","2"]' in wanted.read_text(encoding="utf-8")
    lines = state.with_name("labels.txt")
    lines.write_text("cat\n" * 12 + "dog\n" * 8)
    assert call(state, "--out", wanted, "--labels", lines)[0] == 0
    assert '"labels":["cat","dog"]' in wanted.read_text(encoding="utf-8")


def test_a_missing_history_is_mentioned(tmp_path: Path) -> None:
    checkpoint.save(InfoBatch(range(5), 3).state_dict(), tmp_path / "last.pt")
    code, output = call(tmp_path / "last.pt")
    assert code == 0
    assert "No history was kept" in output


def test_wrong_arguments_are_named_and_no_page_is_written(state: Path) -> None:
    short = state.with_name("labels.txt")
    short.write_text("cat\n")
    damaged = state.with_name("damaged.pt")
    damaged.write_bytes(state.read_bytes()[:500])
    other = state.with_name("other.pt")
    checkpoint.save({"model": {}}, other)
    for arguments, message in (
        ([state, "--labels", short], "labels must hold one label for each of the 20 samples"),
        ([damaged], "is cut short or damaged"),
        ([other], "must hold the state of one InfoBatch, and holds none"),
        ([state, other], "give one file with the state of a run"),
        ([state, "--out", state.with_name("page.txt")], "must end in .html"),
        ([state.with_name("missing.pt")], "holds no finished run"),
        ([state.parent, "--labels", short], "labels are for the page of one state"),
    ):
        code, output = call(*arguments)
        assert code == 2
        assert message in output, output
    assert not list(state.parent.glob("*.html"))
