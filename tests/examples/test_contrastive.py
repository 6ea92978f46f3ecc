"""The example of losses that are not one per sample, and that its weighted loss of pairs is unbiased."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from distributed.launch import ROOT
from infobatch import PairWeights
from infobatch.core.plan import EpochPlan
from infobatch.core.shuffle import Order
from infobatch.core.weights import Weights


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contrastive", ROOT / "examples" / "contrastive.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("loss", ["anchors", "pairs", "scalar"])
def test_every_kind_of_loss_is_pruned_and_learns(
    loss: str, example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["contrastive", "--loss", loss, "--epochs", "3", "--samples", "500"])
    with torch.random.fork_rng(devices=[]):
        example.main()
    out = capsys.readouterr().out
    assert re.search(r"saved [1-9]\d?\.\d% of full training", out)
    right = re.search(r"class is right: (\d+\.\d)%", out)
    assert right is not None
    assert float(right[1]) > 45  # one in ten by chance


SIZE, LOW, KEPT_OF_LOW, BATCH = 6, 4, 2, 2  # of the four samples below the mean two are kept


def plans() -> list[EpochPlan]:
    found = []
    for low in itertools.combinations(range(LOW), KEPT_OF_LOW):
        values = np.ones(SIZE)
        values[:LOW] = 0
        values[list(low)] = LOW / KEPT_OF_LOW
        found.append(EpochPlan(1, Order(np.flatnonzero(values)), Weights.dense(values), SIZE))
    return found


def batches(indices: list[int]) -> list[list[torch.Tensor]]:
    """Of every order of these samples."""
    orders = itertools.permutations(indices)
    return [[torch.tensor(order[i : i + BATCH]) for i in range(0, len(order), BATCH)] for order in orders]


def test_the_weighted_loss_of_pairs_adds_up_to_that_of_full_data_in_expectation(example: ModuleType) -> None:
    """Over all plans and all orders: exact for pairs, and wrong where each sample weighs by itself."""
    each = torch.rand(SIZE, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def epochs(indices: list[int], weight: torch.Tensor) -> list[float]:
        """The sum of the batches' losses, of every order."""
        return [
            sum(float(example.mean_of_pairs((each * weight)[batch][:, batch])) for batch in order)
            for order in batches(indices)
        ]

    full = np.mean(epochs(list(range(SIZE)), torch.ones(SIZE, SIZE)))
    everything = torch.arange(SIZE)
    exact, by_anchor = [], []
    for plan in plans():
        own = torch.zeros(SIZE, dtype=torch.float64)
        own[torch.from_numpy(plan.indices.copy())] = torch.from_numpy(plan.weights.astype(np.float64))
        relative = PairWeights(plan, torch.device("cpu"), torch.float64).relative(everything[:, None], everything)
        exact += epochs(plan.indices.tolist(), own[:, None] * relative)
        by_anchor += epochs(plan.indices.tolist(), own[:, None].expand(-1, SIZE))
    assert np.mean(exact) == pytest.approx(full, rel=1e-12)
    assert np.mean(by_anchor) != pytest.approx(full, rel=1e-3)


def test_the_weighted_negatives_of_an_anchor_add_up_to_those_of_full_data() -> None:
    """Given that the anchor is kept, over all plans and batches it may be in."""
    shares = torch.rand(SIZE, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def mean_sum(anchor: int, plan: EpochPlan | None) -> float:
        kept = list(range(SIZE)) if plan is None else plan.indices.tolist()
        others = [i for i in kept if i != anchor]
        weight = torch.ones(SIZE, dtype=torch.float64)
        if plan is not None:
            pairs = PairWeights(plan, torch.device("cpu"), torch.float64)
            weight = pairs.relative(torch.tensor(anchor), torch.arange(SIZE))
        return float(sum(shares[anchor, i] * weight[i] for i in others)) * (BATCH - 1) / len(others)

    for anchor in range(SIZE):
        full = mean_sum(anchor, None)
        pruned = [mean_sum(anchor, plan) for plan in plans() if anchor in plan.indices]
        assert np.mean(pruned) == pytest.approx(full, rel=1e-12)


def test_with_equal_weights_anchors_have_torchs_own_cross_entropy(example: ModuleType) -> None:
    first, second = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(2))
    found = example.anchor_losses(first, second, torch.ones(5, 5))
    expected = torch.nn.functional.cross_entropy(
        first @ second.T / example.TEMPERATURE, torch.arange(5), reduction="none"
    )
    torch.testing.assert_close(found, expected)
    weight = 0.5 + torch.rand(5, 5, generator=torch.Generator().manual_seed(3))
    alike = (first @ second.T / example.TEMPERATURE).double()
    for i in range(5):
        total = sum(torch.exp(alike[i, j]) * (1 if i == j else weight[i, j]) for j in range(5))
        expected_one = (total.log() - alike[i, i]).float()
        torch.testing.assert_close(example.anchor_losses(first, second, weight.clone())[i], expected_one)


def test_scores_are_the_mean_of_a_samples_pairs(example: ModuleType) -> None:
    each = torch.rand(3, 3, generator=torch.Generator().manual_seed(4))
    expected = [float(each[i].mean() + each[:, i].mean()) / 2 for i in range(3)]
    assert example.scores_of(each).tolist() == pytest.approx(expected)
    assert float(example.mean_of_pairs(each)) == pytest.approx(float((each.sum() - each.trace()) / 6))
