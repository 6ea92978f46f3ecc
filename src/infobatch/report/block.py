"""Numbers of very many samples on a page: rounded to few steps, and packed into one deflated block of bytes."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

# STEPS for the map and the order of lists, FEW_STEPS for numbers that are only read.
STEPS, FEW_STEPS = 4095, 255
TAIL = 296  # steps of a rank for each factor of e


def quantise(values: NDArray[Any], scale: float, most: int = STEPS) -> tuple[NDArray[Any], dict[str, float]]:
    """Numbers as steps from 1 to ``most``, 0 where a value is not finite; even steps of asinh(value / scale).

    The scale is linear near 0 and logarithmic far from it, on both sides. Also returns what turns steps into numbers.
    """
    known = np.isfinite(values)
    bent = np.arcsinh(np.where(known, values, 0).astype(np.float64) / scale)
    low, high = (float(bent[known].min()), float(bent[known].max())) if known.any() else (0.0, 1.0)
    steps = 1 + np.rint((bent - low) / ((high - low) or 1) * (most - 1))
    about = {"low": low, "high": high, "scale": scale, "steps": most - 1}
    return narrow_integers(np.where(known, steps, 0)), about


def tail_steps(values: NDArray[Any]) -> NDArray[Any]:
    """Ranks as steps that are fine at the top: 1 + 296 · ln(N / (how many of the N values are at least as high)).

    >>> tail_steps(np.array([0.1, 0.9, np.nan, 0.5])).tolist()
    [1, 326, 0, 121]
    """
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(-values[known], kind="stable")]
    steps = np.zeros(len(values))
    steps[order] = 1 + np.rint(TAIL * np.log(len(order) / np.arange(1, len(order) + 1)))
    return narrow_integers(steps)


def scale_of(values: NDArray[Any]) -> float:
    """Half the mean size of the values: the scale turns from linear to logarithmic near it."""
    size = np.abs(values[np.isfinite(values)])
    return float(size.mean()) / 2 or 1.0 if len(size) else 1.0


def narrow_integers(values: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers from 0 on, with as few bytes each as the largest needs."""
    most = int(values.max(initial=0))
    return values.astype(np.uint8 if most < 2**8 else np.uint16 if most < 2**16 else np.uint32)


def pack(columns: Mapping[str, NDArray[Any]]) -> tuple[str, list[dict[str, Any]]]:
    """(one deflated block of all columns as base64, where each column lies in it).

    A column of wider numbers is stored as all first bytes, then all second bytes and so on: it deflates better.
    """
    parts, layout, at = [], [], 0
    for name, values in columns.items():
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        planes = little.view(np.uint8).reshape(len(values), values.dtype.itemsize).T
        parts.append(np.ascontiguousarray(planes).tobytes())
        layout.append({"name": name, "at": at, "count": len(values), "bytes": values.dtype.itemsize})
        at += len(parts[-1])
    return base64.b64encode(zlib.compress(b"".join(parts), 6)).decode(), layout
