"""How the scores of each epoch are distributed, in bins that suit them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .block import scale_of

BINS = 48
Counts = tuple[NDArray[Any], NDArray[Any]]  # scores, and how many samples have each score
Bend = Callable[[NDArray[Any]], NDArray[Any]]


def bin_scores(epochs: Sequence[int], parts: Sequence[Counts]) -> dict[str, Any]:
    """The share of the samples in each bin, per epoch, with the edges of the bins and the places of round values."""
    scores = np.concatenate([values[count > 0] for values, count in parts]) if parts else np.zeros(0)
    if not len(scores):
        return {"epochs": [], "shares": [], "ticks": [], "edges": []}
    bend, back = _log_scale(scores) if scores.min() >= 0 else _two_sided_scale(scores)
    places = bend(scores)
    edges = np.linspace(places.min(), max(places.max(), places.min() + 1e-9), BINS + 1)
    shares = [_shares(bend(values), count, edges).round(5).tolist() for values, count in parts]
    step = float(edges[1] - edges[0])
    values = np.array(_round_values(scores))
    values = values[np.isclose(back(bend(values)), values)]  # without those too small for the scale
    ticks = zip((bend(values) - edges[0]) / step, values, strict=True)
    return {
        "epochs": list(epochs),
        "shares": shares,
        "edges": back(edges).tolist(),
        "ticks": [[float(place), float(value)] for place, value in ticks if 0 <= place <= BINS],
    }


def _shares(places: NDArray[Any], count: NDArray[Any], edges: NDArray[Any]) -> NDArray[np.float64]:
    """The share of the counts in each bin; the count of a place is spread half-way to its neighbours."""
    order = np.argsort(places, kind="stable")
    places, count = places[order], count[order]
    middles = (places[1:] + places[:-1]) / 2
    borders = np.concatenate([[min(edges[0], places[0])], middles, [max(edges[-1], places[-1])]])
    below = np.interp(edges, borders, np.concatenate([[0.0], np.cumsum(count)]))
    below[0], below[-1] = 0, count.sum()
    return np.asarray(np.diff(below) / max(float(count.sum()), 1.0))


def _log_scale(values: NDArray[Any]) -> tuple[Bend, Bend]:
    least = max(float(values[values > 0].min(initial=math.inf)), 1e-6) if (values > 0).any() else 1e-6
    return lambda v: np.log10(np.maximum(v, least / 2)), lambda p: 10**p


def _two_sided_scale(values: NDArray[Any]) -> tuple[Bend, Bend]:
    scale = scale_of(values)
    return lambda v: np.arcsinh(v / scale), lambda p: np.sinh(p) * scale


def _round_values(values: NDArray[Any]) -> list[float]:
    """Powers of ten as far as the values go, on both sides of 0 where some are negative."""
    top = float(np.abs(values).max()) or 1.0
    sizes = [10.0**power for power in range(-7, 7) if 10.0**power <= top * 1.0001]
    return [-s for s in sizes] + sizes if values.min() < 0 else sizes
