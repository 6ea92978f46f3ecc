"""Fifty deaths: runs killed at random steps, in many settings, end as if they had never been killed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from distributed.test_resume import assert_kills_change_nothing
from distributed.training import Case

OPTIONS = [
    {},
    {"method": "infobatch-quantile", "momentum": 0.5},
    {"method": "random", "ratio": 0.3},
    {"saving": 0.3},
]
INDEX = ["position", "key", "explicit"]
GRID = list(itertools.product([1, 2], [0, 2], [False, True], [False, True]))


@pytest.mark.slow
def test_fifty_kills_and_no_difference(tmp_path: Path) -> None:
    died = 0
    for seed, (world, workers, stateful, drop_last) in enumerate(GRID):
        case = Case(
            size=31 + seed,
            workers=workers,
            stateful=stateful,
            drop_last=drop_last,
            index=INDEX[seed % len(INDEX)],
            strata=seed % 5 == 4,
            options=OPTIONS[seed % len(OPTIONS)],
            save_every=1 + seed % 3,
        )
        died += assert_kills_change_nothing(case, world, tmp_path / str(seed), seed, kills=5)
    assert died >= 50
