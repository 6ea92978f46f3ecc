"""Killed with SIGKILL and started again: bit for bit the run that was never killed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from distributed.launch import forked
from distributed.training import Case, delivered, differences, result, traces, train

pytestmark = pytest.mark.slow  # processes that are killed


def with_kills(case: Case, world: int, folder: Path, chance: random.Random, kills: int) -> int:
    """Train with checkpoints, dying up to ``kills`` times at random steps; returns how many deaths there were."""
    died = 0
    while True:
        codes = forked(world, train, case, folder, chance.randint(1, 7) if died < kills else None)
        if not any(codes):
            return died
        assert codes[-1] == -SIGKILL, codes
        died += 1


def assert_kills_change_nothing(case: Case, world: int, folder: Path, seed: int, kills: int) -> int:
    whole, killed = folder / "whole", folder / "killed"
    whole.mkdir(parents=True)
    killed.mkdir()
    assert forked(world, train, replace(case, save_every=0), whole) == [0] * world
    died = with_kills(case, world, killed, random.Random(seed), kills)
    assert differences(result(whole), result(killed)) == []
    return died


CASES: list[tuple[int, Case]] = [
    (1, Case(save_every=1)),
    (1, Case(save_every=2, workers=2, options={"momentum": 0.5})),
    (1, Case(save_every=3, stateful=True, drop_last=True)),
    (1, Case(save_every=1, stateful=True)),
    (1, Case(save_every=2, stateful=True, workers=2, index="key")),
    (1, Case(save_every=1, drop_last=True, options={"method": "infobatch-quantile"})),
    (1, Case(save_every=2, strata=True, options={"saving": 0.3})),
    (2, Case(save_every=2)),
    (2, Case(save_every=1, workers=2, drop_last=True, options={"momentum": 0.5})),
    (2, Case(save_every=2, stateful=True, index="explicit")),
    (2, Case(save_every=1, stateful=True, workers=2, options={"method": "random"})),
    (2, Case(save_every=3, strata=True, index="key", options={"saving": 0.3})),
    (1, Case(save_every=1, options={"history": True})),
    (2, Case(save_every=2, index="explicit", options={"history": 2})),
]


@pytest.mark.parametrize(("world", "case"), CASES, ids=[f"{world} ranks {case}" for world, case in CASES])
def test_killed_at_random_steps_and_resumed(world: int, case: Case, tmp_path: Path) -> None:
    assert assert_kills_change_nothing(case, world, tmp_path, seed=world + len(str(case)), kills=4) >= 2


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("index", ["position", "explicit"])
def test_on_another_number_of_ranks_every_remaining_sample_comes_once(
    before: int, after: int, index: str, tmp_path: Path
) -> None:
    case = Case(size=61, batch=3, index=index)
    full_epoch = -(-61 // (3 * before))
    assert forked(before, train, case, tmp_path, None, full_epoch + 2) == [0] * before  # stops in the pruned epoch 1
    first = traces(tmp_path, before)
    assert forked(after, train, case, tmp_path) == [0] * after
    second = traces(tmp_path, after)

    plan = first[0]["orders"][1]
    assert len(plan) < 61
    assert all(rank["orders"][1] == plan for rank in first + second)
    done = delivered(first, 1)
    rest = delivered(second, 1)
    left = len(plan) - len(done)
    assert left > 0
    assert done + rest[:left] == plan
    assert rest[left:] == plan[:1] * (-left % after)  # padding: the plan's first sample
    for epoch in (2, 3):
        order = second[0]["orders"][epoch]
        assert delivered(second, epoch)[: len(order)] == order
    epochs: Any = result(tmp_path)["epochs"]
    assert [[kept, seen] for _, _, kept, seen in epochs] == [[61, 61]] + [
        [len(second[0]["orders"][e])] * 2 for e in (1, 2, 3)
    ]
