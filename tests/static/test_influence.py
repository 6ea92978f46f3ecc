"""Influence and DP against the written-out Hessian of logistic regression."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from infobatch.static import dp, influence
from infobatch.static.influence import Hessian, keep_longest_sum, parameter_influence
from infobatch.static.scores import errors, probabilities

N, HELD_OUT, CLASSES, DIMENSIONS, DAMPING = 40, 15, 3, 4, 0.05
RNG = np.random.default_rng(0)
FEATURES, LABELS = RNG.normal(size=(N, DIMENSIONS)), RNG.integers(CLASSES, size=N)
OTHERS, ANSWERS = RNG.normal(size=(HELD_OUT, DIMENSIONS)), RNG.integers(CLASSES, size=HELD_OUT)


def with_one(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, np.ones((len(rows), 1))], 1)


def loss(flat: torch.Tensor, sample_weights: torch.Tensor) -> torch.Tensor:
    """The penalised mean loss of logistic regression, a weight per sample."""
    logits = torch.from_numpy(with_one(FEATURES)) @ flat.view(CLASSES, -1).T
    each = torch.nn.functional.cross_entropy(logits, torch.from_numpy(LABELS), reduction="none")
    return (sample_weights * each).sum() / N + DAMPING / 2 * flat.square().sum()


def fitted(sample_weights: np.ndarray) -> np.ndarray:
    def both(flat: np.ndarray) -> tuple[float, np.ndarray]:
        parameters = torch.from_numpy(flat).requires_grad_()
        value = loss(parameters, torch.from_numpy(sample_weights))
        return value.item(), torch.autograd.grad(value, parameters)[0].numpy()

    start = np.zeros(CLASSES * (DIMENSIONS + 1))
    return minimize(both, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x


@pytest.fixture(scope="module")
def weights() -> np.ndarray:
    return fitted(np.ones(N)).reshape(CLASSES, -1)


def gradients_of(rows: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    wrong = errors(with_one(rows) @ weights.T, labels)
    return np.einsum("nc,nd->ncd", wrong, with_one(rows)).reshape(len(rows), -1)


def exact_hessian(weights: np.ndarray) -> np.ndarray:
    ones = torch.ones(N, dtype=torch.float64)
    return torch.autograd.functional.hessian(lambda flat: loss(flat, ones), torch.from_numpy(weights).ravel()).numpy()


def ours(weights: np.ndarray) -> np.ndarray:
    held_out = (OTHERS, with_one(OTHERS) @ weights.T, ANSWERS)
    return influence(FEATURES, with_one(FEATURES) @ weights.T, LABELS, validation=held_out, damping=DAMPING)


def test_influence_is_the_exact_hessian_solve(weights: np.ndarray) -> None:
    of_validation = gradients_of(OTHERS, ANSWERS, weights).mean(0)
    exact = gradients_of(FEATURES, LABELS, weights) @ np.linalg.solve(exact_hessian(weights), of_validation)
    np.testing.assert_allclose(ours(weights), exact, rtol=1e-6, atol=1e-10)


def test_influence_predicts_what_training_with_more_weight_on_a_sample_does(weights: np.ndarray) -> None:
    def validation_loss(flat: np.ndarray) -> float:
        likely = probabilities(with_one(OTHERS) @ flat.reshape(CLASSES, -1).T)
        return float(-np.log(likely[np.arange(HELD_OUT), ANSWERS]).mean())

    step = 1e-2
    predicted = ours(weights)
    for sample in (int(predicted.argmax()), int(predicted.argmin())):
        up, down = (fitted(np.ones(N) + sign * step * (np.arange(N) == sample)) for sign in (1, -1))
        fallen = (validation_loss(down) - validation_loss(up)) / (2 * step)
        assert fallen == pytest.approx(predicted[sample] / N, rel=0.01)


def test_parameter_influence_is_exact_where_all_directions_fit(weights: np.ndarray) -> None:
    logits = with_one(FEATURES) @ weights.T
    moves = parameter_influence(FEATURES, logits, LABELS, damping=DAMPING)
    exact = np.linalg.solve(exact_hessian(weights), gradients_of(FEATURES, LABELS, weights).T).T / N
    np.testing.assert_allclose(moves, exact, rtol=1e-6, atol=1e-9)


def test_random_directions_keep_squared_lengths_on_average(weights: np.ndarray) -> None:
    logits = with_one(FEATURES) @ weights.T
    exact = parameter_influence(FEATURES, logits, LABELS, damping=DAMPING).sum(0)
    draws = [
        parameter_influence(FEATURES[:], logits, LABELS, damping=DAMPING, directions=4, seed=seed).sum(0)
        for seed in range(60)
    ]
    assert draws[0].shape == (4,)
    squares = [np.square(draw).sum() for draw in draws]
    assert np.mean(squares) == pytest.approx(np.square(exact).sum(), abs=4 * np.std(squares) / np.sqrt(60))


def test_dp_drops_what_moves_the_parameters_least(weights: np.ndarray) -> None:
    logits = with_one(FEATURES) @ weights.T
    moves = parameter_influence(FEATURES, logits, LABELS, damping=DAMPING)
    kept = dp(FEATURES, logits, LABELS, 20, damping=DAMPING)
    assert len(set(kept.tolist())) == 20
    moved = np.linalg.norm(moves.sum(0) - moves[kept].sum(0))
    random = [np.linalg.norm(moves[RNG.choice(N, 20, replace=False)].sum(0)) for _ in range(200)]
    assert moved < np.min(random)


def test_dropping_is_close_to_the_best_of_all_ways() -> None:
    few = np.random.default_rng(3).normal(size=(12, 2))
    kept = keep_longest_sum(few, 7, 0)
    dropped = np.delete(np.arange(12), kept)
    lengths = sorted(np.linalg.norm(few[[*some]].sum(0)) for some in itertools.combinations(range(12), 5))
    ours = np.linalg.norm(few[dropped].sum(0))
    assert ours <= lengths[len(lengths) // 20]  # among the best twentieth of all 792


def test_a_hessian_without_damping_has_no_inverse() -> None:
    with pytest.raises(ValueError, match=r"damping must be above 0, got 0"):
        Hessian(with_one(FEATURES), np.full((N, CLASSES), 1 / CLASSES), 0)
