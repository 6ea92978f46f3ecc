"""The score table: each sample's last score (Eq. 4)."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager

import numpy as np
import torch
from numpy.typing import NDArray


def lasting() -> AbstractContextManager[None]:
    """Tensors made in this context can be changed and trained on later, also if the caller is in inference mode."""
    return torch.inference_mode(False)


def above_mean(score: torch.Tensor) -> torch.Tensor:
    """Each score minus the mean of the finite scores.

    >>> above_mean(torch.tensor([1.0, 4.0, torch.nan]))
    tensor([-1.5000,  1.5000,     nan])
    """
    score = score.detach().float()
    finite = torch.isfinite(score)
    return score - torch.where(finite, score, 0.0).sum() / finite.sum()


class ScoreTable:
    """One float32 score per sample, on the device of the losses; NaN for a sample without a score yet.

    A sample that is not trained on keeps its score. ``momentum`` m < 1 makes the score an average,
    m·new + (1 - m)·old; the first score of a sample is stored as it is. Values that are not finite are counted but
    never stored.
    """

    def __init__(self, size: int, momentum: float = 1.0) -> None:
        with lasting():
            self.values = torch.full((size,), torch.nan, dtype=torch.float32, device="cpu")
            self.rejected = torch.zeros((), dtype=torch.int64, device="cpu")
        self.momentum = momentum
        self._warned = False

    def __len__(self) -> int:
        return self.values.shape[0]

    def move_to(self, device: torch.device) -> None:
        """Follow the losses to their device."""
        if self.values.device != device:
            with lasting():
                self.values = self.values.to(device)
                self.rejected = self.rejected.to(device)

    def restore(self, values: torch.Tensor, rejected: int) -> None:
        """Replace the scores and the count, on the table's current device."""
        with lasting():
            self.rejected = torch.tensor(rejected, device=self.values.device)
            self.values = values.to(self.values.device, copy=True)

    def write(self, index: torch.Tensor, score: torch.Tensor, leave: torch.Tensor | None = None) -> None:
        """Store one score per index, except where ``leave`` is True; without host sync or graph break."""
        score = score.detach().to(torch.float32)
        old = self.values.index_select(0, index)
        finite = torch.isfinite(score)
        if self.momentum != 1.0:
            averaged = self.momentum * score + (1 - self.momentum) * old
            score = torch.where(torch.isnan(old), score, averaged)
        rejected = ~finite
        if leave is not None:
            finite, rejected = finite & ~leave, rejected & ~leave
        self.values.index_copy_(0, index, torch.where(finite, score, old))
        self.rejected += rejected.sum()

    def write_repeats(self, index: torch.Tensor, score: torch.Tensor) -> None:
        """Store scores if an index may occur more than once: its scores enter one after the other."""
        order = torch.argsort(index, stable=True)
        _, counts = torch.unique_consecutive(index[order], return_counts=True)
        starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        occurrence = torch.empty_like(order)
        occurrence[order] = torch.arange(len(order), device=order.device) - starts
        for number in range(int(counts.max()) if len(counts) else 0):
            chosen = occurrence == number
            self.write(index[chosen], score[chosen])

    def numpy(self) -> NDArray[np.float32]:
        """The table in host memory, without a copy if it is there already."""
        return self.values.cpu().numpy()

    def warn_once_of_rejected(self) -> None:
        """Warn, once, if some losses were NaN or infinite."""
        if not self._warned and (rejected := int(self.rejected)):
            self._warned = True
            warnings.warn(
                f"{rejected} loss values were NaN or infinite: they were not stored as scores, and these samples keep "
                "the score they had. stats.rejected counts them; this warning is given once",
                RuntimeWarning,
                stacklevel=2,
            )
