"""Arrays in shared memory: a loader's workers see the main process's changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


class SharedArray:
    """A numpy array in memory that forked and spawned workers share.

    One process writes each element. A worker sees a new value soon after, and never half of one.

    >>> numbers = SharedArray((3,), torch.int32)
    >>> numbers.array[1] = 5
    >>> numbers.array.tolist()
    [0, 5, 0]
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, fill: int = 0) -> None:
        self._tensor = _move_to_shared_memory(torch.full(shape, fill, dtype=dtype, device="cpu"))
        self.array: NDArray[Any] = self._tensor.numpy()

    def __getstate__(self) -> torch.Tensor:
        return self._tensor

    def __setstate__(self, tensor: torch.Tensor) -> None:
        self._tensor = _move_to_shared_memory(tensor)  # a plain copy gets memory of its own
        self.array = tensor.numpy()

    def state(self) -> torch.Tensor:
        """A copy of the values, to save."""
        return self._tensor.clone()

    def load(self, state: torch.Tensor) -> None:
        """Write saved values into the array, where workers see them."""
        np.copyto(self.array, state.numpy())


def _move_to_shared_memory(tensor: torch.Tensor) -> torch.Tensor:
    tensor.share_memory_()  # type: ignore[no-untyped-call]
    return tensor
