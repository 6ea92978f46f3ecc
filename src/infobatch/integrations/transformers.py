"""Hugging Face Trainer: ``InfoBatchTrainer`` in place of ``Trainer``, ``InfoBatchMixin`` before a trainer of your own.

    trainer = InfoBatchTrainer(model, args, train_dataset=data, pruning={"ratio": 0.5})

    class PrunedSFTTrainer(InfoBatchMixin, SFTTrainer): ...

``pruning`` holds the arguments of ``InfoBatch``; the number of epochs follows from the training arguments. Pass the
plain data: it is wrapped after the trainer has prepared it (SFTTrainer tokenises and packs its data first). An
``InfoBatch`` of your own as ``train_dataset`` works too if the trainer does not change its data. With
``keep_steps=True`` pruned epochs have as many steps as full ones, and batches shrink instead.

The divisor of the loss
-----------------------
Trainer's own loss for one optimiser step is Σ_i S_i / Σ_i T_i over all rows i of the step (of all accumulated batches
and all processes), where S_i is the sum of row i's token losses and T_i the number of its tokens: the mean S over the
mean T of the step's b rows. A pruned epoch has fewer steps, and row i has the weight w_i = 1/π_i. For the sum over an
epoch to be the same as with all data, the step must be

    (1/b) Σ_i w_i S_i / T̄    with T̄ the mean tokens of a row of the *whole* data.

With ``keep_steps`` the weights are divided by their mean, so that each step, and not the sum over the epoch's steps, is
on the scale of all data.

Σ_i w_i S_i / Σ_i T_i would use the mean tokens of the rows that were *kept*: where short rows are the easy ones, every
step would be too small by the ratio of the two. So T̄ is estimated with the weights as well: T̄ = Σ w_i T_i / Σ w_i, and
``num_items_in_batch`` becomes b · Σ w_i T_i / Σ w_i. With all weights 1 that is Trainer's own Σ T_i; for rows of equal
length, and for losses with one value per row (classification, regression), it is the number of tokens and the loss is
unbiased exactly; else up to the bias that a ratio of two sums over b rows has anyway, in Trainer too. The counts are
taken over the whole step before its first forward pass, so that accumulated batches share one divisor. With several
processes they are added up, and Trainer multiplies the loss by the number of processes, because DDP divides by it.

A row's score is its mean token loss. Rows without a single target count as rows with loss 0.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from .. import checkpoint
from ..core.checks import check_loss
from ..core.turn import own_draws
from ..dataset import InfoBatch
from ..schedule import PacedScheduler, paced
from ..scoring.language import IGNORED, RowLosses, by_row, row_losses, span_losses, spans_per_row, targets_per_row
from ..stream import Stream
from . import batching, needs, sampler_of
from .logging import metrics

with needs("transformers", "transformers"):
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_callback import ProgressCallback
    from transformers.trainer_utils import seed_worker

if not hasattr(Trainer, "loss_is_scaled_for_ga"):
    raise ImportError('this integration needs transformers 5.19 or newer: pip install -U "infobatch[transformers]"')

INDEX_KEY = "sample_index"
SPAN = ("start_positions", "end_positions")  # the targets of question answering
STATE_FILE = "infobatch.pt"  # beside Trainer's own files in a checkpoint

_Trainer: Any = object  # the class that the mixin goes before


class InfoBatchMixin(_Trainer):
    """Makes a ``Trainer`` class train on fewer samples; goes before it: ``class Mine(InfoBatchMixin, SFTTrainer)``.

    Args:
        *args: as the trainer takes them.
        **kwargs: as the trainer takes them.
        pruning: arguments of ``InfoBatch`` other than the data and ``num_epochs``; None: its defaults.
        keep_steps: let every epoch have as many steps as with all data, in batches that shrink. ``max_steps`` and the
            schedule are then Trainer's own. See ``InfoBatch.batches``.

    ``compute_loss_func``, where you give one, must return one loss per sample; their weighted mean is trained on.
    """

    train_dataset: Any
    compute_loss_func: Any
    lr_scheduler: Any
    loss_is_scaled_for_ga = True  # what compute_loss returns is divided by all items of the step

    def __init__(
        self, *args: Any, pruning: Mapping[str, Any] | None = None, keep_steps: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._keep_steps = keep_steps
        self._full_steps: tuple[int, int] | None = None  # (steps of an epoch, steps of training) with all data
        self._loss_is_known = False  # whether _losses was seen to compute the model's own loss from its logits
        self._shifts = self._loss_shifts_labels  # whether the loss at a position is of the next label
        self._counts_shifted = self._loss_shifts_labels  # whether losses are counted after that shift
        if self.train_dataset is None:
            return
        self._check_arguments()
        made = [value for value in (*args, *kwargs.values()) if isinstance(value, InfoBatch)]
        self.train_dataset = self._wrap(self.train_dataset, pruning, made)
        self._follow()

    def _follow(self) -> None:
        """Check the data once it is wrapped, and keep ``state.epoch`` true."""
        if self.train_dataset.plan.repeats and self.args.world_size > 1:
            raise ValueError(
                "order=, which may repeat samples, does not work with several processes here: leave it out"
            )
        self.callback_handler.callbacks.insert(0, _Place(self.train_dataset))  # first, so that the others see it

    @property
    def train_data(self) -> InfoBatch:
        """The data that is trained on, with its plan, scores and statistics."""
        if not isinstance(self.train_dataset, InfoBatch):
            raise TypeError(
                f"train_dataset must be an InfoBatch, got {type(self.train_dataset).__name__}: pass the data when you "
                "make the trainer, which wraps it"
            )
        return self.train_dataset

    # -- what is trained on --------------------------------------------------------------------------------------

    def _wrap(self, data: Any, pruning: Mapping[str, Any] | None, made: list[InfoBatch]) -> InfoBatch:
        """``data`` as an InfoBatch whose samples carry their index."""
        if isinstance(data, InfoBatch):
            if pruning is not None:
                raise TypeError("train_dataset is an InfoBatch already: pass it the arguments, and leave out pruning")
            if data.index_key is None:
                raise ValueError(
                    "train_dataset was made without index_key, but Trainer fetches batches ahead: "
                    f'InfoBatch(..., index_key="{INDEX_KEY}")'
                )
            return data
        if made:
            raise TypeError(
                f"{type(self).__name__} prepares its data and has unpacked the InfoBatch given as train_dataset: "
                "pass the plain data, and pruning={...} with the arguments of InfoBatch"
            )
        options = {"index_key": INDEX_KEY, **(pruning or {})}
        for name in ("dataset", "num_epochs"):
            if name in options:
                raise TypeError(
                    f"pruning must not hold {name}: it is known from train_dataset and the training arguments"
                )
        return InfoBatch(data, self._num_epochs(data), **options)

    def _num_epochs(self, data: Any) -> int:
        args = self.args
        if args.max_steps <= 0 or not hasattr(data, "__len__"):
            return math.ceil(args.num_train_epochs)
        batches = self._full_batches(len(data))
        return math.ceil(args.max_steps / max(-(-batches // args.gradient_accumulation_steps), 1))

    def _full_batches(self, samples: int) -> int:
        """Batches per process in an epoch over all data."""
        each = -(-samples // self.args.world_size)
        size = self._train_batch_size
        return each // size if self.args.dataloader_drop_last else -(-each // size)

    def _check_arguments(self) -> None:
        """Raise if the training arguments ask for something that pruning would break."""
        args, sharing = self.args, self.args.accelerator_config
        many = args.world_size > 1
        sizes = [self.get_tp_size(), self.get_cp_size(), self.get_sp_size()]
        refused = [
            (args.n_gpu > 1, "several GPUs in one process (DataParallel)", "start one process per GPU with torchrun"),
            (
                args.train_sampling_strategy != "random",
                f'train_sampling_strategy="{args.train_sampling_strategy}"',
                'the plan of each epoch has its own order: leave it at "random"',
            ),
            (
                many and not args.average_tokens_across_devices,
                "average_tokens_across_devices=False with several processes",
                "weights are exact over all rows of a step only: leave it at True",
            ),
            (args.enable_jit_checkpoint, "enable_jit_checkpoint", "it saves in mid-step; use save_steps"),
            (self.is_deepspeed_enabled, "DeepSpeed", "use DDP or FSDP"),
            (
                max(sizes) > 1,
                f"tensor, context or sequence parallelism {sizes}",
                "every process must have its own rows",
            ),
            (
                bool(sharing.split_batches or sharing.dispatch_batches),
                "split_batches or dispatch_batches in accelerator_config",
                "each process fetches its own batches: leave them out",
            ),
            (
                getattr(args, "loss_type", "nll") == "dft",
                'loss_type="dft"',
                'its tokens have weights of their own: use "nll"',
            ),
        ]
        for wrong, what, remedy in refused:
            if wrong:
                raise ValueError(f"{type(self).__name__} cannot prune with {what}: {remedy}")

    def get_train_dataloader(self) -> DataLoader[Any]:
        """A plain torch loader over ``train_data``, which gives each process its own samples."""
        args = self.args
        collate = self._get_collator_with_removed_columns(self.data_collator, description="Training")
        return DataLoader(
            self.train_data,
            **batching(self.train_data, self._train_batch_size, args.dataloader_drop_last, self._keep_steps),
            collate_fn=_CarryIndex(collate, self._index_key),
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            multiprocessing_context=args.dataloader_multiprocessing_context,
            in_order=args.dataloader_in_order,
            worker_init_fn=functools.partial(
                seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index
            ),
            generator=torch.Generator(),  # so that making an iterator leaves the global random state as it is
        )

    @property
    def _index_key(self) -> str:
        key = self.train_data.index_key
        assert key is not None
        return key

    # -- how long training is ------------------------------------------------------------------------------------

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Any:
        """The values for all data, which schedules are made for."""
        nominal = _FullEpoch(self.train_data, self._full_batches(self.train_data.plan.total))
        values = super().set_initial_training_values(args, nominal)
        num_epochs, steps_per_epoch, *_, max_steps = values
        if num_epochs != self.train_data.num_epochs:
            raise ValueError(
                f"train_dataset was made for num_epochs={self.train_data.num_epochs}, but the training arguments make "
                f"{num_epochs} epochs: the last epochs, which need all data, would differ. Make both the same"
            )
        self._full_steps = steps_per_epoch, max_steps
        return values

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Trainer's schedule for all data, or the one passed to it; paced where pruned epochs have fewer steps."""
        if optimizer is None:
            optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # Accelerate's wrapper has no step hooks
        scheduler = super().create_scheduler(num_training_steps, optimizer)
        follows_metric = hasattr(scheduler, "num_bad_epochs")  # ReduceLROnPlateau, GreedyLR
        as_it_is = follows_metric or self._keep_steps or isinstance(scheduler, PacedScheduler)
        if self._full_steps is not None and not as_it_is:
            self.lr_scheduler = paced(scheduler, self.train_data, steps_per_epoch=self._full_steps[0])
        return self.lr_scheduler

    def _init_training_state(
        self,
        max_steps: int,
        num_update_steps_per_epoch: int,
        num_train_epochs: int,
        resume_from_checkpoint: Any,
        trial: Any,
    ) -> tuple[int, int]:
        """Where to resume: train_data knows the epoch, and its sampler holds only the rest of it."""
        super()._init_training_state(
            max_steps, num_update_steps_per_epoch, num_train_epochs, resume_from_checkpoint, trial
        )
        if resume_from_checkpoint is None:
            self.train_data.set_epoch(0)
        else:
            self.train_data.load_state_dict(checkpoint.load(_state_file(resume_from_checkpoint)))
        self.train_data.adopt_seed(self._data_seed)
        return self.train_data.epoch, 0

    @property
    def _data_seed(self) -> int:
        """The seed of Trainer's own sampler."""
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Write train_data's state beside the other files that Trainer needs to resume."""
        super()._save_optimizer_and_scheduler(output_dir)
        state = self.train_data.state_dict()  # on every process: scores are gathered
        if self.args.should_save:
            checkpoint.save(state, os.path.join(output_dir, STATE_FILE))

    def _run_epoch(self, *, epoch: int, train_dataloader: DataLoader[Any], **rest: Any) -> None:
        """Run one epoch with its real length."""
        train_data, args = self.train_data, self.args
        if sampler_of(train_dataloader) is not train_data.sampler:
            raise TypeError(
                "the loader of get_train_dataloader() must use train_data.sampler: call super() in your own"
            )
        train_data.set_epoch(epoch)
        if train_dataloader.generator is not None:
            train_dataloader.generator.manual_seed(self._data_seed + epoch)
        batches = len(train_dataloader)
        if batches == 0:
            raise ValueError(
                f"the {len(train_data.sampler)} samples of epoch {epoch} are fewer than a batch, and "
                "dataloader_drop_last=True drops it: use smaller batches, or dataloader_drop_last=False"
            )
        steps = -(-batches // args.gradient_accumulation_steps)
        self._expect(epoch, steps)
        rest |= {"steps_in_epoch": batches, "num_update_steps_per_epoch": steps}
        super()._run_epoch(epoch=epoch, train_dataloader=train_dataloader, **rest)

    def _expect(self, epoch: int, steps: int) -> None:
        """Set how many steps training will have: those of this epoch, and those of full epochs after it.

        ``state.max_steps`` is where Trainer stops and what progress bars show; in the last epoch it is exact. Training
        that ends in mid-epoch with all data ends at the same share of the pruned epoch.
        """
        assert self._full_steps is not None
        of_epoch, of_training = self._full_steps
        before = self.train_data.batches_done // self.args.gradient_accumulation_steps
        to_come = of_training - of_epoch * (epoch + 1)
        if to_come < 0:
            steps = math.ceil((before + steps) * (of_training - of_epoch * epoch) / of_epoch) - before
        self.state.max_steps = self.state.global_step + steps + max(to_come, 0)
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, ProgressCallback) and callback.training_bar is not None:
                callback.training_bar.total = self.state.max_steps
                callback.training_bar.refresh()

    def _finalize_training(self, trial: Any, num_train_samples: float, start_time: float) -> Any:
        """Report speed in samples that were trained on."""
        return super()._finalize_training(trial, self.train_data.stats.seen, start_time)

    # -- the step ------------------------------------------------------------------------------------------------

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor]:
        """The batches of one optimiser step, with their weights, and the divisor of its loss (see above)."""
        batches = list(itertools.islice(epoch_iterator, num_batches))
        if batches and not self._loss_is_known:
            self._learn_loss(batches[0])
        sums = torch.zeros(3, dtype=torch.float64)  # Σ w·T, Σ w, rows
        for batch in batches:
            rows = batch[self._index_key]
            weight = self.train_data.weights_of(rows["index"])
            rows["weight"] = weight.float()
            tokens = self._tokens(batch, rows)
            sums += torch.stack([weight @ tokens.double(), weight.sum(), weight.count_nonzero()])
        if self.args.world_size > 1:
            sums = self.accelerator.reduce(sums.to(device), reduction="sum").cpu()
        weighted_tokens, weights, count = sums
        items = count * weighted_tokens / weights.clamp(min=1)
        return batches, torch.where(items > 0, items, 1.0).to(device, torch.float32)

    def _tokens(self, batch: Mapping[str, Any], rows: Mapping[str, Any]) -> torch.Tensor:
        """How many losses each row has, as Trainer counts them."""
        labels = batch.get("labels")
        if self.compute_loss_func is None and labels is None and all(name in batch for name in SPAN):
            return _spans(batch)
        if self.compute_loss_func is not None or not isinstance(labels, torch.Tensor) or labels.is_floating_point():
            return torch.ones(len(rows["index"]))
        if "shift_labels" in batch:
            raise ValueError(
                "the collator gives shift_labels, whose rows are not known: let the model shift the labels"
            )
        if labels.dim() == 1:
            labels = labels[:, None]
        shift = self._counts_shifted or self._has_fused_head
        return targets_per_row(labels, shift=shift, lengths=rows["lengths"])

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Train on one batch; raise if its losses did not reach ``train_data.update``."""
        before = self.train_data.batches_done
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self.train_data.batches_done != before + 1:
            raise RuntimeError(
                f"compute_loss of {type(self).__name__} makes its own loss, and train_data.update() was not called: "
                "pass compute_loss_func, which returns one loss per sample, in place of your own compute_loss"
            )
        assert isinstance(loss, torch.Tensor)
        return loss

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The weighted loss of a training batch; of any other batch, Trainer's own."""
        train_data = self.train_dataset
        key = self._index_key if isinstance(train_data, InfoBatch | Stream) else None
        if not isinstance(inputs.get(key), Mapping):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        rows = _Rows(**inputs.pop(key))
        theirs = self.compute_loss_func
        if theirs is None and self.label_smoother is None and self._has_fused_head:
            return super().compute_loss(_FusedHead(model, train_data, rows), inputs, return_outputs, num_items_in_batch)
        model = self._with_decoder_inputs(model, inputs)

        spans = {name: inputs[name] for name in SPAN if name in inputs}

        def weighted(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
            if theirs is None:
                losses = self._losses(outputs, {"labels": labels, **spans}, rows)
            else:
                losses = _as_row_losses(theirs(outputs, labels), rows)
            train_data.update(losses.mean.detach(), rows.index)
            return losses.total @ rows.weight.to(losses.total.dtype) / num_items_in_batch

        self.compute_loss_func = weighted
        try:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            self.compute_loss_func = theirs

    def _with_decoder_inputs(self, model: Any, inputs: Any) -> Any:
        """The model, with decoder inputs for an encoder-decoder: Trainer does not pass the labels to it.

        The decoder inputs that it would make from its labels are added to the inputs; if only its own forward pass can
        make them, as in Whisper, the labels are passed after all.
        """
        config = getattr(self.model, "config", None)
        if "labels" not in inputs or "decoder_input_ids" in inputs:
            return model
        prepare = getattr(self.model, "prepare_decoder_input_ids_from_labels", None)
        if prepare is not None:
            inputs["decoder_input_ids"] = prepare(labels=inputs["labels"])
        elif getattr(config, "is_encoder_decoder", False):
            return functools.partial(model, labels=inputs["labels"])
        return model

    @property
    def _has_fused_head(self) -> bool:
        """Whether this is a trainer of TRL that lets the model return log-probabilities in place of logits."""
        return any(hasattr(sys.modules[kind.__module__], "add_fused_lm_head") for kind in type(self).__mro__)

    def _losses(self, outputs: Any, targets: Mapping[str, Any], rows: _Rows, smoothed: bool = True) -> RowLosses:
        """The losses of each row, as the model itself computes them from its logits."""
        if targets.get("labels") is None:
            return span_losses(outputs["start_logits"], outputs["end_logits"], *(targets[name] for name in SPAN))
        logits, labels = outputs["logits"], targets["labels"]
        smoothing = self.args.label_smoothing_factor if smoothed and self.label_smoother is not None else 0.0
        problem = getattr(getattr(self.model, "config", None), "problem_type", None)
        if problem in ("regression", "multi_label_classification") and logits.dim() <= 2:
            pairs = logits.reshape(len(rows.index), -1), labels.reshape(len(rows.index), -1).to(logits.dtype)
            each = functional.mse_loss if problem == "regression" else functional.binary_cross_entropy_with_logits
            return _as_row_losses(each(*pairs, reduction="none").mean(1), rows)
        if logits.dim() == 2:
            logits, labels = logits[:, None], labels.reshape(-1, 1)
        return row_losses(logits, labels, shift=self._shifts, lengths=rows.lengths, label_smoothing=smoothing)

    def _learn_loss(self, batch: Mapping[str, Any]) -> None:
        """Learn from a first batch with a target how the model computes its loss; raise unless it is the rows' mean."""
        if self.compute_loss_func is not None or (self.label_smoother is None and self._has_fused_head):
            self._loss_is_known = True
            return
        if not self._tokens(batch, batch[self._index_key]).any():
            return  # there is no loss to compare
        inputs = self._prepare_inputs({name: value for name, value in batch.items() if name != self._index_key})
        rows = _Rows(**batch[self._index_key], weight=torch.ones(0))
        model = self.model_wrapped
        model.eval()  # no randomness is used up
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs)
            if not self._loss_shifts_labels and self._predicts_next_token(model, inputs):
                self._shifts = True
                self._counts_shifted = not self._divides(model, inputs, outputs)
        model.train()
        reason = self._difference(outputs, inputs, rows)
        if reason is not None:
            raise ValueError(
                f"{type(self.model).__name__} computes its loss in a way that is not known ({reason}): give "
                "compute_loss_func=f, where f(outputs, labels) returns one loss per sample"
            )
        self._loss_is_known = True

    def _difference(self, outputs: Any, inputs: Any, rows: _Rows) -> str | None:
        """How the mean of the rows' losses differs from the model's own loss; None if it does not."""
        own = outputs.get("loss") if isinstance(outputs, Mapping) else None
        targets = ("labels", "logits") if inputs.get("labels") is not None else (*SPAN, "start_logits", "end_logits")
        if own is None or own.dim() or any(name not in inputs and name not in outputs for name in targets):
            return "its inputs and outputs do not hold labels, logits and one loss, or those of question answering"
        try:
            total, tokens = self._losses(outputs, inputs, rows, smoothed=False)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            return f"labels and logits do not go together: {error}"
        ours = total.sum() / tokens.sum().clamp(min=1)
        tolerance = max(1e-4, 4 * torch.finfo(outputs[targets[-1]].dtype).eps)
        if torch.allclose(own.float(), ours.float(), rtol=tolerance, atol=tolerance / 10):
            return None
        return f"its own loss is {own:.6g}, but the mean of the rows' losses is {ours:.6g}"

    def _predicts_next_token(self, model: Any, inputs: Any) -> bool:
        """Whether a model predicts the next token though its class name does not say so, such as ``GPT2LMHeadModel``.

        Then a row's first label is never a target, and with that label alone there is no loss to take the mean of.
        Losses themselves could not tell: in a new model they may be the same at every token.
        """
        labels = inputs.get("labels")
        if getattr(self.model, "loss_type", "") is not None or not isinstance(labels, torch.Tensor):
            return False
        if labels.dim() != 2 or labels.shape[1] < 2 or labels.is_floating_point():
            return False
        first = torch.full_like(labels, IGNORED)
        first[:, 0] = labels[:, 0].clamp(min=0)
        outputs = model(**{**inputs, "labels": first})
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
        return loss is not None and bool(loss.isnan())

    def _divides(self, model: Any, inputs: Any, outputs: Any) -> bool:
        """Whether the model divides by the ``num_items_in_batch`` that Trainer counts: we then count it alike."""
        if not self.model_accepts_loss_kwargs:
            return False
        divided = model(**inputs, num_items_in_batch=torch.tensor(1.0))
        return not torch.allclose(divided["loss"], outputs["loss"])

    # -- logging -------------------------------------------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Trainer's figures of training, and those of pruning."""
        if isinstance(self.train_dataset, InfoBatch | Stream) and ("loss" in logs or "train_loss" in logs):
            logs.update(metrics(self.train_dataset))
        super().log(logs, start_time)


