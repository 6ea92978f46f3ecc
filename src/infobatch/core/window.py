"""The next few batches of a plan as tensors: the training step then needs no look-up and no host sync."""

from __future__ import annotations

import torch

from .weights import working_dtype


class Window:
    """The next few batches of the plan: their weights, cut to batches, and room for their scores."""

    __slots__ = ("at", "index", "scores", "slots", "weights")

    def __init__(self, index: torch.Tensor, weights: torch.Tensor | None, batch: int) -> None:
        self.index = index
        self.scores = torch.empty(len(index), dtype=torch.float32, device=index.device)
        self.slots = torch.split(self.scores, batch)
        self.weights = None if weights is None else torch.split(weights, batch)
        self.at = 0

    def fits(self, count: int, loss: torch.Tensor) -> bool:
        """Whether the next batch has a place here."""
        return (
            self.at < len(self.slots)
            and self.slots[self.at].shape[0] == count
            and self.scores.device == loss.device
            and (self.weights is None or self.weights[self.at].dtype == working_dtype(loss))
        )

    def weigh_and_note(self, loss: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        """The batch's mean; its scores are noted for later."""
        self.slots[self.at].copy_(score.detach())
        mean = loss.mean() if self.weights is None else weighted_sum(loss, self.weights[self.at]).to(loss.dtype)
        self.at += 1
        return mean

    def noted(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(index, score) of all batches noted so far."""
        filled = sum(slot.shape[0] for slot in self.slots[: self.at])
        return self.index[:filled], self.scores[:filled]


def weighted_sum(loss: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Σ weight · loss, in the weight's precision."""
    return torch.dot(loss.to(weight.dtype), weight)
