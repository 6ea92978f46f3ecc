"""InfoBatch in timm's ``train.py``: loader, Mixup, criterion, scheduler and checkpoints.

>>> train_data = InfoBatch(create_dataset(...), num_epochs, index_key="index")
>>> loader = create_loader(train_data, input_size, batch_size, collate_fn=FastCollateMixup(...), ...)
>>> criterion = Criterion(SoftTargetCrossEntropy(), train_data)
>>> scheduler, num_epochs = create_scheduler(train_data, loader, optimizer, sched="cosine", ...)

The rest of the script stays. timm fetches a batch ahead, so that batches are known by index: the second item of each
batch is a :class:`Target`, which holds labels and indices and moves to a device as a tensor does. See docs/timm.md.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from ..core.checks import check_loss
from ..core.sampler import StepSampler
from ..core.turn import own_draws
from ..core.weights import PairWeights, working_dtype
from ..dataset import InfoBatch
from ..scoring import classification
from . import batching, needs, torch_seed

with needs("timm", "timm"):
    import timm.data
    from timm.data.mixup import FastCollateMixup, Mixup, mixup_target
    from timm.loss import BinaryCrossEntropy, JsdCrossEntropy, LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
    from timm.scheduler import create_scheduler_v2
    from timm.utils import dispatch_clip_grad

__all__ = ["CheckpointState", "Criterion", "Target", "create_loader", "create_scheduler", "indexed"]

# -- the batch -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """The labels and indices of a batch's inputs and, where they were mixed, the mixed targets.

    Input i is a mix of sample i, with the share ``share[i]`` (timm's λ), and of sample B-1-i.
    """

    label: torch.Tensor
    index: torch.Tensor
    mixed: torch.Tensor | None = None
    share: torch.Tensor | None = None
    per_element: bool = False  # whether the two inputs of a pair have a λ each

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Target:
        """The target on another device; like ``Tensor.to``, but it never changes a dtype."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Target:
        """The target in pinned memory: torch's loader calls this."""
        return self._each(torch.Tensor.pin_memory)

    def _each(self, move: Callable[[torch.Tensor], torch.Tensor]) -> Target:
        mixed, share = (None if tensor is None else move(tensor) for tensor in (self.mixed, self.share))
        return Target(move(self.label), move(self.index), mixed, share, self.per_element)


def create_loader(
    dataset: Any,
    input_size: int | tuple[int, int] | tuple[int, int, int],
    batch_size: int,
    is_training: bool | None = None,
    *,
    collate_fn: Callable[..., Any] | None = None,
    use_prefetcher: bool = True,
    keep_steps: bool = False,
    **options: Any,
) -> Any:
    """Replaces timm's ``create_loader`` for an InfoBatch; the loader delivers (inputs, :class:`Target`).

    Takes timm's own arguments. ``distributed`` makes no difference: train_data shards by rank on its own. With
    ``keep_steps`` every epoch has as many batches as full data, and they shrink: see ``InfoBatch.batches``. Any other
    data set, such as the validation set, gets timm's own loader with the same arguments.
    """
    if not isinstance(dataset, InfoBatch):
        if keep_steps:
            raise TypeError(
                f"keep_steps=True is for an InfoBatch, got {type(dataset).__name__}: wrap the training set first"
            )
        if is_training is not None:
            options["is_training"] = is_training
        return timm.data.create_loader(
            dataset, input_size, batch_size, collate_fn=collate_fn, use_prefetcher=use_prefetcher, **options
        )
    train_data = dataset
    _check_loader(train_data, is_training, options)
    train_data.adopt_seed(torch_seed())  # set by timm.utils.random_seed, to another value on each rank
    options["distributed"] = False
    made = timm.data.create_loader(
        train_data.dataset,  # timm gives it the transform
        input_size,
        batch_size,
        is_training=True,
        collate_fn=collate_fn,
        use_prefetcher=use_prefetcher,
        **options,
    )
    inner = made.loader if use_prefetcher else made
    collate = inner.collate_fn
    loader: DataLoader[Any] = DataLoader(
        train_data,
        **batching(train_data, batch_size, inner.drop_last, keep_steps),
        collate_fn=_MixedCollate(collate) if isinstance(collate, FastCollateMixup) else _Collate(collate),
        num_workers=inner.num_workers,
        pin_memory=inner.pin_memory,
        worker_init_fn=inner.worker_init_fn,
        persistent_workers=inner.persistent_workers,
    )
    if not use_prefetcher:
        return loader
    made.loader = loader
    return made


def _check_loader(train_data: InfoBatch, is_training: bool | None, options: dict[str, Any]) -> None:
    if train_data.index_key is None:
        raise ValueError(
            "train_data must carry indices, because timm fetches a batch ahead: InfoBatch(..., index_key='index')"
        )
    if is_training is not None and not is_training:
        raise ValueError("is_training=False: make the validation loader from data of its own, not from an InfoBatch")
    if repeats := options.get("num_aug_repeats"):
        raise ValueError(
            f"num_aug_repeats={repeats}: repeated augmentation is an order of samples, so give it to InfoBatch: "
            f"order=RepeatAugSampler(dataset, num_replicas=1, rank=0, num_repeats={repeats}); see docs/timm.md"
        )
    refused = {
        "use_multi_epochs_loader": "it draws the next epoch's samples before their plan is made",
        "num_aug_splits": "an input of several views has no loss of its own (the JSD loss is over a batch)",
        "input_size_choices": "its sampler names samples by (index, size)",
    }
    for name, why in refused.items():
        if options.get(name):
            raise ValueError(f"{name}={options[name]!r} does not go with InfoBatch: {why}. Leave it out")


class _Collate:
    """A collate function for (input, label) pairs, given samples that end with their index."""

    def __init__(self, collate: Callable[..., Any]) -> None:
        self.collate = collate

    def __call__(self, batch: Sequence[tuple[Any, ...]]) -> tuple[torch.Tensor, Target]:
        with own_draws(batch[0][-1]):
            inputs, label = self.collate([sample[:2] for sample in batch])
        return inputs, Target(label, _indices(batch))


class _MixedCollate(FastCollateMixup):
    """A ``FastCollateMixup`` for samples that end with their index; timm's switch for mixing needs a subclass."""

    def __init__(self, mixup: FastCollateMixup) -> None:
        _check_mode(mixup)
        self.__dict__.update(vars(mixup))

    def __call__(self, batch: Sequence[tuple[Any, ...]], _: Any = None) -> tuple[torch.Tensor, Target]:
        left, middle, right = _halves(batch)
        places = [(sample[0], place) for place, sample in enumerate([*left, *right])]
        with own_draws(batch[0][-1]):
            inputs, shares = FastCollateMixup.__call__(_make_share_reporter(self, len(places)), places)
        label = torch.tensor([sample[1] for sample in batch], dtype=torch.int64)
        inputs = _put_between(inputs, [torch.as_tensor(sample[0]) for sample in middle])
        return inputs, _mix_target(self, Target(label, _indices(batch)), shares)


def _indices(batch: Sequence[tuple[Any, ...]]) -> torch.Tensor:
    return torch.tensor([sample[-1] for sample in batch], dtype=torch.int64)


# -- mixing ----------------------------------------------------------------------------------------------------------


def indexed(mixup: Mixup) -> Mixup:
    """Make timm's ``Mixup`` work on the batches of ``create_loader(..., use_prefetcher=False)``.

    With the prefetcher, pass the ``FastCollateMixup`` to ``create_loader`` as it is.
    """
    if isinstance(mixup, FastCollateMixup):
        raise TypeError("mixup is a FastCollateMixup: pass it to create_loader(..., collate_fn=mixup) as it is")
    return _IndexedMixup(mixup)


class _IndexedMixup(Mixup):
    def __init__(self, mixup: Mixup) -> None:
        _check_mode(mixup)
        self.__dict__.update(vars(mixup))

    def __call__(self, x: torch.Tensor, target: Target) -> tuple[torch.Tensor, Target]:
        left, middle, right = _halves(x)
        pairs = torch.cat([left, right]) if len(middle) else x
        places = torch.arange(len(pairs), device=x.device)
        pairs, shares = Mixup.__call__(_make_share_reporter(self, len(pairs)), pairs, places)
        return _put_between(pairs, middle), _mix_target(self, target, shares)


def _make_share_reporter(mixup: Mixup, batch_size: int) -> Mixup:
    """A copy that takes an input's place in the batch for its class, so that its mixed targets are the shares."""
    reporter = copy.copy(mixup)
    reporter.num_classes, reporter.label_smoothing = batch_size, 0.0
    return reporter


def _halves(batch: Any) -> tuple[Any, Any, Any]:
    """(first half, middle, second half) of a batch: timm mixes even batches, so an odd one leaves its middle sample."""
    half = len(batch) // 2
    return batch[:half], batch[half : len(batch) - half], batch[len(batch) - half :]


def _put_between(halves: torch.Tensor, middle: Any) -> torch.Tensor:
    """Both halves, with the sample that was not mixed, if any, back in their middle."""
    if not len(middle):
        return halves
    half = len(halves) // 2
    return torch.cat([halves[:half], middle[0][None], halves[half:]])


def _mix_target(mixup: Mixup, target: Target, shares: torch.Tensor) -> Target:
    share = _put_between(shares.diagonal(), shares.new_ones(len(target.label) - len(shares)))
    mixed = mixup_target(target.label, mixup.num_classes, share.unsqueeze(1), mixup.label_smoothing)
    return Target(target.label, target.index, mixed, share.clone(), mixup.mode == "elem")


def _check_mode(mixup: Mixup) -> None:
    if mixup.mode not in ("batch", "pair", "elem"):
        raise ValueError(
            f"mode={mixup.mode!r} does not go with InfoBatch: it must be 'batch', 'pair' or 'elem', in which every "
            "sample has an input and a loss of its own"
        )


# -- the loss --------------------------------------------------------------------------------------------------------


class Criterion(nn.Module):
    """A criterion for the loop's ``criterion(output, target)``: records the losses, returns their weighted mean.

    ``criterion`` is torch's or timm's cross-entropy, timm's ``BinaryCrossEntropy``, or any function that returns one
    loss per sample. Mixed inputs are weighted by :class:`PairWeights` and scored as in appendix A.3 of the paper.
    """

    def __init__(self, criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], train_data: InfoBatch) -> None:
        super().__init__()
        self.criterion = criterion
        self.train_data = train_data
        self._per_sample = _per_sample(criterion)
        self._pair_weights: PairWeights | None = None

    def forward(self, output: torch.Tensor, target: Target) -> torch.Tensor:
        if not isinstance(target, Target):
            raise TypeError(
                f"target must come from infobatch.integrations.timm.create_loader, which says which samples a batch "
                f"holds, got {type(target).__name__}: for validation use a criterion without train_data"
            )
        mixed, share = target.mixed, target.share
        if mixed is None or share is None:
            return self.train_data.update(self._per_sample(output, target.label), target.index)
        loss = self._per_sample(output, mixed)
        check_loss("loss", loss)
        if not self.train_data.plan.by_sample.uniform:
            loss = loss * self._relative_weight(loss, target.index, share)
        probability = self._probability(output.detach().float())
        if target.per_element:
            score = classification.mixed_score_per_element(probability, mixed, share)
        else:
            score = classification.mixed_score(probability, mixed, target.label)
        return self.train_data.update(loss, target.index, score=score)

    def _relative_weight(self, loss: torch.Tensor, index: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        plan = self.train_data.plan
        if self._pair_weights is None or self._pair_weights.plan is not plan:
            self._pair_weights = PairWeights(plan, index.device, working_dtype(loss))
        relative = self._pair_weights.relative(index, index.flip(0))
        return torch.where(share == 1, torch.ones_like(relative), relative)  # 1: not mixed

    def _probability(self, output: torch.Tensor) -> torch.Tensor:
        return output.sigmoid() if isinstance(self.criterion, BinaryCrossEntropy) else output.softmax(-1)


def _per_sample(criterion: Any) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """``criterion`` without its mean over the batch."""
    if isinstance(criterion, JsdCrossEntropy):
        raise TypeError(
            "criterion is a JsdCrossEntropy, which has no loss per sample: use a cross-entropy, without num_aug_splits"
        )
    if getattr(criterion, "reduction", None) == "sum":
        raise ValueError("criterion: reduction='sum' grows with the batch, but Criterion returns a mean: use 'mean'")
    if isinstance(criterion, SoftTargetCrossEntropy):
        return classification.cross_entropy
    if isinstance(criterion, LabelSmoothingCrossEntropy):
        return lambda output, target: classification.cross_entropy(output, _check_hard(target), criterion.smoothing)
    if isinstance(criterion, BinaryCrossEntropy):
        return lambda output, target: classification.binary_cross_entropy(
            output,
            target,
            criterion.smoothing,
            threshold=criterion.target_threshold,
            sum_classes=criterion.sum_classes,
            weight=criterion.weight,
            pos_weight=criterion.pos_weight,
        )
    if isinstance(criterion, nn.CrossEntropyLoss):
        if criterion.weight is not None or criterion.ignore_index >= 0:
            raise ValueError(
                "criterion: a CrossEntropyLoss with weight or ignore_index is a ratio of two sums over the batch and "
                "has no unbiased estimate: use a function that returns one loss per sample"
            )
        return lambda output, target: classification.cross_entropy(output, target, criterion.label_smoothing)
    return criterion


def _check_hard(target: torch.Tensor) -> torch.Tensor:
    if target.is_floating_point():
        raise ValueError(
            "criterion: LabelSmoothingCrossEntropy got mixed targets, which Mixup has smoothed already: use "
            "SoftTargetCrossEntropy"
        )
    return target


# -- the schedule ----------------------------------------------------------------------------------------------------


def create_scheduler(
    train_data: InfoBatch, loader: Any, optimizer: torch.optim.Optimizer, *, grad_accum_steps: int = 1, **options: Any
) -> tuple[Any, int]:
    """Replaces timm's ``create_scheduler_v2``; over training, the learning rate is the one of full data.

    Takes timm's options and returns (scheduler, epochs) as timm does; ``train_data`` must be made for as many epochs.
    ``updates_per_epoch`` is counted here, for full data; the number that the loop passes to ``step_update`` is ignored.
    """
    if "updates_per_epoch" in options:
        raise TypeError("updates_per_epoch is counted here, for full data: leave it out and give grad_accum_steps")
    cut = loader.batch_sampler
    samples = -(-train_data.plan.total // train_data.sampler.num_replicas)
    batches = samples // cut.batch_size if cut.drop_last else -(-samples // cut.batch_size)
    updates = max(-(-batches // grad_accum_steps), 1)
    scheduler, num_epochs = create_scheduler_v2(optimizer, updates_per_epoch=updates, **options)
    if num_epochs != train_data.num_epochs:
        raise ValueError(
            f"timm's schedule makes {num_epochs} epochs, with its cycles, warm-up and cool-down, but train_data was "
            f"made for {train_data.num_epochs}: which epochs are pruned depends on it. Make it InfoBatch(dataset, "
            f"{num_epochs}, ...), with args.epochs + args.cooldown_epochs where you cool down"
        )
    batches_per_update = grad_accum_steps if isinstance(cut, StepSampler) else None
    whole = cut.batch_size if cut.drop_last else 1
    return PacedTimmScheduler(scheduler, train_data, updates, whole, batches_per_update), num_epochs


class PacedTimmScheduler:
    """A timm scheduler whose updates are counted on the scale of full data; all else is the inner scheduler's.

    ``updates_per_epoch`` is that of full data. Each rank's samples are delivered in whole multiples of ``whole`` only.
    ``batches_per_update`` is given where steps stay: updates are then simply counted.
    """

    def __init__(
        self,
        scheduler: Any,
        train_data: InfoBatch,
        updates_per_epoch: int,
        whole: int = 1,
        batches_per_update: int | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.updates_per_epoch = updates_per_epoch
        self._train_data = train_data
        self._whole = whole
        self._batches_per_update = batches_per_update

    def step_update(self, num_updates: int, metric: float | None = None) -> None:
        """Go to update ⌊S·(e + p)⌋, with S updates in a full epoch and the share p of epoch e done."""
        full = self.updates_per_epoch
        if self._batches_per_update is not None:
            updates = -(-self._train_data.batches_done // self._batches_per_update)
        else:
            done, total = self._position()
            updates = full * done // max(total, 1)
        self.scheduler.step_update(full * self._train_data.epoch + updates, metric)

    def _position(self) -> tuple[int, int]:
        """(samples done, samples in all) of the epoch, also before its loader starts, as after a checkpoint."""
        done, total = self._train_data.position
        world = self._train_data.sampler.num_replicas
        of_rank = -(-(total - done) // world)
        return done, min(done + (of_rank - of_rank % self._whole) * world, total)

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.scheduler, name)


# -- stopping and going on -------------------------------------------------------------------------------------------


class CheckpointState:
    """Puts train_data's state into timm's own checkpoints, in the place of the loss scaler and together with it.

    >>> loss_scaler = CheckpointState(train_data, loss_scaler)  # without AMP, loss_scaler is None
    >>> saver = CheckpointSaver(model, optimizer, amp_scaler=loss_scaler, ...)
    >>> resume_checkpoint(model, path, optimizer, loss_scaler)  # then go on with epoch train_data.epoch

    With several ranks, all of them call :meth:`gather` just before one of them saves.
    """

    state_dict_key = "infobatch"  # timm saves the scaler's replacement under this key

    def __init__(self, train_data: InfoBatch, loss_scaler: Any = None) -> None:
        self.train_data = train_data
        self.loss_scaler = loss_scaler
        self._gathered: tuple[tuple[int, int], dict[str, Any]] | None = None

    def __call__(
        self,
        loss: torch.Tensor,
        optimizer: torch.optim.Optimizer,
        clip_grad: float | None = None,
        clip_mode: str = "norm",
        parameters: Any = None,
        create_graph: bool = False,
        need_update: bool = True,
    ) -> None:
        """Back-propagate and step, as the loop would: with the loss scaler if there is one."""
        if self.loss_scaler is not None:
            self.loss_scaler(loss, optimizer, clip_grad, clip_mode, parameters, create_graph, need_update)
            return
        loss.backward(create_graph=create_graph)  # type: ignore[no-untyped-call]
        if need_update:
            if clip_grad is not None:
                dispatch_clip_grad(parameters, clip_grad, clip_mode)
            optimizer.step()

    def gather(self) -> None:
        """Keep the current state for the next save; all ranks must call it."""
        self._gathered = self._moment(), self.train_data.state_dict()

    def state_dict(self) -> dict[str, Any]:
        if self.train_data.sampler.num_replicas == 1:
            self.gather()
        gathered, self._gathered = self._gathered, None
        if gathered is None or gathered[0] != self._moment():
            raise RuntimeError(
                "the scores of all ranks are needed: call gather() on every rank just before one of them saves"
            )
        scaler = None if self.loss_scaler is None else self.loss_scaler.state_dict()
        return {"train_data": gathered[1], "loss_scaler": scaler}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.train_data.load_state_dict(state_dict["train_data"])
        if self.loss_scaler is not None and state_dict["loss_scaler"] is not None:
            self.loss_scaler.load_state_dict(state_dict["loss_scaler"])

    def _moment(self) -> tuple[int, int]:
        return self.train_data.epoch, self.train_data.batches_done
