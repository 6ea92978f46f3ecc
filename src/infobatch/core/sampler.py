"""The one sampler: hands out the indices of the current epoch's plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torch.utils.data import DistributedSampler


class PlanOwner(Protocol):
    """What the sampler needs of the object that makes the plans."""

    def __len__(self) -> int: ...
    def set_epoch(self, epoch: int) -> None: ...
    def _begin_pass(self) -> Iterator[int]: ...


class PlanSampler(DistributedSampler[int]):
    """This rank's slice of the current plan, as plain ints; its length is the slice's.

    A ``DistributedSampler``, so that frameworks leave it alone and call ``set_epoch``. Without ``set_epoch`` each
    ``iter()`` goes on to the next epoch, unless the last pass made no ``update`` (it was a peek).
    """

    dataset: PlanOwner  # type: ignore[assignment]

    def __init__(self, owner: PlanOwner, seed: int, rank: int, world: int) -> None:
        super().__init__(owner, num_replicas=world, rank=rank, seed=seed)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[int]:
        return self.dataset._begin_pass()

    def set_epoch(self, epoch: int) -> None:
        self.dataset.set_epoch(epoch)

    def show(self, epoch: int, num_samples: int, rank: int, world: int) -> None:
        """Keep the public attributes of a ``DistributedSampler`` true."""
        self.epoch = epoch
        self.rank, self.num_replicas = rank, world
        self.num_samples = num_samples
        self.total_size = num_samples * world
