"""The noise budget: the probabilities that keep the fewest samples at a given noise factor.

Keeping sample i with probability π_i and the weight 1/π_i multiplies the second moment of a step's gradient by
V = Σ(m_i/π_i) / Σ m_i, where m_i is the squared norm of the sample's gradient. The fewest samples at V ≤ 1 + noise are
kept by π_i = min(1, c·√m_i).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .checks import is_real
from .method import smooth_bound

_HALVINGS = 60
KEYS = 1 << 16  # how many values :func:`key_of` can have

# The squared size of the gradient, as a function of the score.
SIZES: dict[str, Callable[[NDArray[np.floating]], NDArray[np.floating]]] = {
    "smooth": smooth_bound,  # for any loss
    "cross-entropy": lambda loss: np.square(-np.expm1(-np.maximum(loss, 0))),  # (1 - e^-l)², the last layer's
    "norm": np.square,  # the score is a gradient's norm already
}


def check_noise(noise: float) -> None:
    """Raise unless ``noise`` is a number from 0 on."""
    if not is_real(noise) or not 0 <= noise < np.inf:
        raise ValueError(
            f"noise must be a number from 0 on, got {noise!r}: 0.1 is as if batches were 1.1 times smaller"
        )


def check_size(size: str) -> None:
    """Raise unless ``size`` is a name in :data:`SIZES`."""
    if size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(map(repr, SIZES))}, got {size!r}")


def noise_factor(
    size: NDArray[np.float64], count: NDArray[np.integer | np.floating], keep: NDArray[np.float64]
) -> float:
    """V = Σ(m/π) / Σ m of groups with ``count`` samples each.

    >>> noise_factor(np.array([1.0, 3.0]), np.array([3, 1]), np.array([0.5, 1.0]))
    1.5
    """
    total = float(count @ size)
    return float(count @ (size / keep)) / total if total > 0 else 1.0


def fewest(
    size: NDArray[np.float64], enough: Callable[[NDArray[np.float64]], bool], floor: float
) -> NDArray[np.float64]:
    """The probabilities π = min(1, c·√m), not below ``floor``, for the smallest c that is ``enough``, by bisection."""
    root = np.sqrt(size)
    if not root.any():
        root = np.ones_like(root)

    def keep(c: float) -> NDArray[np.float64]:
        return np.clip(c * root, floor, 1.0)

    low, high = 0.0, 1 / float(root[root > 0].min())
    if enough(keep(low)):
        return keep(low)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(keep(middle)) else (middle, high)
    return keep(high)


def within_noise(
    size: NDArray[np.float64], count: NDArray[np.integer | np.floating], noise: float, floor: float
) -> NDArray[np.float64]:
    """The probabilities that keep the fewest samples at V ≤ 1 + ``noise``."""
    return fewest(size, lambda keep: noise_factor(size, count, keep) <= 1 + noise, floor)


def leaving_out(
    size: NDArray[np.float64], count: NDArray[np.integer | np.floating], samples: float, floor: float
) -> NDArray[np.float64]:
    """The probabilities that leave out ``samples`` samples at the least noise."""
    return fewest(size, lambda keep: float(count @ (1 - keep)) <= samples, floor)


def key_of(value: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Whole numbers in the same order as the values, which keep two or three digits of each; NaN comes last.

    There are few enough keys for a look-up table of all of them.

    >>> key_of(np.array([-2.0, -1.0, 0.0, 1.0, 1.001, 1.01, 2.0, np.nan], np.float32)).tolist()
    [16383, 16511, 32768, 49024, 49024, 49025, 49152, 65472]
    """
    bits: NDArray[np.uint32] = np.ascontiguousarray(value).view(np.uint32)
    upper: NDArray[np.uint16] = (bits >> np.uint32(16)).astype(np.uint16)
    return np.where(value < 0, ~upper, upper | np.uint16(1 << 15))
