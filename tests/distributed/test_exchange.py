"""What ranks tell each other, and that they refuse to go on when they do not agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distributed import scenarios
from distributed.launch import forked, torchrun
from distributed.scenarios import notes


@pytest.mark.slow
def test_a_rank_made_differently_fails_on_every_rank_and_is_named(tmp_path: Path) -> None:
    torchrun(Path(scenarios.__file__), "disagree", tmp_path)

    for messages in notes(tmp_path, 2):
        assert messages.pop("nothing") == "no error"
        expected = {
            "size": "size is 20 on rank 0 and 21 on rank 1",
            "seed": "seed is 0 on rank 0 and 1 on rank 1",
            "method": "method is 'infobatch' on rank 0 and 'random' on rank 1",
            "momentum": "momentum is 1.0 on rank 0 and 0.5 on rank 1",
            "num_epochs": "num_epochs is 4 on rank 0 and 5 on rank 1",
        }
        for name, text in expected.items():
            assert messages[name].startswith("ValueError: the ranks made different InfoBatches")
            assert text in messages[name]
        assert "'ratio': 0.5" in messages["ratio"]
        assert "'ratio': 0.6" in messages["ratio"]
        assert "strata" in messages["strata"]


def test_every_method_has_the_same_plans_on_any_number_of_ranks(tmp_path: Path) -> None:
    """Means of batches depend on who shares them, so that the plans of bls and repb are the same on all ranks only."""
    by_world = {}
    for world in (1, 2, 3):
        folder = tmp_path / str(world)
        folder.mkdir()
        assert forked(world, scenarios.every_method, folder) == [0] * world
        ranks = notes(folder, world)
        assert all(rank == ranks[0] for rank in ranks)
        by_world[world] = ranks[0]
    for name, alone in by_world[1].items():
        never = ("divbs", "full", "ies", "selective-backprop")  # in so few epochs, or by plans
        assert any(len(indices) < 31 for indices, _ in alone["plans"]) == (name not in never)
        if name in ("bls", "repb"):
            continue
        for world in (2, 3):
            assert by_world[world][name]["plans"] == alone["plans"], (name, world)
            assert by_world[world][name]["scores"] == alone["scores"], (name, world)


def test_different_plans_are_found_by_their_digests(tmp_path: Path) -> None:
    assert forked(2, scenarios.different_plans, tmp_path) == [0, 0]

    for message in notes(tmp_path, 2):
        assert message.startswith("RuntimeError: the ranks have 2 different plans, so that")


def test_ranks_that_resume_at_different_places_are_found_out(tmp_path: Path) -> None:
    assert forked(2, scenarios.different_places, tmp_path) == [0, 0]

    for message in notes(tmp_path, 2):
        assert "Error: the ranks" in message


@pytest.mark.parametrize("index_key", [None, "index"])
@pytest.mark.parametrize("world", [1, 2])
def test_bf16_losses_and_indices_above_2_to_the_24_stay_exact(
    world: int, index_key: str | None, tmp_path: Path
) -> None:
    assert forked(world, scenarios.far_indices, tmp_path, index_key) == [0] * world

    seen: list[Any] = notes(tmp_path, world)
    for rank in seen:
        assert rank["scored"]
        assert rank["right"]
        assert rank["plan"] == seen[0]["plan"]
    assert 20 < len(seen[0]["plan"]) < 61


def test_losses_that_are_not_finite_are_counted_once(tmp_path: Path) -> None:
    """Here it is the first sample of the plan, which is also the padding."""
    assert forked(2, scenarios.not_finite, tmp_path) == [0, 0]

    assert notes(tmp_path, 2) == [{"rejected": 1, "unknown": 1}] * 2


def test_the_default_back_end_will_do(tmp_path: Path) -> None:
    assert forked(2, scenarios.default_back_end, tmp_path) == [0, 0]

    assert notes(tmp_path, 2) == [{"scores": [float(i) for i in range(11)], "done": 0}] * 2
