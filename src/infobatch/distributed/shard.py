"""Which part of a plan is this process's."""

from __future__ import annotations

import torch.distributed as dist


def here() -> tuple[int, int]:
    """(rank, world) of this process; (0, 1) where no process group runs."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
