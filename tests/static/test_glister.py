"""GLISTER: picks follow the validation gradient, which follows the picks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from infobatch.static import glister
from infobatch.static.scores import errors

RNG = np.random.default_rng(0)


def test_picks_are_those_of_a_greedy_that_updates_a_real_layer() -> None:
    features, labels = RNG.normal(size=(30, 4)), RNG.integers(3, size=30)
    others, answers = RNG.normal(size=(20, 4)), RNG.integers(3, size=20)
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 3).double()
    start = [parameter.detach().clone() for parameter in layer.parameters()]

    def gradient(rows: np.ndarray, targets: np.ndarray) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(layer(torch.from_numpy(rows)), torch.from_numpy(targets))
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*layer.parameters()])])

    def logits(rows: np.ndarray) -> np.ndarray:
        return layer(torch.from_numpy(rows)).detach().numpy()

    at_start = torch.stack([gradient(features[[i]], labels[[i]]) for i in range(30)])
    wrong, held_out = errors(logits(features), labels), (others, logits(others), answers)
    naive: list[int] = []
    for _ in range(12):
        gains = at_start @ gradient(others, answers)
        gains[naive] = -torch.inf
        naive.append(int(gains.argmax()))
        step = 0.7 * at_start[naive].mean(0)
        with torch.no_grad():
            layer.weight.copy_(start[0] - step[:12].view(3, 4))
            layer.bias.copy_(start[1] - step[12:])
    picks = glister(features, wrong, 12, validation=held_out, learning_rate=0.7, rounds=12)
    assert picks.tolist() == naive
    without = glister(features, wrong, 12, validation=held_out, learning_rate=0.0, rounds=12)
    assert without.tolist() != naive  # the updates matter


def test_it_prefers_clean_samples_on_a_set_with_label_noise() -> None:
    def made(size: int) -> tuple[np.ndarray, np.ndarray]:
        labels = RNG.integers(3, size=size)
        return 2 * np.eye(3)[labels] @ np.eye(3, 6) + RNG.normal(size=(size, 6)), labels

    features, truth = made(600)
    labels = truth.copy()
    noisy = RNG.choice(600, 180, replace=False)
    labels[noisy] = (truth[noisy] + RNG.integers(1, 3, size=180)) % 3
    others, answers = made(100)
    weights = 0.2 * np.eye(3, 6)  # an early model: it has the right idea, no more
    wrong = errors(features @ weights.T, labels)
    picks = glister(features, wrong, 200, validation=(others, others @ weights.T, answers), bias=False)
    assert len(set(picks.tolist())) == 200
    assert np.isin(picks, noisy).mean() < 0.05  # 0.3 by chance


@pytest.mark.parametrize(("options", "text"), [({"rounds": 0}, "rounds"), ({"learning_rate": -1.0}, "learning_rate")])
def test_wrong_options_are_named(options: dict[str, float], text: str) -> None:
    rows, wrong = np.ones((3, 2)), np.zeros((3, 2))
    with pytest.raises(ValueError, match=f"{text} must be at least"):
        glister(rows, wrong, 1, validation=(rows, wrong, np.zeros(3, int)), **options)
