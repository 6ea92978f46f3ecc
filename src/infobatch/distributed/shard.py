"""One global plan, sliced: every kept sample on exactly one rank, equally many on each.

Rank r takes every world-th entry from r on, so that step k of all ranks together is the k-th block of the plan, as one
process with the world-fold batch would see it. Where the plan does not divide, the ranks that come short get the plan's
first sample once more, with weight 0; the mean of that last step is taken over the real samples of all ranks.
"""

from __future__ import annotations

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from ..core.ledger import Slice


def here() -> tuple[int, int]:
    """(rank, world) of this process; (0, 1) where no process group runs."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def part(indices: NDArray[np.integer], rank: int, world: int, start: int = 0) -> Slice:
    """The slice of ``rank`` of what is left from entry ``start`` on.

    >>> [part(np.arange(5), rank, 2).indices.tolist() for rank in range(2)]
    [[0, 2, 4], [1, 3, 0]]
    """
    rest = indices[start:]
    own = rest[rank::world]
    padded = len(own) < -(-len(rest) // world)
    if padded:
        own = np.append(own, rest[0])
    return Slice(own, world, padded, -len(rest) % world, start)
