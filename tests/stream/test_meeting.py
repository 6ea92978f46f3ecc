"""Real processes with streams of different lengths: they end together, and know the same."""

from pathlib import Path
from typing import Any

import pytest
import torch

from distributed.launch import forked, torchrun
from stream import ranks_run


def notes(folder: Path, world: int) -> list[Any]:
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=True) for rank in range(world)]


def check_together(folder: Path, world: int) -> None:
    every = notes(folder, world)
    assert len({note["steps"] for note in every}) == 1
    most = (800 - 300 * (world - 1)) // ranks_run.BATCH + 1
    assert 5 < every[0]["steps"] <= most
    for note in every[1:]:
        assert all(torch.equal(a, b) for a, b in zip(note["weights"], every[0]["weights"], strict=True))
        assert torch.equal(note["ticks"], every[0]["ticks"])
        assert note["trained"] == every[0]["trained"]
    assert every[0]["ticks"].min() < 2**14  # something is left out
    shared = every[0]["steps"] // 4 * 4 * ranks_run.BATCH * world  # up to the last meeting, of all ranks
    first = 4 * ranks_run.BATCH * world  # keys have no number before it
    assert shared - 2 * first <= sum(every[0]["trained"].values()) <= shared


@pytest.mark.parametrize("workers", [0, 1])
def test_ranks_with_streams_of_different_lengths_end_together(tmp_path: Path, workers: int) -> None:
    assert forked(2, ranks_run.train, tmp_path, workers) == [0, 0]
    check_together(tmp_path, 2)


@pytest.mark.slow
def test_the_same_under_torchrun(tmp_path: Path) -> None:
    torchrun(Path(ranks_run.__file__), tmp_path, ranks=2)
    check_together(tmp_path, 2)


def test_ranks_go_on_bit_for_bit(tmp_path: Path) -> None:
    assert forked(2, ranks_run.go_on, tmp_path) == [0, 0]


def test_a_loop_without_together_is_told(tmp_path: Path) -> None:
    assert forked(2, ranks_run.forget_to_meet, tmp_path) == [0, 0]
    assert "loop over stream.together(loader)" in (tmp_path / "rank-1.txt").read_text()


def test_a_function_is_shared_out_to_ranks_and_workers(tmp_path: Path) -> None:
    assert forked(2, ranks_run.share_out, tmp_path) == [0, 0]
    a, b = (set(note["seen"]) for note in notes(tmp_path, 2))
    assert not a & b
    assert a | b == set(range(200))