class InfoBatchTrainer(InfoBatchMixin, Trainer):
    """``Trainer`` that trains on fewer samples and reaches the same model: see :class:`InfoBatchMixin`."""


@dataclass
class _Rows:
    """The samples of a batch, their weights, and their lengths if the batch has them end to end in one row."""

    index: torch.Tensor
    lengths: torch.Tensor | None
    weight: torch.Tensor


class _CarryIndex:
    """Takes the index out of the samples, so that no collator drops or chokes on it, and puts it into the batch."""

    def __init__(self, collate: Callable[[list[Any]], Any], key: str) -> None:
        self.collate = collate
        self.key = key

    def __call__(self, samples: list[Any]) -> Any:
        if not all(isinstance(sample, Mapping) for sample in samples):
            raise TypeError(f"the samples must be dicts, as Trainer takes them, got {type(samples[0]).__name__}")
        index = torch.tensor([sample[self.key] for sample in samples])
        bare = [{name: value for name, value in sample.items() if name != self.key} for sample in samples]
        with own_draws(samples[0][self.key]):
            batch = self.collate(bare)
        batch[self.key] = {"index": index, "lengths": self._lengths(batch, bare)}
        return batch

    def _lengths(self, batch: Any, samples: list[Any]) -> torch.Tensor | None:
        """The length of each sample, if the collator has laid them end to end in one row."""
        labels = batch.get("labels")
        if not isinstance(labels, torch.Tensor) or len(labels) == len(samples):
            return None
        if len(labels) != 1 or "input_ids" not in samples[0]:
            raise ValueError(
                f"the collator made {len(labels)} rows of labels from {len(samples)} samples: it must keep one row per "
                "sample, or lay the samples' input_ids end to end in one row"
            )
        return torch.tensor([len(sample["input_ids"]) for sample in samples])


