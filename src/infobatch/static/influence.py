"""Influence functions on the last layer, by its Hessian, and DP, which adds up the influence of many samples."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from .greedy import Picks
from .herding import CANDIDATES, nearest_sum
from .scores import Scores, errors, probabilities
from .vectors import Vectors

Matrix = NDArray[np.float64]


def influence(
    features: ArrayLike,
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    validation: tuple[ArrayLike, ArrayLike, ArrayLike],
    damping: float = 0.01,
    bias: bool = True,
) -> Scores:
    """How much the mean validation loss falls per unit of a sample's weight in training: ∇L_valᵀ H⁻¹ ∇L_z.

    It is minus the influence of Koh and Liang (2017), on the last layer alone; samples with the highest values help
    most. H is the Hessian of the mean training loss plus ``damping``·‖parameters‖²/2: the L2 penalty that the layer was
    trained with, or a little for stability. ``validation``: features, logits and labels of held-out samples.
    """
    inputs = _inputs(features, bias)
    hessian = Hessian(inputs, probabilities(logits), damping)
    others = _inputs(validation[0], bias)
    gradient = errors(*validation[1:]).T @ others / len(others)
    return np.asarray(np.einsum("nc,nc->n", errors(logits, labels), inputs @ hessian.solve(gradient).T))


def dp(
    features: ArrayLike,
    logits: ArrayLike,
    labels: ArrayLike,
    count: int,
    *,
    damping: float = 0.01,
    directions: int = 64,
    bias: bool = True,
    seed: int = 0,
) -> Picks:
    """DP: keep all but the samples whose removal, together, moves the last layer least (Yang et al., 2023).

    Removing the samples z moves the parameters by Σ H⁻¹∇L_z / n; the ones to drop are taken greedily so that this
    sum stays as short as possible.
    """
    moves = parameter_influence(features, logits, labels, damping=damping, directions=directions, bias=bias, seed=seed)
    return keep_longest_sum(moves, count, seed)


def keep_longest_sum(moves: Matrix, count: int, seed: int) -> Picks:
    """The ``count`` rows that are left after greedily dropping rows whose sum stays shortest."""
    rng = np.random.default_rng(seed)
    dropped = nearest_sum(Vectors(torch.from_numpy(moves)), len(moves) - count, None, CANDIDATES, rng)
    return np.delete(np.arange(len(moves)), dropped)


def parameter_influence(
    features: ArrayLike,
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    damping: float = 0.01,
    directions: int = 64,
    bias: bool = True,
    seed: int = 0,
) -> Matrix:
    """H⁻¹∇L_z / n of each sample, in coordinates that keep lengths: (samples, at most ``directions``).

    A last layer with more parameters than ``directions`` is projected on that many random directions, which keeps
    squared lengths on average; the N × C·D matrix of all moves is never built.
    """
    inputs = _inputs(features, bias)
    hessian = Hessian(inputs, probabilities(logits), damping)
    parameters = hessian.shape[0] * hessian.shape[1]
    if parameters <= directions:
        axes = np.eye(parameters)
    else:
        rng = np.random.default_rng(seed)
        axes = rng.standard_normal((directions, parameters)) / np.sqrt(directions)
    wrong = errors(logits, labels)
    moves = np.empty((len(inputs), len(axes)))
    for column, axis in enumerate(axes):  # axisᵀ H⁻¹ ∇L_z is errorᵀ (H⁻¹ axis) feature, as H is symmetric
        solved = hessian.solve(axis.reshape(hessian.shape))
        moves[:, column] = np.einsum("nc,nc->n", wrong, inputs @ solved.T)
    return moves / len(inputs)


class Hessian:
    """H of the mean cross-entropy in the last layer's weights (classes, dimensions), known by its products only."""

    def __init__(self, inputs: Matrix, likely: Matrix, damping: float) -> None:
        if not damping > 0:
            raise ValueError(
                f"damping must be above 0, got {damping!r}: the softmax leaves directions without any curvature, "
                "in which H has no inverse; use the L2 penalty of training, or 0.01"
            )
        self.inputs, self.likely, self.damping = inputs, likely, damping
        self.shape = (likely.shape[1], inputs.shape[1])

    def times(self, direction: Matrix) -> Matrix:
        """H·V = mean of (diag(p) - p pᵀ) V f fᵀ, plus damping·V."""
        along = self.likely * (self.inputs @ direction.T)
        along -= self.likely * along.sum(1, keepdims=True)
        return np.asarray(along.T @ self.inputs / len(self.inputs) + self.damping * direction)

    def solve(self, right: Matrix) -> Matrix:
        """H⁻¹·right, by conjugate gradients."""
        try:
            from scipy.sparse.linalg import LinearOperator, cg  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise ImportError('influence and dp need scipy: pip install "infobatch[static]"') from error
        size = self.shape[0] * self.shape[1]
        operator = LinearOperator((size, size), lambda flat: self.times(flat.reshape(self.shape)).ravel(), dtype=float)
        solution, failed = cg(operator, right.ravel(), rtol=1e-8)
        if failed:
            raise RuntimeError(f"conjugate gradients did not converge with damping={self.damping}: raise it")
        return np.asarray(solution).reshape(self.shape)


def _inputs(features: ArrayLike, bias: bool) -> Matrix:
    rows = np.asarray(features, np.float64)
    return np.concatenate([rows, np.ones((len(rows), 1))], 1) if bias else rows
