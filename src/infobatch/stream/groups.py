"""The groups of samples in a stream: the gradient of each group, and the probability that its samples go on.

A group is a key, or a bin of scores. The losses passed to ``update`` give it a running mean of the gradient's squared
norm; their weights tell how often it occurs in the stream. The probabilities follow from the noise budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.budget import SIZES, leaving_out, noise_factor, within_noise
from .shared import SharedArray
from .ticket import PERIOD

LEAST = 16  # losses of a group before any of its samples is left out
WINDOW = 512  # the number of losses in a group's running mean
MEMORY = 1 << 14  # the number of samples in the running shares of the groups


@dataclass(frozen=True)
class Rule:
    """How much to leave out: within a noise budget, or a wanted share; no probability is below ``floor``."""

    noise: float
    saving: float | None
    size: str
    floor: float

    def keep(self, size: NDArray[np.float64], count: NDArray[np.floating]) -> NDArray[np.float64]:
        """The probabilities of groups with these squared gradient norms and numbers of samples."""
        if self.saving is None:
            return within_noise(size, count, self.noise, self.floor)
        return leaving_out(size, count, self.saving * float(count.sum()), self.floor)

    def sizes(self, loss: NDArray[np.float64], lowest: float = 0.0) -> NDArray[np.float64]:
        """The gradients' squared norms; ``lowest`` is the lowest loss so far, where losses can be negative."""
        return np.asarray(SIZES[self.size](np.append(loss, min(lowest, 0.0)))[:-1], np.float64)


def ticks_of(keep: NDArray[np.float64]) -> NDArray[np.int64]:
    """Probabilities in ticks, rounded up."""
    return np.ceil(keep * PERIOD).clip(1, PERIOD).astype(np.int64)


class Groups:
    """Running figures of each group, and its probability, which workers read."""

    FIGURES = ("losses", "sum", "squares", "stands for")  # added per group at each renewal

    def __init__(self, count: int, rule: Rule) -> None:
        self.rule = rule
        self.ticks = SharedArray((count,), torch.int32, PERIOD)
        self.mean = np.zeros(count)
        self.square = np.zeros(count)  # of the squared norms
        self.window = np.zeros(count)  # the number of losses in the mean
        self.arrived = np.zeros(count)  # recent samples of the stream, estimated from the losses' weights
        self.trained = np.zeros(count, np.int64)
        self.stands_for = np.zeros(count)
        self.keep = 1.0  # the share of the stream that is let through now

    def __len__(self) -> int:
        return len(self.mean)

    def gather(
        self, group: NDArray[np.integer], size: NDArray[np.float64], weight: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The figures that these losses add to each group: a row for each of FIGURES."""
        per_group = [None, size, np.square(size), weight]
        return np.stack([np.bincount(group, values, len(self)).astype(np.float64) for values in per_group])

    def add(self, figures: NDArray[np.float64]) -> None:
        """Update the running figures and the probabilities."""
        losses, total, squares, stands_for = figures
        here = losses > 0
        reach = np.maximum(np.minimum(self.window + losses, WINDOW), losses)[here]
        for mean, values in ((self.mean, total), (self.square, squares)):
            mean[here] += (values[here] - losses[here] * mean[here]) / reach
        self.window[here] = np.minimum(self.window[here] + losses[here], WINDOW)
        self.arrived *= np.exp(-float(stands_for.sum()) / MEMORY)
        self.arrived += stands_for
        self.trained += losses.astype(np.int64)
        self.stands_for += stands_for
        self._renew()

    def _renew(self) -> None:
        known = np.flatnonzero(self.window >= LEAST)
        if not len(known):
            return
        keep = self.rule.keep(self._expected(known), self.arrived[known])
        self.ticks.array[known] = ticks_of(keep)
        self.keep = 1.0
        if (total := float(self.arrived.sum())) > 0:
            self.keep = float(self.arrived @ self.ticks.array) / PERIOD / total

    def _expected(self, known: NDArray[np.intp]) -> NDArray[np.float64]:
        """The squared norm to expect: the mean plus its standard error, to be careful where losses are few."""
        mean = self.mean[known]
        spread = np.maximum(self.square[known] - mean**2, 0)
        return mean + np.sqrt(spread / self.window[known])

    @property
    def noise(self) -> float:
        """The noise factor V of the current probabilities, from the running figures."""
        known = self.window > 0
        return noise_factor(self.mean[known], self.arrived[known], self.ticks.array[known] / PERIOD)

    _SAVED = ("mean", "square", "window", "arrived", "trained", "stands_for")

    def state(self) -> dict[str, Any]:
        """All values, to save."""
        arrays = {name: torch.from_numpy(getattr(self, name).copy()) for name in self._SAVED}
        return {**arrays, "ticks": self.ticks.state(), "keep": self.keep}

    def load(self, state: dict[str, Any]) -> None:
        """The inverse of :meth:`state`."""
        for name in self._SAVED:
            np.copyto(getattr(self, name), state[name].numpy())
        self.ticks.load(state["ticks"])
        self.keep = state["keep"]
