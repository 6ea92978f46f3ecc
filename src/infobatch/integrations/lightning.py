"""Lightning: a callback for the Trainer, and the epochs of a Fabric loop.

The Trainer measures the training loader once and assumes that its length stays: it would leave out validation in a
shorter epoch and cut off a longer one, both in silence. The callback measures the loader again for every epoch. It also
keeps InfoBatch's state in the Trainer's checkpoints and sends its figures to the Trainer's loggers.

The names of Lightning that are used here and are not documented are ``FitLoop.max_batches``, ``_combined_loader``,
``_data_fetcher`` and ``epoch_loop.batch_progress``, and Fabric's ``_num_iter_calls``.
``tests/integrations/test_lightning.py`` fails loudly when a release moves them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

from ..core.sampler import StepSampler
from ..dataset import InfoBatch
from ..schedule import PacedScheduler
from . import needs, sampler_of
from .logging import metrics

with needs("lightning", "lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.utilities import rank_zero_warn


class InfoBatchCallback(Callback):
    """Trains on ``train_data`` with the Trainer: ``Trainer(callbacks=[InfoBatchCallback(train_data)], ...)``.

    ``training_step`` returns ``train_data.update(loss)``, and the training loader takes its samples from
    ``train_data.sampler``, or its batches from ``train_data.batches``; ``max_steps`` needs the latter. Validation,
    limits, accumulation and progress bars then follow the true length of every epoch. Checkpoints hold the state of
    ``train_data``, so that training resumes bit for bit, also in mid-epoch. The loggers show the share kept, the mean
    score and the saving. Settings that would make this wrong raise an error when ``fit`` starts.

    If the data is made in ``DataModule.setup``, use ``InfoBatchCallback()``: it takes the InfoBatch of the training
    loader when training starts.
    """

    def __init__(self, train_data: InfoBatch | None = None) -> None:
        if train_data is not None and not isinstance(train_data, InfoBatch):
            raise TypeError(
                f"train_data must be the InfoBatch that is trained on, got {type(train_data).__name__}; where it is "
                "made in setup(), leave it out"
            )
        self._train_data = train_data
        self._from_loader = train_data is None  # whether every fit takes the training loader's data
        self._state: dict[str, Any] | None = None  # from a checkpoint, loaded into train_data when training starts

    @property
    def train_data(self) -> InfoBatch:
        """The data that is trained on; with ``InfoBatchCallback()`` it is known when training has started."""
        if self._train_data is None:
            raise RuntimeError("InfoBatchCallback() has no train_data yet: it takes the loader's when training starts")
        return self._train_data

    # -- checks --------------------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._state = None  # it may be left from a checkpoint that was only tested
        if stage != "fit":
            return
        self._check_settings(trainer)
        # First among the callbacks, so that the others (progress bars) see the epoch's true length.
        trainer.callbacks = [self, *(callback for callback in trainer.callbacks if callback is not self)]
        # The Trainer measures the loader next: let it see full data on this number of ranks, as schedules need it.
        if self._train_data is not None:
            self._train_data.set_epoch(0)
        if not self._from_loader:
            self._check_epochs(trainer)
            self.train_data.adopt_seed(_global_seed())

    def _take_loader_data(self, trainer: Trainer) -> None:
        """Take the InfoBatch of the training loader, which the Trainer has just measured, as ``train_data``."""
        train_data = getattr(trainer.train_dataloader, "dataset", None)
        if not isinstance(train_data, InfoBatch):
            raise ValueError(
                "InfoBatchCallback() takes its train_data from the training loader, which must be one "
                f"DataLoader(train_data, sampler=train_data.sampler, ...), got {_describe(trainer.train_dataloader)}"
            )
        if train_data.epoch or train_data.batches_done:
            raise ValueError(
                f"the training loader's InfoBatch stood at epoch {train_data.epoch}, batch {train_data.batches_done}, "
                "when the Trainer measured it: make a new one in setup(), or use InfoBatchCallback(train_data)"
            )
        self._train_data = train_data
        self._check_epochs(trainer)

    def _check_settings(self, trainer: Trainer) -> None:
        """Raise for settings that would be wrong in silence."""
        if trainer.overfit_batches:
            raise ValueError(
                f"Trainer(overfit_batches={trainer.overfit_batches}) replaces train_data.sampler by one that always "
                "gives the same samples: leave it at 0.0, or leave InfoBatchCallback out"
            )
        if trainer.reload_dataloaders_every_n_epochs:
            raise ValueError(
                f"Trainer(reload_dataloaders_every_n_epochs={trainer.reload_dataloaders_every_n_epochs}) measures "
                "the new loader before its epoch is planned: leave it at 0, train_data.sampler changes by itself"
            )

    def _check_epochs(self, trainer: Trainer) -> None:
        """Raise unless the Trainer makes as many epochs as the plans are made for."""
        if trainer.fast_dev_run:  # too short for it to matter
            return
        if trainer.max_steps == -1 and trainer.max_epochs != self.train_data.num_epochs:
            raise ValueError(
                f"Trainer(max_epochs={trainer.max_epochs}) and InfoBatch(num_epochs={self.train_data.num_epochs}) must "
                "be the same: the last epochs are on full data, and which are the last depends on it"
            )

    def _check_loader(self, trainer: Trainer) -> None:
        """Raise unless the training loader takes its samples from our sampler, once, on the Trainer's ranks."""
        loader, sampler = trainer.train_dataloader, self.train_data.sampler
        if sampler_of(loader) is not sampler:
            raise ValueError(
                f"the training loader must be one DataLoader(train_data, sampler=train_data.sampler, ...) on the "
                f"InfoBatch that InfoBatchCallback was given, got {_describe(loader)}; {self._advice(loader)}"
            )
        if hasattr(loader, "state_dict"):
            raise ValueError(
                f"the training loader is a {type(loader).__name__}, which the Trainer would restore on its own: use "
                "torch's DataLoader, the place in the epoch is in InfoBatchCallback's state"
            )
        ranks = (trainer.distributed_sampler_kwargs or {}).get("num_replicas", 1)
        if sampler.num_replicas != ranks:
            raise ValueError(
                f"{type(trainer.strategy).__name__} wants the data in {ranks} parts, but train_data.sampler makes "
                f"{sampler.num_replicas}, one per process: ranks that share their samples are not supported. With "
                "InfoBatchCallback(), make the InfoBatch in setup(), when the processes have been started"
            )

    def _advice(self, loader: Any) -> str:
        if not self._from_loader and getattr(loader, "dataset", None) is not self.train_data:
            return (
                "if it is on another InfoBatch, setup() has run a second time and made a new one: use "
                "InfoBatchCallback() without an argument, which takes the loader's"
            )
        return "if Lightning has replaced the sampler, use Trainer(use_distributed_sampler=False)"

    def _check_max_steps(self, trainer: Trainer) -> None:
        """Raise if ``max_steps`` ends training in an epoch other than the last; the loader has full data here."""
        if trainer.max_steps == -1 or trainer.fast_dev_run:
            return
        planned = self.train_data.num_epochs
        if not _keeps_steps(trainer):
            raise ValueError(
                f"Trainer(max_steps={trainer.max_steps}) ends training by steps, but pruned epochs have fewer of them: "
                f"use Trainer(max_epochs={planned}) and leave max_steps at -1, or let steps stay: "
                "DataLoader(train_data, batch_sampler=train_data.batches(batch_size))"
            )
        steps = math.ceil(trainer.num_training_batches / trainer.accumulate_grad_batches)
        num_epochs = math.ceil(trainer.max_steps / steps)
        if trainer.max_epochs is not None and trainer.max_epochs != -1:
            num_epochs = min(num_epochs, trainer.max_epochs)
        if num_epochs != planned:
            raise ValueError(
                f"Trainer(max_steps={trainer.max_steps}, max_epochs={trainer.max_epochs}) makes {num_epochs} epochs of "
                f"{steps} steps, but InfoBatch(num_epochs={planned}) must be the same: the last epochs are on full "
                f"data, and which are the last depends on it. {planned} epochs are max_steps={planned * steps}"
            )

    def _check_schedulers(self, trainer: Trainer) -> None:
        """Warn if a schedule will not reach its end; raise if it would jump."""
        if _keeps_steps(trainer):
            return
        limited = trainer.num_training_batches < len(trainer.train_dataloader)  # both of full data here: see setup
        for config in trainer.lr_scheduler_configs:
            if isinstance(config.scheduler, PacedScheduler):
                if limited and not trainer.fast_dev_run:
                    raise ValueError(
                        f"Trainer(limit_train_batches={trainer.limit_train_batches}) leaves every epoch early, and a "
                        "paced schedule would then jump to the next epoch: leave it at 1.0, or do not use paced()"
                    )
            elif config.interval == "step" and not config.reduce_on_plateau and self.train_data.stats.expected_saving:
                rank_zero_warn(
                    f"{type(config.scheduler).__name__} steps after every batch, and pruned epochs have fewer of them: "
                    "it will not reach its end. For the trajectory of full data wrap it in configure_optimizers: "
                    "infobatch.paced(scheduler, train_data)"
                )

    # -- epochs --------------------------------------------------------------------------------------------------

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check the loader, resume from the checkpoint, if any, and set the epoch's length."""
        if self._from_loader:
            self._take_loader_data(trainer)
        self._check_loader(trainer)
        if self._from_loader:
            self.train_data.adopt_seed(_global_seed())
        self._check_max_steps(trainer)
        self._check_schedulers(trainer)
        resumed = self._load()
        fit_loop, epoch = trainer.fit_loop, trainer.current_epoch
        batches = fit_loop.epoch_loop.batch_progress.current
        inside = resumed and self.train_data.epoch == epoch
        self.train_data.set_epoch(epoch)
        if (resumed or epoch or self._from_loader) and len(trainer.train_dataloader):
            iter(fit_loop._data_fetcher)  # the Trainer has begun with the first epoch's plan, from another seed
        self._measure(trainer, done=batches.processed if inside else 0)
        if resumed and not inside:
            # Saved after an epoch's last batch. Lightning sees this by comparing with the length of the next epoch.
            batches.completed = max(batches.completed, fit_loop.max_batches)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._measure(trainer)

    def _measure(self, trainer: Trainer, done: int = 0) -> None:
        """Set the epoch's length in the Trainer; ``done`` of its batches were trained on before."""
        whole = done + len(trainer.train_dataloader)
        if not whole:
            raise ValueError(
                f"epoch {self.train_data.epoch} has {len(self.train_data.plan)} samples, not enough for one batch: "
                "make the loader with a smaller batch_size, or without drop_last"
            )
        limit = trainer.limit_train_batches
        batches = min(limit, whole) if isinstance(limit, int) else max(int(whole * limit), 1)
        fit_loop = trainer.fit_loop
        fit_loop.max_batches = fit_loop._data_fetcher.length = batches
        fit_loop._combined_loader.limits = [batches]
        if trainer.val_check_batch is None:  # validation by the clock
            return
        if isinstance(trainer.val_check_interval, float):
            trainer.val_check_batch = max(int(batches * trainer.val_check_interval), 1)
        elif trainer.check_val_every_n_epoch is not None:  # else it counts batches across epochs
            trainer.val_check_batch = min(trainer.val_check_interval, batches)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the epoch's figures."""
        if trainer.fit_loop.epoch_loop.batch_progress.current.started and not self.train_data.batches_done:
            raise RuntimeError(
                "training_step has not called train_data.update(), so that nothing was scored and nothing can be "
                'pruned: compute the loss with reduction="none" and return train_data.update(loss), of the InfoBatch '
                "that the training loader is on"
            )
        if trainer.barebones:
            return
        if trainer.world_size > 1:
            self.train_data.state_dict()  # gathers the scores of all ranks
        pl_module.log_dict(metrics(self.train_data), batch_size=1, sync_dist=True)

    # -- stopping and going on -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state of ``train_data``; the Trainer asks on every rank, as it must."""
        return {} if self._train_data is None else self._train_data.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until training starts: the Trainer first measures the loader, and must see a whole epoch."""
        self._state = state_dict or None

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._state is not None:  # training was complete already, so that it did not start
            if self._from_loader:
                self._take_loader_data(trainer)
            self._load()

    def _load(self) -> bool:
        """Load the checkpoint's state into ``train_data``, if there is one that has not been loaded yet."""
        state, self._state = self._state, None
        if state is None:
            return False
        self.train_data.load_state_dict(state, stay=True)  # the Trainer may still have to end a complete epoch
        return True