class _FusedHead:
    """Wraps a model: records each row's loss and weights its log-probabilities, which TRL sums up itself."""

    def __init__(self, model: Any, train_data: InfoBatch, rows: _Rows) -> None:
        self.model = model
        self.train_data = train_data
        self.rows = rows

    def __call__(self, **inputs: Any) -> Any:
        outputs = self.model(**inputs)
        if "log_probs" in outputs:
            log_probs, rows = outputs["log_probs"], self.rows
            each = functional.pad(log_probs, (1, 0))  # at the position that is predicted
            counted = functional.pad(outputs["label_mask"], (1, 0)).float()
            losses = RowLosses(-by_row(each.detach(), rows.lengths), by_row(counted, rows.lengths))
            self.train_data.update(losses.mean, rows.index)
            outputs["log_probs"] = log_probs * self._per_token(log_probs)
        return outputs

    def _per_token(self, log_probs: torch.Tensor) -> torch.Tensor:
        """Each row's weight, at each of its tokens."""
        rows, weight = self.rows, self.rows.weight.to(log_probs.dtype)
        if rows.lengths is None:
            return weight[:, None]
        of_row = torch.repeat_interleave(weight, rows.lengths)[1:]
        return functional.pad(of_row, (0, log_probs.shape[1] - len(of_row)))[None]


