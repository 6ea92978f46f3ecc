"""One number per sample from logits, labels, features or the course of training; the highest are selected."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float64]


def least_confidence(logits: ArrayLike) -> Scores:
    """1 - the probability of the likeliest class, as the sum of the others so that no digits are lost.

    >>> least_confidence(np.log([[0.5, 0.3, 0.2], [0.9, 0.1, 0.0001]])).round(3)
    array([0.5, 0.1])
    """
    return np.asarray(np.sort(probabilities(logits), 1)[:, :-1].sum(1))


def margin(logits: ArrayLike) -> Scores:
    """1 - (probability of the likeliest class - that of the second).

    >>> margin(np.log([[0.5, 0.3, 0.2], [0.9, 0.1, 0.0001]])).round(3)
    array([0.8, 0.2])
    """
    likely = np.sort(probabilities(logits), 1)
    return np.asarray(likely[:, :-1].sum(1) + likely[:, -2])


def el2n(logits: ArrayLike, labels: ArrayLike) -> Scores:
    """EL2N: ‖probability - one-hot label‖ (Paul et al., *Deep Learning on a Data Diet*, 2021).

    >>> el2n(np.log([[0.6, 0.2, 0.2], [0.6, 0.2, 0.2]]), [0, 1]).round(3)
    array([0.49, 1.02])
    """
    return np.asarray(np.linalg.norm(errors(logits, labels), axis=1))


def grand(logits: ArrayLike, labels: ArrayLike, features: ArrayLike, *, bias: bool = True) -> Scores:
    """GraNd of the last layer: the norm of each sample's own gradient of the cross-entropy, ‖error‖·‖(feature, 1)‖.

    Without the 1 when the layer has no bias.
    """
    squares: Scores = np.square(np.asarray(features, np.float64)).sum(1)
    return np.asarray(el2n(logits, labels) * np.sqrt(squares + bias))


def forgetting(correct: ArrayLike) -> Scores:
    """How often a sample was right and then wrong the next time it was seen; never right counts as most forgotten.

    ``correct`` has a row per time and a column per sample: 1 right, 0 wrong, -1 not seen then. A sample that was
    never right gets the number of times, which no number of forgettings reaches (Toneva et al., 2019).

    >>> forgetting([[1, 0, 1], [0, 0, 1], [1, 0, 1]])
    array([1., 3., 0.])
    """
    seen = np.asarray(correct, np.int8)
    if seen.ndim != 2 or len(seen) == 0:
        raise ValueError(f"correct must be (times, samples) with at least one time, got the shape {seen.shape}")
    forgotten = np.zeros(seen.shape[1])
    before = seen[0] == 1
    learned = before.copy()
    for now in seen[1:]:
        forgotten += before & (now == 0)
        before = np.where(now == -1, before, now == 1)
        learned |= now == 1
    return np.where(learned, forgotten, float(len(seen)))


def probabilities(logits: ArrayLike) -> NDArray[np.float64]:
    """Softmax, in float64."""
    shifted = _logits(logits)
    shifted = np.exp(shifted - shifted.max(1, keepdims=True))
    return np.asarray(shifted / shifted.sum(1, keepdims=True), np.float64)


def errors(logits: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Probability - one-hot label; the label's own entry is minus the sum of the others, which loses no digits."""
    errors, classes = probabilities(logits), np.asarray(labels)
    rows = np.arange(len(errors))
    if classes.shape != rows.shape:
        raise ValueError(f"labels must name one class per row of logits: got {classes.shape} for {errors.shape}")
    errors[rows, classes] = 0
    errors[rows, classes] = -errors.sum(1)
    return errors


def _logits(logits: ArrayLike) -> NDArray[Any]:
    array = np.asarray(logits, np.float64)
    if array.ndim != 2 or array.shape[1] < 2:
        raise ValueError(f"logits must be (samples, classes) with at least two classes, got the shape {array.shape}")
    return array
