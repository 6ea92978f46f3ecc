"""Many long vectors in little memory: the rows of a matrix, or row-wise Kronecker products of two.

A sample's last-layer gradient is (probability - one-hot) ⊗ feature: C·D numbers made of C + D. Inner products of
such vectors are products of inner products of their factors, so that nothing of size N × C·D is ever built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

Rows = Sequence[int] | Tensor
Kernel = Callable[["Vectors", "Vectors"], Tensor]
"""A number for each pair of two sets of vectors: a distance or a similarity."""


class Vectors:
    """n vectors, each the Kronecker product of its row in every factor, and their squared lengths.

    >>> errors, features = torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0, 3.0]])
    >>> gradient = Vectors(errors, features)  # stands for [[2, 3, -2, -3]]
    >>> gradient.products(gradient), gradient.squares
    (tensor([[26.]]), tensor([26.]))
    """

    def __init__(self, *factors: Tensor, squares: Tensor | None = None) -> None:
        self.factors = factors
        self.squares = _squares(factors) if squares is None else squares

    def __len__(self) -> int:
        return len(self.factors[0])

    def take(self, rows: Rows) -> Vectors:
        """The vectors in these rows."""
        return Vectors(*(factor[rows] for factor in self.factors), squares=self.squares[rows])

    def products(self, other: Vectors) -> Tensor:
        """The inner product of each with each of ``other``."""
        first, *rest = (mine @ others.T for mine, others in zip(self.factors, other.factors, strict=True))
        for block in rest:
            first *= block
        return first

    def sum(self) -> Tensor:
        """The sum of all vectors: a vector, or for Kronecker products their sum written as a matrix."""
        if len(self.factors) == 1:
            return self.factors[0].sum(0)
        left, right = self.factors
        return left.T @ right

    def along(self, other: Tensor) -> Tensor:
        """The inner product of each vector with ``other``, in the form that ``sum`` returns."""
        if len(self.factors) == 1:
            return self.factors[0] @ other
        left, right = self.factors
        return torch.einsum("nd,nd->n", left @ other, right)

    def directions(self) -> Vectors:
        """The vectors scaled to length 1; a vector of length 0 stays as it is."""
        return Vectors(*(torch.nn.functional.normalize(factor, dim=1) for factor in self.factors))


def _squares(factors: Sequence[Tensor]) -> Tensor:
    return torch.stack([torch.einsum("nd,nd->n", factor, factor) for factor in factors]).prod(0)


def points(features: ArrayLike) -> Vectors:
    """Features as vectors, less their mean: distances are the same and lose fewer digits."""
    rows = tensor(features)
    return Vectors(rows - rows.mean(0))


def gradients(errors: ArrayLike, features: ArrayLike, bias: bool) -> Vectors:
    """Last-layer gradients error ⊗ feature, or error ⊗ (feature, 1) when the layer has a bias."""
    rows = tensor(features)
    inputs = torch.cat([rows, rows.new_ones(len(rows), 1)], 1) if bias else rows
    return Vectors(tensor(errors).to(rows.dtype), inputs)


def tensor(array: ArrayLike) -> Tensor:
    """An array as a tensor on the CPU, in float32 unless it is float64."""
    array = np.asarray(array)
    return torch.from_numpy(np.ascontiguousarray(array, np.float64 if array.dtype == np.float64 else np.float32))


def squared_distance(one: Vectors, other: Vectors) -> Tensor:
    """‖a - b‖² for each pair."""
    if len(one.factors) == 1:  # the same in fewer passes
        block = torch.addmm(other.squares, one.factors[0], other.factors[0].T, alpha=-2)
    else:
        block = one.products(other).mul_(-2).add_(other.squares)
    return block.add_(one.squares[:, None]).clamp_(min=0)


def distance(one: Vectors, other: Vectors) -> Tensor:
    """‖a - b‖ for each pair."""
    return squared_distance(one, other).sqrt_()
