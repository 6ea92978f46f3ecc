"""DivBS: of each batch, samples whose gradients span its mean gradient without saying the same twice."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from ..core.checks import checked_part
from ..core.method import BatchMethod, Gradients, MethodInfo

_NOTHING = 1e-9  # of what was there at first: so little is rounding


class DiverseBatch(BatchMethod):
    """``keep`` of each batch are drawn one by one, in proportion to |gradient · residual|.

    The residual is the batch's mean gradient less its part in the span of the gradients drawn so far (Gram-Schmidt).
    Where nothing is left of it, the rest is drawn uniformly. Only inner products of gradients are needed: factors whose
    products they are (errors and features, for a last layer) do, and no gradient is ever built.
    """

    info: ClassVar = MethodInfo(
        name="divbs",
        summary="within each batch, trains on samples whose last-layer gradients span the mean of all",
        reference="Hong et al., Diversified batch selection for training acceleration, ICML 2024",
        unbiased=False,
        anneals=False,
    )
    needs_gradients: ClassVar = True

    def __init__(self, keep: float = 0.1) -> None:
        self.keep = checked_part("keep", keep, "the share of a batch that is trained on")

    def chooses(self, progress: float, step: int) -> bool:
        return self.keep < 1

    def choose(
        self, loss: torch.Tensor, generator: torch.Generator, gradients: Gradients | None = None
    ) -> torch.Tensor:
        assert gradients is not None
        products = [torch.nan_to_num(factor.double()) for factor in gradients]
        gram = math.prod(factor @ factor.T for factor in products)
        assert isinstance(gram, torch.Tensor)
        size = len(gram)
        few = max(1, int(self.keep * size))
        residual = gram.mean(1)  # of each sample, gradient · residual
        at_first = residual.abs().max()
        along = gram.new_zeros(size, few)  # of each sample, gradient · each direction so far
        rest = torch.ones_like(residual)
        picks = torch.zeros(few, dtype=torch.int64, device=gram.device)
        for number in range(few):
            chance = residual.abs() * rest
            if chance.max() <= _NOTHING * at_first:
                chance = rest
            picks[number] = pick = torch.multinomial(chance, 1, generator=generator)[0]
            rest[pick] = 0
            new = gram[:, pick] - along[:, :number] @ along[pick, :number]
            if new[pick] > _NOTHING * gram[pick, pick]:
                along[:, number] = new / new[pick].sqrt()
                residual = residual - along[:, number] * (residual[pick] / new[pick].sqrt())
        return picks

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        return (1 - self.keep) * len(pruning) / num_epochs

    def options(self) -> dict[str, object]:
        return {"keep": self.keep}
