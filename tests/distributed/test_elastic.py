"""torchrun restarts the ranks when one is killed: training goes on from the last checkpoint."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from distributed import training
from distributed.launch import forked, torchrun
from distributed.training import Case, differences, result, train

pytestmark = pytest.mark.slow  # processes that are killed


def test_a_killed_rank_costs_only_the_steps_since_the_last_checkpoint(tmp_path: Path) -> None:
    case = Case(save_every=2)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    assert forked(2, train, replace(case, save_every=0), whole) == [0, 0]

    torchrun(Path(training.__file__), json.dumps(asdict(case)), killed, "[3, 4]", ranks=2, restarts=3)

    assert len(list(killed.glob("attempt-*"))) == 3  # two died
    assert differences(result(whole), result(killed)) == []
