"""The same three lines on 1 to 4 ranks: one plan, equal steps, the right gradient."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from distributed import training
from distributed.launch import forked, torchrun
from distributed.training import Case, delivered, traces, train


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_under_torchrun_every_kept_sample_is_on_exactly_one_rank(world: int, tmp_path: Path) -> None:
    case = Case(size=41, workers=1 if world == 2 else 0)

    torchrun(Path(training.__file__), json.dumps(asdict(case)), tmp_path, ranks=world)

    ranks = traces(tmp_path, world)
    plans = ranks[0]["orders"]
    assert all(rank["orders"] == plans for rank in ranks)
    assert len(plans[0]) == 41
    assert len(plans[1]) < 41
    for epoch, plan in plans.items():
        seen = delivered(ranks, epoch)  # checks that all ranks made equally many steps
        assert seen[: len(plan)] == plan
        assert seen[len(plan) :] == plan[:1] * (-len(plan) % world)  # padding: the plan's first sample


def assert_same_training(case: Case, world: int, folder: Path) -> None:
    """``world`` ranks go the way of one process with the world-fold batch, at every step."""
    alone, together = folder / "alone", folder / "together"
    alone.mkdir()
    together.mkdir()
    assert forked(1, train, replace(case, batch=case.batch * world), alone) == [0]
    assert forked(world, train, case, together) == [0] * world

    one, many = traces(alone, 1)[0], traces(together, world)
    assert all(rank["orders"] == one["orders"] for rank in many)
    assert any(len(plan) % world for plan in one["orders"].values())  # so that there was padding
    way = [norm for _, _, norm in one["steps"]]
    for rank in many:
        assert [norm for _, _, norm in rank["steps"]] == pytest.approx(way, rel=1e-12)
    a, b = training.result(alone), training.result(together)
    assert a["epochs"] == b["epochs"]
    assert a["learning rate"] == pytest.approx(b["learning rate"])
    assert b["scores"].tolist() == pytest.approx(a["scores"].tolist(), rel=1e-6)
    for x, y in zip(a["weights"] + a["momenta"], b["weights"] + b["momenta"], strict=True):
        assert y.flatten().tolist() == pytest.approx(x.flatten().tolist(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("index", ["position", "explicit", "key"])
@pytest.mark.parametrize("world", [2, 3])
def test_ddp_follows_the_gradient_of_one_process_with_the_larger_batch(world: int, index: str, tmp_path: Path) -> None:
    assert_same_training(Case(size=41, index=index), world, tmp_path)


def test_fsdp_follows_the_gradient_of_one_process_with_the_larger_batch(tmp_path: Path) -> None:
    assert_same_training(Case(size=41, wrap="fsdp"), 2, tmp_path)


@pytest.mark.parametrize("index", ["position", "explicit"])
def test_gradient_accumulation_without_sync_in_between(index: str, tmp_path: Path) -> None:
    assert_same_training(Case(size=41, batch=3, accumulate=2, index=index), 2, tmp_path)


def test_padding_of_a_last_batch_that_is_padding_alone(tmp_path: Path) -> None:
    """9 samples, 2 ranks, 4 each: of the ninth's step, rank 1 has nothing but padding."""
    assert_same_training(Case(size=9), 2, tmp_path)
