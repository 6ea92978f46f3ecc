"""Choosing within a batch: the losses of all its samples decide which of them are trained on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .method import Gradients


def checked_gradients(gradients: torch.Tensor | Gradients | None, loss: torch.Tensor, method: str) -> Gradients:
    """Gradients as factors with a row per loss, on its device, or an error that says how to pass them."""
    factors = (gradients,) if isinstance(gradients, torch.Tensor) else gradients
    if not isinstance(factors, tuple) or not all(isinstance(factor, torch.Tensor) for factor in factors) or not factors:
        raise TypeError(
            f"gradients: method {method!r} chooses by each sample's gradient, got {type(gradients).__name__}: "
            "train_data.choose(loss, gradients=(errors, features)), errors being softmax(logits) - one-hot label and "
            "features the last layer's input; or a tensor with a row per sample"
        )
    shapes = [tuple(factor.shape) for factor in factors]
    if any(len(shape) != 2 or shape[0] != len(loss) for shape in shapes):
        raise ValueError(f"gradients must have a row for each of the batch's {len(loss)} samples, got shapes {shapes}")
    return tuple(factor.detach().to(loss.device) for factor in factors)


@dataclass(frozen=True)
class Choice:
    """The chosen part of a batch: its positions, chosen by the losses of the whole batch."""

    positions: torch.Tensor
    loss: torch.Tensor  # of the whole batch, when the choice was made
    index: torch.Tensor | None  # the whole batch's samples, if they are named

    @property
    def passed_over(self) -> int:
        """How many samples of the batch were not chosen."""
        return len(self.loss) - len(self.positions)

    def check(self, loss: torch.Tensor, index: torch.Tensor | None) -> None:
        """Raise unless ``loss`` and ``index`` can be those of the chosen samples."""
        if len(loss) != len(self.positions):
            raise ValueError(
                f"loss must hold one value per chosen sample: got {len(loss)}, but choose() returned "
                f"{len(self.positions)} positions"
            )
        if (index is None) != (self.index is None):
            raise ValueError(
                "index must be given to choose() and to update(), or to neither: it names the same samples"
            )

    def strangers(self, index: torch.Tensor) -> torch.Tensor:
        """How many samples of ``index`` are not the chosen ones."""
        assert self.index is not None
        return (index != self.index.to(index.device)[self.positions.to(index.device)]).sum()

    def spread(self, loss: torch.Tensor) -> torch.Tensor:
        """The losses of the chosen samples as losses of the whole batch: 0 for the others, and the same mean."""
        scale = len(self.loss) / len(self.positions)
        return torch.zeros_like(self.loss, dtype=loss.dtype).index_copy(0, self.positions, loss * scale)

    def renewed(self, score: torch.Tensor) -> torch.Tensor:
        """The whole batch's scores: new ones for the chosen samples, the losses of the choice for the others."""
        return self.loss.to(score.dtype).index_copy(0, self.positions, score.detach())
