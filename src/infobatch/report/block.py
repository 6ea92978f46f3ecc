"""Numbers of very many samples on a page: in few steps, and as one deflated block of bytes."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

STEPS, FEW_STEPS = 4095, 255  # for the map and the order of lists, and for what is only read
TAIL = 296  # steps of a rank per factor of e


def quantise(values: NDArray[Any], scale: float, most: int = STEPS) -> tuple[NDArray[Any], dict[str, float]]:
    """Numbers as steps from 1 to ``most``, 0 where there is none; even steps of asinh(value / scale).

    Near 0 that is a linear scale, far from it a logarithmic one, on both sides.
    """
    known = np.isfinite(values)
    bent = np.arcsinh(np.where(known, values, 0).astype(np.float64) / scale)
    low, high = (float(bent[known].min()), float(bent[known].max())) if known.any() else (0.0, 1.0)
    steps = 1 + np.rint((bent - low) / ((high - low) or 1) * (most - 1))
    told = {"low": low, "high": high, "scale": scale, "steps": most - 1}
    return smallest(np.where(known, steps, 0)), told


def tail_steps(values: NDArray[Any]) -> NDArray[Any]:
    """Ranks as steps that are fine at the top: of N values, 1 + 296 · ln(N / (values that are at least as high)).

    >>> tail_steps(np.array([0.1, 0.9, np.nan, 0.5])).tolist()
    [1, 326, 0, 121]
    """
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(-values[known], kind="stable")]
    steps = np.zeros(len(values))
    steps[order] = 1 + np.rint(TAIL * np.log(len(order) / np.arange(1, len(order) + 1)))
    return smallest(steps)


def scale_of(values: NDArray[Any]) -> float:
    """Half the mean size of the values: near it, a scale turns from linear to logarithmic."""
    size = np.abs(values[np.isfinite(values)])
    return float(size.mean()) / 2 or 1.0 if len(size) else 1.0


def smallest(values: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers from 0 on in as few bytes as they need."""
    most = int(values.max(initial=0))
    return values.astype(np.uint8 if most < 2**8 else np.uint16 if most < 2**16 else np.uint32)


def pack(columns: Mapping[str, NDArray[Any]]) -> tuple[str, list[dict[str, Any]]]:
    """(one deflated block of all columns as base64, where each of them lies in it).

    The bytes of numbers of two or four bytes stand apart, all first ones, then all second ones: they deflate better.
    """
    parts, layout, at = [], [], 0
    for name, values in columns.items():
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        planes = little.view(np.uint8).reshape(len(values), values.dtype.itemsize).T
        parts.append(np.ascontiguousarray(planes).tobytes())
        layout.append({"name": name, "at": at, "count": len(values), "bytes": values.dtype.itemsize})
        at += len(parts[-1])
    return base64.b64encode(zlib.compress(b"".join(parts), 6)).decode(), layout
