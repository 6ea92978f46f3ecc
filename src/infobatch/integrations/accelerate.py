"""Accelerate: ``prepare(accelerator, ...)`` in place of ``accelerator.prepare(...)``; the loop stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader

from ..dataset import InfoBatch
from ..schedule import PacedScheduler, paced
from . import needs, torch_seed

with needs("accelerate", "accelerate"):
    from accelerate import Accelerator
    from accelerate.data_loader import DataLoaderShard, prepare_data_loader


def prepare(accelerator: Accelerator, *objects: Any) -> Any:
    """Call this in place of ``accelerator.prepare(*objects)`` if one of the objects is a loader over an InfoBatch.

    That loader keeps ``train_data.sampler``, or ``train_data.batches``, which give every process its part of the plan
    by themselves; Accelerate moves the batches and neither shards nor pads them again. Schedulers are paced where
    epochs get shorter (see :func:`infobatch.paced`): they count optimiser steps, once each on any number of processes.
    ``save_state`` and ``load_state`` include ``train_data`` and the schedulers. Everything else is as in Accelerate.
    """
    loaders = [o for o in objects if isinstance(o, DataLoader) and isinstance(o.dataset, InfoBatch)]
    if len(loaders) != 1:
        raise ValueError(
            f"prepare() needs one DataLoader over an InfoBatch among its objects, got {len(loaders)} in "
            f"{[type(o).__name__ for o in objects]}: use accelerator.prepare() for objects that have none"
        )
    loader, train_data = loaders[0], cast(InfoBatch, loaders[0].dataset)
    _check(accelerator, train_data)
    ours: list[Any] = []
    for obj in objects:
        if obj is loader:
            ours.append(PlanLoader(_prepare_loader(accelerator, obj, train_data), train_data))
        elif isinstance(obj, LRScheduler) and not isinstance(obj, ReduceLROnPlateau):
            schedule = Schedule(accelerator, obj if isinstance(obj, PacedScheduler) else paced(obj, train_data))
            accelerator.register_for_checkpointing(schedule)
            ours.append(schedule)
        else:
            ours.append(obj)
    train_data.adopt_seed(_data_seed(accelerator))
    accelerator.register_for_checkpointing(train_data)
    return accelerator.prepare(*ours)  # it returns the loader and the schedules unchanged: it does not know their types


class PlanLoader:
    """Accelerate's loader for this process's part of the plan, in epochs that ``train_data`` counts.

    Accelerate's own count starts from 0 after ``load_state`` and stands still when an epoch is left early.
    """

    def __init__(self, loader: DataLoaderShard, train_data: InfoBatch) -> None:
        self._loader = loader
        self._train_data = train_data

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        iter(self._train_data.sampler)  # moves to the next epoch if the current one has been trained on
        self._loader.iteration = self._train_data.epoch
        for batch in self._loader:
            # Accelerate takes len(train_data) for the epoch's length, and gather_for_metrics would cut batches by it.
            self._loader.remainder = -1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """As ``train_data.set_epoch``: from then on ``len(loader)`` is that epoch's length."""
        self._train_data.set_epoch(epoch)

    def __getattr__(self, name: str) -> Any:
        if name == "batch_sampler":  # skip_first_batches would build on it
            raise AttributeError(
                "batch_sampler: batches of train_data cannot be skipped or regrouped. After accelerator.load_state() "
                "this loader delivers what is left of the epoch by itself: leave skip_first_batches() out"
            )
        if name == "_loader" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self._loader, name)


class Schedule:
    """A paced scheduler whose ``step()`` may be called after every batch: it waits for the optimiser step.

    Accelerate's own wrapper would step it once for every process, and count batches that are only accumulated.
    """

    def __init__(self, accelerator: Accelerator, scheduler: PacedScheduler) -> None:
        self._accelerator = accelerator
        self.scheduler = scheduler

    def step(self) -> None:
        """Advance to where training stands, if this batch ended in an optimiser step."""
        if self._accelerator.sync_gradients:
            self.scheduler.step()

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.scheduler, name)


def _data_seed(accelerator: Accelerator) -> int | None:
    """The seed of Accelerate's own seeded sampler: ``data_seed`` of the loaders' configuration, else torch's."""
    seed: int | None = accelerator.dataloader_config.data_seed
    return torch_seed() if seed is None else seed


def _check(accelerator: Accelerator, train_data: InfoBatch) -> None:
    """Raise for settings that would train samples twice or not at all, or could not match losses to samples."""
    if train_data.index_key is None:
        raise ValueError(
            "train_data has index_key=None, but Accelerate fetches a batch ahead, so that batches cannot be known by "
            'position: make it InfoBatch(..., index_key="index") and call update(loss, index)'
        )
    processes = accelerator.num_processes
    if train_data.sampler.num_replicas != processes:
        raise ValueError(
            f"accelerator has num_processes={processes}, but train_data was made for "
            f"{train_data.sampler.num_replicas}: make the Accelerator first, then the InfoBatch, so that len(loader) "
            "is right from the start"
        )
    if processes == 1:
        return
    if accelerator.dispatch_batches:
        raise ValueError(
            f"dispatch_batches=True with num_processes={processes}: the main process would read its own part of the "
            "plan for all. Every process reads its part here: leave dispatch_batches at None"
        )
    if accelerator.split_batches:
        raise ValueError(
            f"split_batches=True with num_processes={processes}: the plan is split already. Leave split_batches at "
            f"False and give the loader the batch size of one process (yours divided by {processes})"
        )
    config = getattr(accelerator, "parallelism_config", None)  # since Accelerate 1.10
    if config is not None and config.non_data_parallel_size > 1:
        raise ValueError(
            f"parallelism_config={config!r}: processes that share one copy of the model would need the same batches, "
            "but every process gets its own part of the plan. Use data-parallel sizes only"
        )


def _prepare_loader(accelerator: Accelerator, loader: DataLoader[Any], train_data: InfoBatch) -> DataLoaderShard:
    """Accelerate's loader as for a single process, because our sampler shards by itself."""
    prepared = prepare_data_loader(
        loader,
        accelerator.device,
        num_processes=1,
        process_index=0,
        put_on_device=accelerator.device_placement,
        rng_types=list(accelerator.rng_types),
        dispatch_batches=False,
        non_blocking=accelerator.non_blocking,
    )
    if prepared.get_sampler() is not train_data.sampler:
        raise ValueError(
            f"Accelerate would not draw the batches of this loader (sampler={type(loader.sampler).__name__}, "
            f"batch_size={loader.batch_size}) from train_data.sampler: make it "
            "DataLoader(train_data, batch_size, sampler=train_data.sampler), or with batch_sampler=train_data.batches()"
        )
    return prepared
