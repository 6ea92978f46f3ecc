import numpy as np
import pytest
import torch

from chance import EveryOutcome, outcomes
from infobatch.core.weights import Weights
from infobatch.stream import choose as choosing
from infobatch.stream.choose import choose
from infobatch.stream.groups import Rule
from infobatch.stream.ticket import PERIOD, are_of, tag_of, weights

RULE = Rule(0.3, None, "smooth", 0.1)
TAG = tag_of(1)


def test_the_expected_weight_is_1_over_many_draws() -> None:
    loss = torch.tensor([0.01, 0.1, 0.5, 1.0, 3.0, 0.2])
    total, rounds = torch.zeros(6, dtype=torch.float64), 1000
    for seed in range(rounds):
        chosen = choose(loss, RULE, 0.0, TAG, np.random.default_rng(seed))
        total[chosen.positions] += weights(chosen.ticket)
        assert chosen.looked_at == 6
        assert are_of(chosen.ticket, TAG)
    assert torch.allclose(total / rounds, torch.ones(6, dtype=torch.float64), atol=5 * 3 / rounds**0.5)


def test_the_noise_stays_within_the_budget_and_easy_samples_are_rare() -> None:
    loss = torch.from_numpy(np.random.default_rng(0).exponential(size=256))
    counts = [len(choose(loss, RULE, 0.0, TAG, np.random.default_rng(seed))) for seed in range(20)]
    assert max(counts) - min(counts) <= 1
    assert max(counts) < 256 * 0.7  # chance alone would keep 1 / 1.3 = 0.77
    keep = RULE.keep(RULE.sizes(loss.numpy()), np.ones(256))
    assert float((loss.numpy() / keep).sum() / loss.sum()) == pytest.approx(1.3, rel=1e-3)


def test_exact_over_every_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """The draw within a batch is core's systematic one, with probabilities that are whole ticks."""
    monkeypatch.setattr(choosing, "BITS", 3)
    monkeypatch.setattr(choosing, "PERIOD", 8)
    monkeypatch.setattr("infobatch.stream.groups.PERIOD", 8)
    loss = torch.tensor([0.05, 0.4, 2.0])

    def draw(rng: EveryOutcome) -> Weights:
        chosen = choose(loss, RULE, 0.0, TAG, rng)  # type: ignore[arg-type]
        values = np.zeros(3)
        values[chosen.positions.numpy()] = 8 / ((chosen.ticket.numpy() & (PERIOD - 1)) + 1)
        return Weights.dense(values)

    expected = sum(float(chance) * np.array(weight) for chance, weight in outcomes(draw))
    assert np.abs(expected - 1).max() < 1e-12


def test_losses_that_are_not_finite_are_always_chosen() -> None:
    loss = torch.tensor([torch.nan, 0.1, torch.inf, 0.1])
    for seed in range(10):
        chosen = choose(loss, RULE, 0.0, TAG, np.random.default_rng(seed))
        assert {0, 2} <= set(chosen.positions.tolist())


def test_a_single_sample_is_chosen() -> None:
    assert len(choose(torch.tensor([0.0]), RULE, 0.0, TAG, np.random.default_rng(0))) == 1
