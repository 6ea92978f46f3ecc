"""Take some of a batch's samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def take_rows(batch: Any, rows: Tensor | None) -> Any:
    """Take these samples of a tensor, of a mapping or tuple of tensors, or of a list; None takes all.

    >>> import torch
    >>> take_rows((torch.arange(4), ["a", "b", "c", "d"]), torch.tensor([2, 0]))
    (tensor([2, 0]), ['c', 'a'])
    """
    if rows is None:
        return batch
    if isinstance(batch, Tensor):
        return batch[rows.to(batch.device)]
    if isinstance(batch, Mapping):
        return {name: take_rows(part, rows) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(take_rows(part, rows) for part in batch)
    return [batch[row] for row in rows.tolist()]