def _keeps_steps(trainer: Trainer) -> bool:
    """Whether every epoch has as many batches as full data."""
    return isinstance(trainer.train_dataloader.batch_sampler, StepSampler)


def _global_seed() -> int | None:
    """The seed of ``seed_everything``, which leaves it in the environment for all processes."""
    seed = os.environ.get("PL_GLOBAL_SEED")
    return None if seed is None else int(seed)


def _describe(loader: Any) -> str:
    sampler = getattr(loader, "sampler", None)
    return type(loader).__name__ if sampler is None else f"a {type(loader).__name__} on a {type(sampler).__name__}"


def epochs(train_data: InfoBatch, loader: Any) -> Iterator[int]:
    """The epochs still to train, in place of ``range(num_epochs)``, with a loader from ``fabric.setup_dataloaders``.

    Such a loader counts epochs from 0 in every run and passes its count to the sampler: this sets the count to the
    epoch at which ``train_data`` stands after ``fabric.load``. In a resumed epoch ``len(loader)`` is what is left.
    """
    if not hasattr(loader, "_num_iter_calls") or sampler_of(loader) is not train_data.sampler:
        raise ValueError(
            "loader must be what fabric.setup_dataloaders() has made of DataLoader(train_data, "
            f"sampler=train_data.sampler, ...), got {_describe(loader)}"
        )
    train_data.adopt_seed(_global_seed())
    for epoch in range(train_data.epoch, train_data.num_epochs):
        train_data.set_epoch(epoch)
        loader._num_iter_calls = epoch
        yield epoch
        if train_data.epoch != epoch:
            raise RuntimeError(
                f"loader was iterated more than once in epoch {epoch}, and Fabric has counted every time as an epoch: "
                "look at samples through another loader"
            )
