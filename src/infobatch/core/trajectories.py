"""A few numbers per sample about its course of training, from its scores of every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .history import NOT_TRAINED, ScoreHistory


@dataclass(frozen=True)
class Trajectories:
    """Numbers per sample over the epochs of a history, and each epoch's threshold.

    A sample is known (the model knows it) in an epoch if its score is below the epoch's threshold: the mean score of
    that epoch, or that of all epochs if it is higher. A sample without any score has NaN as its floats.
    """

    epochs: tuple[int, ...]
    thresholds: tuple[float, ...]  # one per epoch
    times_trained: NDArray[np.int32]
    mean: NDArray[np.float32]
    variability: NDArray[np.float32]  # the standard deviation of its scores
    forgetting_events: NDArray[np.int32]  # times it was known and, with a higher score, not known the next time
    suspicion: NDArray[np.float32]
    never_learned: NDArray[np.bool_]  # not known whenever it was trained
    never_needed: NDArray[np.bool_]  # known whenever it was trained
    learned: NDArray[np.bool_]  # not known at some time, and known the last time

    @property
    def times_left_out(self) -> NDArray[np.int32]:
        """Epochs in which a sample was not trained."""
        return np.asarray(len(self.epochs) - self.times_trained, np.int32)


def measure(history: ScoreHistory) -> Trajectories:
    """The numbers of all samples: two passes over the history, one epoch in memory at a time."""
    size = history.size
    times, count = np.zeros(size, np.int32), np.zeros(size, np.int32)
    mean, squares = np.zeros(size), np.zeros(size)
    means = []
    for epoch, scores, last in _epochs(history):
        known = np.isfinite(scores)
        times += history.codes_of(epoch) != NOT_TRAINED
        count += known
        change = np.where(known, scores - mean, 0.0)
        mean += change / np.maximum(count, 1)
        squares += change * np.where(known, scores - mean, 0.0)
        there = np.isfinite(last)
        means.append(float(np.mean(last[there], dtype=np.float64)) if there.any() else np.nan)
    level = float(np.mean(means))
    none = count == 0
    thresholds = tuple(max(own, level) for own in means)
    return Trajectories(
        epochs=tuple(history.epochs_known()),
        thresholds=thresholds,
        times_trained=times,
        mean=np.where(none, np.nan, mean).astype(np.float32),
        variability=np.where(none, np.nan, np.sqrt(squares / np.maximum(count, 1))).astype(np.float32),
        suspicion=suspicion(history),
        **_course(history, thresholds),
    )


def suspicion(history: ScoreHistory) -> NDArray[np.float32]:
    """How suspect each label is, from 0 to 1: the rank of the sample's mean score over the epochs, with weights √epoch.

    A wrong label is learned late, if at all, so that its scores stay high for long. The first epoch, counted 0, says
    little about it and has almost no weight; late epochs have more weight, but not so much that a wrong label is
    trusted once it is learned by heart. A sample that was left out keeps its last score: it was left out because that
    was low.
    """
    total, weights = np.zeros(history.size), np.zeros(history.size)
    for epoch, _, last in _epochs(history):
        weight, there = max(np.sqrt(epoch), 1e-3), np.isfinite(last)  # not 0, in case there is only one epoch
        total += weight * np.where(there, last, 0.0)
        weights += weight * there
    return _ranks(np.where(weights > 0, total / np.maximum(weights, 1e-3), np.nan))


def _epochs(history: ScoreHistory) -> Iterator[tuple[int, NDArray[np.float32], NDArray[np.float32]]]:
    """(epoch, scores of the samples trained in it, each sample's last score by then), epoch by epoch."""
    last = np.full(history.size, np.nan, np.float32)
    for epoch in history.epochs_known():
        scores = history.of(epoch)
        last = np.where(np.isnan(scores), last, scores)
        yield epoch, scores, last


def _course(history: ScoreHistory, thresholds: tuple[float, ...]) -> dict[str, NDArray[Any]]:
    """The fields that depend on when each sample was known, and when not."""
    size = history.size
    events = np.zeros(size, np.int32)
    ever, always, now = np.zeros(size, bool), np.ones(size, bool), np.zeros(size, bool)
    before = np.full(size, np.nan, np.float32)
    for (_, scores, last), threshold in zip(_epochs(history), thresholds, strict=True):
        trained, known = np.isfinite(scores), scores < threshold
        events += now & trained & ~known & (scores > before)
        ever |= known
        always &= known | ~trained
        now = np.where(trained, known, now)
        before = last
    scored = np.isfinite(before)
    return {
        "forgetting_events": events,
        "never_learned": scored & ~ever,
        "never_needed": scored & always,
        "learned": scored & ~always & now,
    }


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """The share of values below each value, from 0 to 1; NaN for a NaN.

    >>> _ranks(np.array([0.5, np.nan, 3.0, 1.0])).tolist()
    [0.0, nan, 1.0, 0.5]
    """
    known = np.flatnonzero(np.isfinite(values))
    in_order = np.sort(values[known])
    ranks = np.full(len(values), np.nan, np.float32)
    ranks[known] = np.searchsorted(in_order, values[known]) / max(len(known) - 1, 1)
    return ranks
