"""Hugging Face Trainer on streams: ``StreamTrainer`` in place of ``Trainer``, ``StreamMixin`` before one of your own.

    args = TrainingArguments(..., max_steps=10_000)
    trainer = StreamTrainer(model, args, train_dataset=streamed, streaming={"key": lambda row: row["source"]})

``streaming`` holds the arguments of ``infobatch.Stream``. The stream is wrapped after the trainer has prepared it, and
``max_steps`` is the number of steps, which Trainer needs for data without length: ``scale`` is therefore "steps". Rows
are weighted as described in :mod:`infobatch.integrations.transformers`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from .. import checkpoint
from ..stream import Stream
from . import needs
from .transformers import InfoBatchMixin, _CarryIndex, _state_file

with needs("transformers", "transformers"):
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_utils import seed_worker

_DEFAULTS = {"ticket_key": "ticket", "scale": "steps"}


class StreamMixin(InfoBatchMixin):
    """Makes a ``Trainer`` class train on part of a stream; goes before it: ``class Mine(StreamMixin, SFTTrainer)``.

    Args:
        *args: as the trainer takes them.
        **kwargs: as the trainer takes them.
        streaming: arguments of ``Stream`` other than the source: ``key``, ``id`` or ``look``, and how much.
    """

    def __init__(self, *args: Any, streaming: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        self._streaming = streaming
        super().__init__(*args, keep_steps=True, **kwargs)

    def _wrap(self, data: Any, pruning: Any, made: Any) -> Any:
        """``data`` as a stream."""
        if pruning is not None:
            raise TypeError("pruning is for InfoBatchTrainer: pass the arguments of Stream as streaming={...}")
        if self.args.world_size > 1:
            raise ValueError(
                f"{type(self).__name__} works with one process: with several, write your own loop over "
                "stream.together(loader), which ends on all ranks together"
            )
        if isinstance(data, Stream):
            if self._streaming is not None:
                raise TypeError("train_dataset is a Stream already: pass the arguments to it, and leave out streaming")
            return data
        options = {**_DEFAULTS, **(self._streaming or {})}
        if not {"key", "id", "look"} & set(options):
            raise ValueError(
                "streaming must hold key, id or look, by which rows are known (choosing within a batch by its losses "
                "needs a loop of your own)"
            )
        return Stream(data, **options)

    def _follow(self) -> None:
        self.callback_handler.callbacks.insert(0, _Progress())

    @property
    def train_data(self) -> Any:
        """The stream that is trained on, with its statistics."""
        if not isinstance(self.train_dataset, Stream):
            raise TypeError(f"train_dataset must be a Stream, got {type(self.train_dataset).__name__}")
        return self.train_dataset

    @property
    def _index_key(self) -> str:
        return str(self.train_data.ticket_key)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """A plain torch loader over the stream."""
        args = self.args
        collate = self._get_collator_with_removed_columns(self.data_collator, description="Training")
        return DataLoader(
            self.train_data,
            batch_size=self._train_batch_size,
            drop_last=args.dataloader_drop_last,
            collate_fn=_CarryIndex(collate, self._index_key),
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            worker_init_fn=functools.partial(
                seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index
            ),
            generator=torch.Generator(),
        )

    # -- how long training is: Trainer's own max_steps ------------------------------------------------------------

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Any:
        """As Trainer does for data without length."""
        return super(InfoBatchMixin, self).set_initial_training_values(args, dataloader)

    def _init_training_state(
        self,
        max_steps: int,
        num_update_steps_per_epoch: int,
        num_train_epochs: int,
        resume_from_checkpoint: Any,
        trial: Any,
    ) -> tuple[int, int]:
        """Resume the stream, which knows its place: Trainer skips no batch."""
        super(InfoBatchMixin, self)._init_training_state(
            max_steps, num_update_steps_per_epoch, num_train_epochs, resume_from_checkpoint, trial
        )
        if resume_from_checkpoint is not None:
            self.train_data.load_state_dict(checkpoint.load(_state_file(resume_from_checkpoint)))
        return 0, 0

    def _run_epoch(self, *, epoch: int, train_dataloader: DataLoader[Any], **rest: Any) -> None:
        """One pass over the stream, or what is left of it."""
        super(InfoBatchMixin, self)._run_epoch(epoch=epoch, train_dataloader=train_dataloader, **rest)

    def _finalize_training(self, trial: Any, num_train_samples: float, start_time: float) -> Any:
        """Report speed in samples that were trained on."""
        return super(InfoBatchMixin, self)._finalize_training(trial, self.train_data.stats.trained, start_time)


class StreamTrainer(StreamMixin, Trainer):
    """``Trainer`` on part of a stream: see :class:`StreamMixin`."""


class _Progress(TrainerCallback):
    """Sets ``state.epoch`` to the share of training's steps that are done, also after a resume."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.epoch = state.global_step / state.max_steps
