"""The examples of training functions of one's own run through the command, each run in its own process."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from distributed.launch import ROOT
from infobatch.cli.app import app

pytestmark = pytest.mark.slow  # whole trainings, in processes of their own


@pytest.mark.parametrize(
    ("name", "method", "options"),
    [
        ("own_training", "infobatch", ["--metric", "accuracy", "--lower", "loss"]),
        ("own_lightning", "infobatch-adaptive:steps=stay", []),
        ("own_trainer", "infobatch:steps=stay", ["--metric", "accuracy", "--lower", "loss"]),
    ],
)
def test_an_example_is_compared(name, method, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["compare", f"{ROOT}/examples/{name}.py:train", "--methods", method, "--seeds", "1", *options]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    [path] = Path("runs").rglob("record.json")
    record = json.loads(path.read_text())
    assert record["method"] == method
    assert record["values"][-1] > 45
    assert 0.05 < record["saving"] < 0.5
    assert len(record["further"]) == len(options) // 4
    assert list((path.parent / "own").iterdir())  # its checkpoint
