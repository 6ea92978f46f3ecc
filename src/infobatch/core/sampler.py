"""The one sampler: hands out the indices of the current epoch's plan."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

from torch.utils.data import Dataset, DistributedSampler, Sampler

from .delivery import Delivery, Followed, find_delivery
from .position import Position
from .turn import Turn


class Planner(Protocol):
    """The part of a run that the sampler needs."""

    @property
    def length(self) -> int:
        """How many indices the next pass hands out."""

    def steps(self, batch_size: int, drop_last: bool) -> int:
        """How many steps the next pass makes, if their number stays that of full data."""

    def set_epoch(self, epoch: int) -> None:
        """Make that epoch's plan current."""

    def begin_pass(self, loader: Delivery | None) -> tuple[int, Position]:
        """The epoch and the position of the pass that starts now, in the current or the next epoch."""


class PlanSampler(DistributedSampler[int]):
    """This rank's part of the current plan, as plain ints; its length is that of the next pass.

    It is a ``DistributedSampler``, so that frameworks do not replace it and call its ``set_epoch``. Without
    ``set_epoch`` each ``iter()`` moves to the next epoch, unless the last pass made no ``update`` (it was a peek).
    """

    planner: Planner

    def __init__(self, dataset: Dataset[Any], takes_turns: bool = False) -> None:
        super().__init__(dataset, num_replicas=1, rank=0)
        self._takes_turns = takes_turns  # whether an index says in which epoch it is read
        self._followed: Delivery | None = None

    def __iter__(self) -> Iterator[int]:
        loader, self._followed = self._followed, None
        if loader is None:
            loader = find_delivery(self)
        epoch, position = self.planner.begin_pass(loader)
        return PlanIterator.over(epoch, position, loader, self.seed if self._takes_turns else None)

    def __len__(self) -> int:
        return self.planner.length

    def set_epoch(self, epoch: int) -> None:
        self.planner.set_epoch(epoch)

    def follow(self, loader: Any) -> Iterator[Any]:
        """Yield the batches of ``loader`` and count them; the pass that it starts then needs no torch loader."""
        self._followed = Followed(loader, self)
        yield from self._followed.batches()

    def show(self, seed: int, epoch: int, num_samples: int, rank: int, world: int) -> None:
        """Set the public attributes of a ``DistributedSampler``."""
        self.seed, self.epoch = seed, epoch
        self.rank, self.num_replicas = rank, world
        self.num_samples = num_samples
        self.total_size = num_samples * world

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_followed": None}


class StepSampler(Sampler[list[int]]):
    """As many batches in every epoch as full data has: batches shrink instead, and their sizes differ by at most one.

    With ``drop_last`` full data has whole batches only, and samples that do not fit into them are dropped.
    """

    keeps_steps = True

    def __init__(self, sampler: PlanSampler, batch_size: int, drop_last: bool = False) -> None:
        if not isinstance(sampler, PlanSampler):
            raise TypeError(
                f"sampler must be train_data.sampler, got {type(sampler).__name__}: make the batches by "
                "train_data.batches(batch_size). If a framework puts in its own sampler for several processes, use "
                "use_distributed_sampler=False (Lightning's Trainer, Fabric's setup_dataloaders): train_data shards"
            )
        self.sampler = sampler
        self.batch_size = batch_size  # of full data
        self.drop_last = drop_last
        self._warned = False

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        assert isinstance(indices, PlanIterator)
        steps, samples = self._steps(), len(self.sampler)
        if steps > samples and not self._warned:
            self._warned = True
            warnings.warn(
                f"{steps} steps cannot stay with {samples} samples on each rank: there are only {samples}, and a "
                "schedule that counts steps will not reach its end. Use larger batches "
                f"(batch_size={self.batch_size}), or prune less",
                RuntimeWarning,
                stacklevel=2,
            )
        for size in indices.position.keep_steps(min(steps, samples), self.batch_size if self.drop_last else None):
            yield list(itertools.islice(indices, size))

    def __len__(self) -> int:
        return min(self._steps(), len(self.sampler))

    def _steps(self) -> int:
        return self.sampler.planner.steps(self.batch_size, self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Call the sampler's ``set_epoch``."""
        self.sampler.set_epoch(epoch)


class PlanIterator(itertools.chain[int]):
    """The indices of one pass. torchdata's StatefulDataLoader keeps its place through ``state_dict``."""

    epoch: int
    position: Position

    @classmethod
    def over(cls, epoch: int, position: Position, loader: Delivery | None, seed: int | None = None) -> PlanIterator:
        """A fresh iterator; chained in C, a chunk at a time, so that it costs no Python per sample.

        With ``seed`` every index is a :class:`Turn`.
        """
        chunks = position.open(loader)
        if seed is not None:
            chunks = (map(partial(Turn, seed=seed, epoch=epoch), chunk) for chunk in chunks)
        indices = cls.from_iterable(chunks)
        assert isinstance(indices, PlanIterator)
        indices.epoch, indices.position = epoch, position
        return indices

    def state_dict(self) -> dict[str, int]:
        """The iterator's place in the epoch."""
        return self.position.place(self.epoch)

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Check that the loader resumes where train_data does; from here on the loader counts earlier indices too."""
        here, there = self.state_dict(), state_dict
        went_on = there["ended"] and (here["epoch"], here["position"]) == (there["epoch"] + 1, 0)
        if not went_on and (here["epoch"], here["position"]) != (there["epoch"], there["position"]):
            raise RuntimeError(
                f"the loader's state is from epoch {there['epoch']}, sample {there['position']}, but train_data stands "
                f"at epoch {here['epoch']}, sample {here['position']}: call train_data.load_state_dict() with the "
                "state of the same step before iterating the loader (and leave snapshot_every_n_steps at 1)"
            )
        self.position.resume_loader(there["handed_out"])
