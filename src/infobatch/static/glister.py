"""Follow the validation set: take the samples whose gradients lower its loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .greedy import Picks
from .scores import errors as errors_of
from .selection import highest


def glister(
    features: ArrayLike,
    errors: ArrayLike,
    count: int,
    *,
    validation: tuple[ArrayLike, ArrayLike, ArrayLike],
    learning_rate: float = 0.1,
    rounds: int = 20,
    bias: bool = True,
    seed: int = 0,
) -> Picks:
    """GLISTER: greedily take what lowers the validation loss most, to first order (Killamsetty et al., 2021).

    A step along -g_z changes the mean validation loss by -η ∇L_valᵀ g_z. Each of the ``rounds`` takes its part of
    ``count`` by that gain, then moves the last layer by ``learning_rate`` × the mean gradient of all taken so far, and
    computes the validation gradient anew; ``rounds=count`` does so after every pick. ``validation``: features,
    logits and labels of held-out samples.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds!r}")
    if learning_rate < 0:
        raise ValueError(f"learning_rate must be at least 0, that of the training to come, got {learning_rate!r}")
    rng = np.random.default_rng(seed)
    inputs, wrong = np.asarray(features, np.float64), np.asarray(errors, np.float64)
    others, logits, labels = (np.asarray(array) for array in validation)
    if bias:
        inputs, others = (np.concatenate([rows, np.ones((len(rows), 1))], 1) for rows in (inputs, others))
    rest = np.ones(len(inputs), bool)
    picks = np.empty(0, np.int64)
    for part in np.array_split(np.arange(count), min(rounds, count)):
        step = learning_rate / max(len(picks), 1) * (wrong[picks].T @ inputs[picks])  # classes × dimensions
        now = errors_of(logits - others @ step.T, labels)
        gains = np.einsum("nc,nc->n", wrong, inputs @ (now.T @ others / len(others)).T)
        best = highest(np.where(rest, gains, -np.inf), len(part), rng)
        rest[best] = False
        picks = np.concatenate([picks, best])
    return picks
