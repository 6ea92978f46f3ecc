"""IES: a sample whose loss no longer bends is mastered, and stops."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import check_whole, is_real
from ..core.method import Epoch, Memory, Method, MethodInfo
from ..core.weights import Weights


class InstanceStopping(Method):
    """Leaves out the samples whose second difference of the loss, |l - 2 l' + l''|, has a mean below ``threshold``.

    The mean is over the last ``window`` epochs, and is taken when there is one difference more than that. A sample that
    is left out must be looked at again, or it never comes back: ``train_data.left_out`` names it, ``train_data.note``
    books what a forward pass found.
    """

    info: ClassVar = MethodInfo(
        name="ies",
        summary="leaves out samples whose loss has stopped changing its slope, until it does again",
        reference="Yuan et al., Instance-dependent early stopping, ICLR 2025",
        unbiased=False,
        anneals=False,
    )
    refreshes: ClassVar = True

    def __init__(self, threshold: float = 1e-3, *, window: int = 3) -> None:
        if not is_real(threshold) or threshold < 0:
            raise ValueError(f"threshold must not be negative; the paper uses 0.001, or 0 for none, got {threshold!r}")
        check_whole("window", window, 1, "how many second differences are averaged; the paper uses 3")
        self.threshold = float(threshold)
        self.window = int(window)

    def memory(self) -> dict[str, int]:
        """The last losses, the newest first."""
        return {"losses": self.window + 3}

    def observe(self, scores: NDArray[np.float32], trained: NDArray[np.integer], memory: Memory) -> None:
        losses = memory["losses"]
        new = scores != losses[0]  # also of those that were left out and looked at
        new[trained] = True
        new &= ~np.isnan(scores)
        losses[:, new] = np.concatenate([scores[None, new], losses[:-1, new]])

    def select(self, scores: NDArray[np.float32], epoch: Epoch, rng: np.random.Generator) -> Weights:
        losses = epoch.memory["losses"]
        bend = np.abs(np.diff(losses[:-1], 2, axis=0)).mean(axis=0)
        stopped = (bend < np.float32(self.threshold)) & ~np.isnan(losses[-1])
        if stopped.all():
            stopped[np.argmax(bend)] = False
        return Weights.only(~stopped)

    def expected_saving(self, pruning: range, num_epochs: int) -> float:
        """Nothing can be told before: it depends on when samples are mastered."""
        return 0.0

    def options(self) -> dict[str, object]:
        return {"threshold": self.threshold, "window": self.window}