class _FullEpoch:
    """Stands for the loader of an epoch over all data, where Trainer asks how long training is."""

    def __init__(self, dataset: Dataset[Any], batches: int) -> None:
        self.dataset = dataset
        self.batches = batches

    def __len__(self) -> int:
        return self.batches


class _Place(TrainerCallback):
    """Sets ``state.epoch`` to the epochs done plus the share of this epoch's samples, also in a resumed epoch."""

    def __init__(self, train_data: InfoBatch) -> None:
        self.train_data = train_data

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        done, total = self.train_data.position
        state.epoch = self.train_data.epoch + done / total


def _spans(batch: Mapping[str, Any]) -> torch.Tensor:
    """How many targets each row of questions has: 1, or 0 where the answer lies outside."""
    start, end = (batch[name] for name in SPAN)
    spans = spans_per_row(start, end, batch["input_ids"].shape[-1])
    if (spans == 0.5).any():
        raise ValueError(
            f"start_positions and end_positions of row {int((spans == 0.5).int().argmax())} of a batch: one is inside "
            "the row and the other outside, so that its loss is half a loss. Put both inside, or both outside"
        )
    return spans


def _as_row_losses(losses: Any, rows: _Rows) -> RowLosses:
    """Losses with one value per row as row losses of one item each."""
    check_loss("the result of compute_loss_func", losses)
    if len(losses) != len(rows.index):
        raise ValueError(
            f"compute_loss_func must return one loss per sample: {len(losses)} for {len(rows.index)} samples"
        )
    return RowLosses(losses, torch.ones_like(losses))


def _state_file(folder: str) -> str:
    path = os.path.join(folder, STATE_FILE)
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"{folder} holds no {STATE_FILE}, so it is not known which samples were seen: resume from a checkpoint "
            "that this trainer saved, with save_only_model=False"
        )
    return path
