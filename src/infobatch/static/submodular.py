"""Samples that represent the data: facility location (CRAIG), graph cut, and dataset quantization by graph cuts."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from .greedy import EXACT, Picks, facility_location
from .herding import CANDIDATES, nearest_sum
from .selection import shares
from .vectors import Vectors, distance, gradients, points, tensor

DRAWN = 1 / math.e
"""ε of stochastic greedy, above ``EXACT`` samples: each is looked at about once."""


def craig(
    features: ArrayLike,
    count: int,
    *,
    errors: ArrayLike | None = None,
    bias: bool = True,
    epsilon: float | None = None,
    seed: int = 0,
) -> tuple[Picks, NDArray[np.int64]]:
    """CRAIG: (picks, weights), the samples whose gradients are nearest to everyone's (Mirzasoleiman et al., 2020).

    Greedily minimises Σ_i min_{j picked} ‖g_i - g_j‖; a pick's weight is the number of samples it is nearest to, so
    that weights add up to n. g is the last layer's gradient, ``errors`` ⊗ (``features``, 1), or the features alone
    where no errors are given. ``epsilon`` 0 is exact greedy; otherwise a pick is the best of (n/count)·ln(1/ε)
    samples drawn by ``seed``. None: 0 up to 8,192 samples, 1/e above.
    """
    vectors = points(features) if errors is None else gradients(errors, features, bias)
    if epsilon is None:
        epsilon = 0 if len(vectors) <= EXACT else DRAWN
    if not 0 <= epsilon < 1:
        raise ValueError(f"epsilon must lie in [0, 1): 0 looks at all candidates, 0.1 at few; got {epsilon!r}")
    farthest = 2 * vectors.squares.max().sqrt()  # no two vectors are farther apart
    return facility_location(vectors, count, distance, farthest, epsilon, np.random.default_rng(seed))


def graph_cut(
    features: ArrayLike,
    count: int,
    *,
    errors: ArrayLike | None = None,
    bias: bool = True,
    penalty: float = 1.0,
    candidates: int | None = CANDIDATES,
    seed: int = 0,
) -> Picks:
    """Graph cut: greedily maximise Σ_{i, j picked} s_ij - λ Σ_{i, j both picked} s_ij.

    Here s = (1 + cosine) / 2 and λ = ``penalty``. The first sum is similarity to all samples, the second similarity
    among the picked. On features, or on the last layer's gradients where ``errors`` are given. Above ``candidates``
    samples a pick is the best of that many drawn by ``seed``; None looks at all of them.
    """
    vectors = Vectors(tensor(features)) if errors is None else gradients(errors, features, bias)
    return _graph_cut(vectors.directions(), count, penalty, candidates, np.random.default_rng(seed))


def dq(
    features: ArrayLike,
    count: int,
    *,
    bins: int = 10,
    errors: ArrayLike | None = None,
    bias: bool = True,
    penalty: float = 1.0,
    candidates: int | None = CANDIDATES,
    seed: int = 0,
) -> Picks:
    """Dataset quantization: cut the data into bins, each by graph cut from what is left, and sample each bin alike.

    The first bins hold samples that represent all data, the last bins those that are unlike the rest (Zhou et al.,
    2023). Every bin is sampled uniformly and with the same share.
    """
    vectors = Vectors(tensor(features)) if errors is None else gradients(errors, features, bias)
    if not 1 <= bins <= len(vectors):
        raise ValueError(f"bins must lie in 1..{len(vectors)}, the number of samples, got {bins!r}: the paper uses 10")
    vectors, rng = vectors.directions(), np.random.default_rng(seed)
    bin_of = np.full(len(vectors), bins - 1)
    rest = np.arange(len(vectors))
    for number, size in enumerate(len(part) for part in np.array_split(rest, bins)[:-1]):
        picks = _graph_cut(vectors.take(torch.from_numpy(rest)), size, penalty, candidates, rng)
        bin_of[rest[picks]] = number
        rest = np.delete(rest, picks)
    return np.concatenate([rng.choice(members, few, replace=False) for members, few in shares(bin_of, count)])


def _graph_cut(vectors: Vectors, count: int, penalty: float, candidates: int | None, rng: np.random.Generator) -> Picks:
    """With s linear in the cosine, a pick v gains v·all/2 - λ (v·picked + ‖v‖²/2), plus a constant.

    The gain is largest for the v that brings the sum of the picks nearest to all / 2λ.
    """
    if not penalty > 0:
        raise ValueError(f"penalty must be above 0, the weight of similarity among the picked, got {penalty!r}")
    return nearest_sum(vectors, count, vectors.sum() / (2 * penalty), candidates, rng)
