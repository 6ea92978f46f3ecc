"""The course of training: which samples were classified correctly each time they were seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class Dynamics:
    """Records whether each sample was classified correctly the first time it was seen, the second time, …

    >>> import torch
    >>> dynamics = Dynamics(3)
    >>> dynamics.update([2, 0], torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([0, 0]))
    >>> dynamics.update([2], torch.tensor([[0.4, 0.6]]), torch.tensor([0]))
    >>> dynamics.correct.tolist()  # times × samples; -1: not seen so often
    [[0, -1, 1], [-1, -1, 0]]
    """

    def __init__(self, size: int) -> None:
        self._times = np.zeros(size, np.int64)
        self._correct = np.full((1, size), -1, np.int8)

    def update(self, index: Tensor | list[int] | NDArray[np.int64], logits: Tensor, labels: Tensor) -> None:
        """Record a batch: call it in the training step, with the indices of the batch's samples, each at most once."""
        rows = np.asarray(index.cpu() if isinstance(index, Tensor) else index)
        right = (logits.detach().argmax(1) == labels).cpu().numpy()
        if len(np.unique(rows)) != len(rows) or rows.shape != right.shape:
            raise ValueError(
                f"index must name each of the {len(right)} samples of the batch once, got {len(rows)} indices, "
                f"{len(np.unique(rows))} of them different: drop repeated samples and their logits"
            )
        times = self._times[rows]
        if len(times) and times.max() >= len(self._correct):
            self._correct = np.concatenate([self._correct, np.full_like(self._correct, -1)])
        self._correct[times, rows] = right
        self._times[rows] += 1

    @property
    def correct(self) -> NDArray[np.int8]:
        """(times, samples): 1 right, 0 wrong, -1 not seen so often."""
        times = max(int(self._times.max(initial=0)), 1)
        return np.array(self._correct[:times])
