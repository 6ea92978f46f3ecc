"""Ray Train with two workers on this machine: our sampler stays, and Ray's restarts go on bit for bit.

Ray is started once, in a process of its own (ray_two.py), which trains the example too.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distributed.launch import ROOT, python

pytestmark = pytest.mark.slow  # Ray

SIZE, EPOCHS = 90, 4


@pytest.fixture(scope="module")
def ray_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], str]:
    """What each worker has seen, and what the example printed."""
    folder = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "examples"))
        patch.setenv("HOME", str(folder))  # where Ray leaves a token for its own use
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # no cluster: Ray talks over loopback only
        done = python(Path(__file__).with_name("ray_two.py"), folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)], done.stdout


Runs = tuple[list[dict[str, Any]], str]


def flat(batches: list[list[int]]) -> list[int]:
    return [index for batch in batches for index in batch]


@pytest.mark.slow
def test_the_example_runs(ray_run: Runs) -> None:
    assert re.search(r"saved [1-9]\d?\.\d% of full training with 2 workers", ray_run[1])
    assert "test accuracy" in ray_run[1]


@pytest.mark.slow
@pytest.mark.parametrize("run", ["full", "pruned"])
def test_the_workers_share_every_epochs_plan(ray_run: Runs, run: str) -> None:
    one, other = (worker[run] for worker in ray_run[0])
    pruned = [len(plan) < SIZE for plan in one["plans"]]
    assert pruned == [False, run == "pruned", run == "pruned", False]
    assert one["plans"] == other["plans"]
    for mine, theirs, plan, length in zip(one["seen"], other["seen"], one["plans"], one["lengths"], strict=True):
        assert len(mine) == len(theirs) == length == -(-len(plan) // 8)
        assert sorted(flat(mine) + flat(theirs)) == sorted(plan + [plan[0]] * (len(plan) % 2))


@pytest.mark.slow
def test_the_plans_seed_is_the_first_workers(ray_run: Runs) -> None:
    assert [worker["seed"] for worker in ray_run[0]] == [7, 7]


@pytest.mark.slow
def test_every_loss_stands_at_its_sample(ray_run: Runs) -> None:
    for run in ("full", "pruned", "stay"):
        one, other = (worker[run] for worker in ray_run[0])
        losses = {i: worker["losses"][i] for worker in (other, one) for i in flat(worker["seen"][-1])}
        assert [losses[i] for i in range(SIZE)] == one["scores"].tolist() == other["scores"].tolist()


@pytest.mark.slow
def test_pruned_training_follows_the_learning_rate_of_full_training(ray_run: Runs) -> None:
    full, pruned = ray_run[0][0]["full"], ray_run[0][0]["pruned"]
    assert [r[-1] for r in pruned["rates"]] == [r[-1] for r in full["rates"]]
    assert sum(map(len, pruned["rates"])) < sum(map(len, full["rates"])) == 12 * EPOCHS
    assert len(pruned["correct"]) == EPOCHS  # validation
    assert pruned["correct"][-1] > 16  # of 32


@pytest.mark.slow
def test_a_restarted_run_goes_on_bit_for_bit(ray_run: Runs) -> None:
    for rank, worker in enumerate(ray_run[0]):
        whole, resumed = worker["pruned"], worker["resumed"]
        real = len(whole["plans"][1][rank::2]) - 16  # rank 1 may have padding, which weighs nothing, at the end
        assert flat(resumed["seen"][0])[:real] == flat(whole["seen"][1][4:])[:real]
        assert resumed["seen"][1:] == whole["seen"][2:]
        assert resumed["rates"] == [whole["rates"][1][4:], *whole["rates"][2:]]
        assert all(torch.equal(a, b) for a, b in zip(resumed["weights"], whole["weights"], strict=True))
        np.testing.assert_array_equal(resumed["scores"], whole["scores"])


@pytest.mark.slow
def test_where_steps_stay_they_and_the_schedule_are_those_of_full_data(ray_run: Runs) -> None:
    one, other = (worker["stay"] for worker in ray_run[0])
    full = ray_run[0][0]["full"]
    assert one["rates"] == other["rates"] == full["rates"]
    assert one["lengths"] == other["lengths"] == [12] * EPOCHS
    for mine, theirs, plan in zip(one["seen"], other["seen"], one["plans"], strict=True):
        assert len(mine) == len(theirs) == 12
        assert sorted(flat(mine) + flat(theirs)) == sorted(plan + [plan[0]] * (len(plan) % 2))
    assert [len(plan) < SIZE for plan in one["plans"]] == [False, True, True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ("other sampler", "from WeightedRandomSampler, not from train_data.sampler"),
        ("position", 'InfoBatch(..., index_key="index")'),
        ("other data", "use ray.train.torch.prepare_data_loader"),
        ("made outside", "make the InfoBatch inside the training function"),
    ],
)
def test_what_is_refused(ray_run: Runs, wrong: str, remedy: str) -> None:
    for worker in ray_run[0]:
        assert remedy in worker["refused"][wrong]


def test_without_ray_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "infobatch.integrations.ray", raising=False)
    with pytest.raises(ImportError, match=r'pip install "infobatch\[ray\]"'):
        importlib.import_module("infobatch.integrations.ray")
