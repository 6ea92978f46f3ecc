"""What a sample did over training, in a few numbers, from its scores of every epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .history import NOT_TRAINED, ScoreHistory, sizes


@dataclass(frozen=True)
class Trajectories:
    """Numbers per sample over the epochs of a history, and the ``level`` that tells known from unknown.

    ``level`` is the mean of all scores in the history. A sample is known where its score is below it, as in the mean
    rule of InfoBatch. Where no score of a sample is there, its floats are NaN.
    """

    epochs: tuple[int, ...]
    level: float
    times_trained: NDArray[np.int32]
    mean: NDArray[np.float32]
    variability: NDArray[np.float32]  # the standard deviation of its scores
    least: NDArray[np.float32]
    most: NDArray[np.float32]
    last: NDArray[np.float32]
    forgetting_events: NDArray[np.int32]  # times it was known, and not the next time it was trained
    suspicion: NDArray[np.float32]

    @property
    def times_left_out(self) -> NDArray[np.int32]:
        """Epochs in which a sample was not trained."""
        return np.int32(len(self.epochs)) - self.times_trained

    @property
    def never_learned(self) -> NDArray[np.bool_]:
        """Samples that were never known."""
        return np.asarray(self.least >= self.level)

    @property
    def never_needed(self) -> NDArray[np.bool_]:
        """Samples that were known the first time, and ever after."""
        return np.asarray(self.most < self.level)

    @property
    def learned(self) -> NDArray[np.bool_]:
        """Samples that were not known at some time, and are at the end."""
        return np.asarray((self.most >= self.level) & (self.last < self.level))


def measure(history: ScoreHistory) -> Trajectories:
    """The numbers of all samples: a few passes over the history, one epoch in memory at a time."""
    epochs, size = history.epochs_known(), history.size
    times, count = np.zeros(size, np.int32), np.zeros(size, np.int32)
    mean, squares = np.zeros(size), np.zeros(size)
    least, most = np.full(size, np.inf, np.float32), np.full(size, -np.inf, np.float32)
    for epoch in epochs:
        scores = history.of(epoch)
        known = np.isfinite(scores)
        times += history.codes_of(epoch) != NOT_TRAINED
        count += known
        change = np.where(known, scores - mean, 0.0)
        mean += change / np.maximum(count, 1)
        squares += change * np.where(known, scores - mean, 0.0)
        np.fmin(least, scores, out=least)
        np.fmax(most, scores, out=most)
    total = int(count.sum())
    level = float((mean * count).sum() / total) if total else np.nan
    forgetting, last = _forgetting(history, epochs, level)
    none = count == 0
    for values in (mean, squares, least, most):
        values[none] = np.nan
    return Trajectories(
        epochs=tuple(epochs),
        level=level,
        times_trained=times,
        mean=mean.astype(np.float32),
        variability=np.sqrt(squares / np.maximum(count, 1)).astype(np.float32),
        least=least,
        most=most,
        last=last,
        forgetting_events=forgetting,
        suspicion=suspicion(history),
    )


def _forgetting(history: ScoreHistory, epochs: list[int], level: float) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """(how often each sample was known and then not, its last score)."""
    events = np.zeros(history.size, np.int32)
    last = np.full(history.size, np.nan, np.float32)
    for epoch in epochs:
        scores = history.of(epoch)
        events += (last < level) & (scores >= level)
        last = np.where(np.isnan(scores), last, scores)
    return events, last


def suspicion(history: ScoreHistory) -> NDArray[np.float32]:
    """How likely a sample's label is wrong, from 0 to 1: its mean rank among all samples over the epochs.

    In each epoch a sample's rank is the share of samples with a lower score; one that was left out keeps its last score.
    """
    total, counted = np.zeros(history.size, np.float64), np.zeros(history.size, np.int32)
    last = np.full(history.size, np.nan, np.float32)
    for epoch in history.epochs_known():
        scores = history.of(epoch)
        last = np.where(np.isnan(scores), last, scores)
        rank = _ranks(last, bool(history.signed.any()))
        known = np.isfinite(rank)
        total += np.where(known, rank, 0.0)
        counted += known
    return np.where(counted > 0, total / np.maximum(counted, 1), np.nan).astype(np.float32)


def _ranks(scores: NDArray[np.float32], signed: bool) -> NDArray[np.float64]:
    """The share of scores below each one, ties by halves."""
    levels = np.unique(sizes(signed)[2:])
    place = np.searchsorted(levels, scores)
    known = np.isfinite(scores)
    counts = np.bincount(place[known], minlength=len(levels) + 1)
    below = (np.cumsum(counts) - 0.5 * counts) / max(int(known.sum()), 1)
    return np.where(known, below[np.minimum(place, len(levels))], np.nan)
