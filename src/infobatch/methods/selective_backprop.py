"""Selective backprop: look at a batch's losses first, and train on the hard part of it."""

from __future__ import annotations

from typing import ClassVar

import torch

from ..core.checks import checked_part
from ..core.method import BatchMethod, Gradients, MethodInfo


class SelectiveBackprop(BatchMethod):
    """Of a batch, ``keep`` of the samples are drawn, with a chance ∝ ((rank of the loss + ½) / N)^(1/keep - 1).

    Ranks count from 0, the lowest loss. It acts from ``start`` to ``end`` of training, counted in epochs, where every
    ``interrupt``-th batch of an epoch is trained on whole; 0 for none.
    """

    info: ClassVar = MethodInfo(
        name="selective-backprop",
        summary="within each batch, trains on the samples of high loss, drawn by rank",
        reference="Jiang et al., Accelerating deep learning by focusing on the biggest losers, 2019; MosaicML Composer",
        unbiased=False,
        anneals=False,
    )

    def __init__(self, keep: float = 0.5, *, start: float = 0.5, end: float = 0.9, interrupt: int = 2) -> None:
        self.keep = checked_part("keep", keep, "the share of a batch that is trained on")
        self.start = float(start)
        self.end = checked_part("end", end, "the share of training after which batches are whole again")
        if not 0 <= start < end:
            raise ValueError(f"start must lie in [0, end), end being {end}, got {start!r}")
        if isinstance(interrupt, bool) or not isinstance(interrupt, int) or interrupt < 0 or interrupt == 1:
            raise ValueError(
                "interrupt must be a whole number, 2 for every second batch to be whole, 0 for none; 1 would leave "
                f"nothing to choose; got {interrupt!r}"
            )
        self.interrupt = interrupt

    def chooses(self, progress: float, step: int) -> bool:
        whole = self.interrupt > 0 and (step + 1) % self.interrupt == 0
        return self.keep < 1 and self.start <= progress < self.end and not whole

    def choose(
        self, loss: torch.Tensor, generator: torch.Generator, gradients: Gradients | None = None
    ) -> torch.Tensor:
        size = len(loss)
        rank = torch.argsort(torch.argsort(torch.nan_to_num(loss.float(), nan=float("inf")), stable=True))
        chance = ((rank + 0.5) / size) ** (1 / self.keep - 1)
        return torch.multinomial(chance, max(1, int(self.keep * size)), generator=generator)

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        active = sum(self.start <= epoch / num_epochs < self.end for epoch in pruning)
        chosen = 1 - 1 / self.interrupt if self.interrupt else 1.0
        return (1 - self.keep) * chosen * active / num_epochs

    def options(self) -> dict[str, object]:
        return {"keep": self.keep, "start": self.start, "end": self.end, "interrupt": self.interrupt}
