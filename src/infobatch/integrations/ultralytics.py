"""Ultralytics: ``YOLO("yolo11n.yaml").train(..., trainer=pruned())`` for detection, segmentation and classification.

Every epoch has as many steps as full data, in smaller batches, because Ultralytics counts them once, before training.

A detector's loss is a sum over the batch's images, divided by a sum over the same images: how well the predictions
fit the boxes they are assigned to. It is made by Ultralytics' own criterion, once for the whole batch. Weights enter
on the way back: the gradient of each image's predictions is multiplied by a factor, which makes it that of

    B · Σ w_i s_i / Σ w_i t_i        in place of        B · Σ s_i / Σ t_i

with s_i the loss of image i, t_i its part of the divisor and w_i its weight. Each image's s_i is read off by hooks on
the modules of the criterion; whether they add up to the criterion's loss is checked with the first batch. See
docs/ultralytics.md for what is exact, and for mosaic.

The names of Ultralytics that are used here and are not documented: ``Mosaic.buffer_enabled``, ``assigner``, ``bce``,
``bbox_loss`` and ``hyp`` of a criterion, ``o2m`` and ``o2o`` of ``E2ELoss``. ``tests/more/test_ultralytics.py`` fails
loudly when a release moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch.utils.data import DataLoader

from ..dataset import InfoBatch
from . import needs
from .logging import metrics

with needs("ultralytics", "ultralytics"):
    from ultralytics.data.augment import Mosaic
    from ultralytics.models.yolo.classify import ClassificationTrainer
    from ultralytics.models.yolo.detect import DetectionTrainer
    from ultralytics.models.yolo.segment import SegmentationTrainer
    from ultralytics.utils import DEFAULT_CFG, RANK
    from ultralytics.utils.loss import (
        E2ELoss,
        SegmentLoss26,
        v8ClassificationLoss,
        v8DetectionLoss,
        v8SegmentationLoss,
    )
    from ultralytics.utils.torch_utils import unwrap_model

__all__ = ["InfoBatchMixin", "pruned"]

INDEX = "index"  # the batch's key for its samples' numbers


def pruned(**options: Any) -> Callable[..., Any]:
    """The argument for ``trainer=``: Ultralytics' own trainer for the model's task, on fewer samples.

    ``YOLO("yolo11n.yaml").train(data="bccd.yaml", epochs=100, trainer=pruned(method="infobatch-adaptive"))``. Options
    are those of :class:`InfoBatch`: ``method``, ``ratio``, ``delta`` and so on; ``seed`` is Ultralytics' unless given.
    Afterwards ``model.trainer.train_data.summary()`` shows what was saved.
    """

    def make_trainer(
        cfg: Any = DEFAULT_CFG, overrides: dict[str, Any] | None = None, _callbacks: dict[str, Any] | None = None
    ) -> Any:
        task = (overrides or {}).get("task", "detect")
        if task not in TRAINERS:
            raise ValueError(
                f"task={task!r} has a loss that is not known by image: pruned() is for {', '.join(TRAINERS)}. "
                "Leave trainer= out to train on full data"
            )
        return TRAINERS[task](cfg, overrides, _callbacks, pruning=options)

    return make_trainer


class InfoBatchMixin:
    """A mixin before an Ultralytics trainer that prunes its training data; ``pruning`` holds options of InfoBatch."""

    train_data: InfoBatch

    def __init__(
        self,
        cfg: Any = DEFAULT_CFG,
        overrides: dict[str, Any] | None = None,
        _callbacks: dict[str, Any] | None = None,
        *,
        pruning: dict[str, Any] | None = None,
    ) -> None:
        self.pruning = dict(pruning or {})
        self._resumed_from: dict[str, Any] | None = None
        super().__init__(cfg, overrides, _callbacks)  # type: ignore[call-arg]
        _check_settings(self)
        self.add_callback("on_train_epoch_start", _start_epoch)  # type: ignore[attr-defined]

    def get_dataloader(self, dataset_path: Any, batch_size: int = 16, rank: int = 0, mode: str = "train") -> Any:
        made = super().get_dataloader(dataset_path, batch_size, rank, mode)  # type: ignore[misc]
        if mode != "train":
            return made
        options = {"seed": self.args.seed, **self.pruning}  # type: ignore[attr-defined]
        self.train_data = InfoBatch(made.dataset, self.epochs, index_key=INDEX, **options)  # type: ignore[attr-defined]
        if self._resumed_from is not None:  # Ultralytics makes a new loader, with smaller batches, if memory runs out
            self.train_data.load_state_dict(self._resumed_from)
        return PlanLoader(self.train_data, made)

    def resume_training(self, ckpt: dict[str, Any] | None) -> None:
        self.scaler: Any = CheckpointState(self, self.scaler)
        super().resume_training(ckpt)  # type: ignore[misc]
        model = unwrap_model(self.model)  # type: ignore[attr-defined]
        criterion = getattr(model, "criterion", None) or model.init_criterion()
        model.criterion = _wrap_criterion(criterion, self)

    def load_pruning_state(self, state: dict[str, Any]) -> None:
        """Resume with the scores and the epoch of a checkpoint."""
        self.train_data.load_state_dict(state)
        self._resumed_from = state

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        ours = _figures(self.train_data)
        if self.csv.exists():  # type: ignore[attr-defined]
            with open(self.csv, encoding="utf-8") as file:  # type: ignore[attr-defined]
                columns = file.readline().strip().split(",")
            ours = {name: value for name, value in ours.items() if name in columns}  # a file may lack our columns
        super().save_metrics({**metrics, **ours})  # type: ignore[misc]


class PrunedDetectionTrainer(InfoBatchMixin, DetectionTrainer):
    """``DetectionTrainer`` on fewer samples: see :func:`pruned`."""


class PrunedSegmentationTrainer(InfoBatchMixin, SegmentationTrainer):
    """``SegmentationTrainer`` on fewer samples: see :func:`pruned`."""


class PrunedClassificationTrainer(InfoBatchMixin, ClassificationTrainer):
    """``ClassificationTrainer`` on fewer samples: see :func:`pruned`."""


TRAINERS = {
    "detect": PrunedDetectionTrainer,
    "segment": PrunedSegmentationTrainer,
    "classify": PrunedClassificationTrainer,
}


def _check_settings(trainer: Any) -> None:
    """Raise for settings that would be wrong, or have not been tried."""
    if trainer.world_size > 1 or RANK != -1:
        raise ValueError(
            f"device={trainer.args.device!r}: pruned() trains in one process, several have not been tried. Give one "
            "device, or leave trainer= out"
        )
    refused = {
        "time": "the last epochs must be known in advance: use epochs=",
        "rect": "its batches hold images of one shape, in an order of their own",
        "compile": "not tried",
        "distill_model": "the teacher's part of the loss is not known by image",
    }
    for name, why in refused.items():
        if value := getattr(trainer.args, name):
            raise ValueError(f"{name}={value!r} does not go with pruned(): {why}. Leave it out")
    if trainer.args.quantize == 8:
        raise ValueError("quantize=8 does not go with pruned(): not tried. Leave it out")


def _start_epoch(trainer: Any) -> None:
    trainer.train_data.set_epoch(trainer.epoch)


def _figures(train_data: InfoBatch) -> dict[str, float]:
    """The figures that every epoch has, because Ultralytics' table has the columns of its first row."""
    return {name: value for name, value in metrics(train_data).items() if name.endswith(("kept_share", "saving"))}


# -- the data --------------------------------------------------------------------------------------------------------


class PlanLoader:
    """A training loader for Ultralytics over the plans of ``train_data``: as many batches in every epoch.

    Ultralytics' own loader fetches the next epoch's samples before their plan is made.
    """

    def __init__(self, train_data: InfoBatch, made: DataLoader[Any]) -> None:
        self.dataset = made.dataset  # Ultralytics reads its labels and turns off its mosaic
        self.sampler = train_data.sampler
        self.batch_size = made.batch_size
        self.drop_last = False
        self.num_workers = made.num_workers
        assert made.batch_size is not None
        self._batches = train_data.batches(made.batch_size)
        self._train_data = train_data
        self._made = made
        self._loader: DataLoader[Any] | None = None
        _draw_partners_from_all(self.dataset)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:  # starts at the first batch: Ultralytics makes two iterators and uses one
        if self._loader is None:
            self._loader = DataLoader(
                self._train_data,
                batch_sampler=self._batches,
                num_workers=self.num_workers,
                collate_fn=self._made.collate_fn,
                pin_memory=self._made.pin_memory,
                worker_init_fn=self._made.worker_init_fn,
                generator=self._made.generator,
                prefetch_factor=self._made.prefetch_factor,
                persistent_workers=self.num_workers > 0,
            )
        yield from self._loader

    def reset(self) -> None:
        """Start new workers for the next pass: the data set has changed."""
        _draw_partners_from_all(self.dataset)
        self._loader = None

    def close(self) -> None:
        """Stop the workers."""
        self._loader = None


def _draw_partners_from_all(dataset: Any) -> None:
    """Let mosaic draw an image's partners from all data, not from the images read lately, which were not pruned."""
    for transform in _transforms(getattr(dataset, "transforms", None)):
        if isinstance(transform, Mosaic):
            transform.buffer_enabled = False


def _transforms(transform: Any) -> Iterator[Any]:
    """A transform and all the transforms that it is made of."""
    if transform is None:
        return
    yield transform
    for part in getattr(transform, "transforms", []):
        yield from _transforms(part)
    yield from _transforms(getattr(transform, "pre_transform", None))


# -- the loss --------------------------------------------------------------------------------------------------------


def _wrap_criterion(criterion: Any, trainer: Any) -> Any:
    """A criterion whose gradients are weighted, and which records each image's loss."""
    if type(criterion) is v8ClassificationLoss:
        return ClassificationLoss(criterion, trainer)
    return DetectionLoss(criterion, trainer)


class _CriterionWrapper:
    """Wraps a criterion of Ultralytics and replaces it in the model while one trainer trains."""

    def __init__(self, criterion: Any, trainer: Any) -> None:
        self.criterion = criterion
        self.trainer = trainer

    @property
    def train_data(self) -> InfoBatch:
        data: InfoBatch = self.trainer.train_data
        return data

    def __getattr__(self, name: str) -> Any:
        if name == "criterion" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.criterion, name)

    def __deepcopy__(self, memo: Any) -> None:
        """None: a copy of the model is for validation, and makes its own criterion when it has none."""
        return


class ClassificationLoss(_CriterionWrapper):
    """Cross-entropy: the weighted mean over the batch."""

    def __call__(self, preds: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        logits = preds[1] if isinstance(preds, list | tuple) else preds
        losses = F.cross_entropy(logits, batch["cls"], reduction="none")
        loss = self.train_data.update(losses, torch.as_tensor(batch[INDEX]))
        return loss, {"loss": self.train_data.loss}


class DetectionLoss(_CriterionWrapper):
    """A detector's loss, of one head, or of the two that end-to-end models have."""

    def __init__(self, criterion: Any, trainer: Any) -> None:
        super().__init__(criterion, trainer)
        self._end_to_end = type(criterion) is E2ELoss
        one_or_two = [criterion.one2many, criterion.one2one] if self._end_to_end else [criterion]
        self._heads = [Head(each) for each in one_or_two]
        self._checked = False

    def __call__(self, preds: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        train_data, index = self.train_data, torch.as_tensor(batch[INDEX])
        weight = train_data.weights_of(index).to(batch["img"].device, torch.float32)
        images = len(weight) * len(train_data) / len(train_data.plan)  # images of full data that the batch stands for
        total, items = self.criterion(self._watch(preds), batch)
        for head in self._heads:
            head.weigh_gradients(weight, images)
        if not self._checked:
            self._check(dict(zip(items, total.detach() / len(weight), strict=True)))
        train_data.update(self._sum([head.losses(weight) for head in self._heads]), index)
        if train_data.plan.by_sample.uniform:
            return total, items
        shown = {**items, **self._heads[-1].terms(weight)}
        terms = self._terms(weight)
        means = [terms.get(name, of_batch / len(weight)) for name, of_batch in zip(items, total.detach(), strict=True)]
        return total + (images * torch.stack(means) - total).detach(), shown

    def _watch(self, preds: Any) -> Any:
        """The predictions, with gradients that will be weighted."""
        if not self._end_to_end:
            return self._heads[0].watch(preds)
        return {name: head.watch(preds[name]) for name, head in zip(("one2many", "one2one"), self._heads, strict=True)}

    def _sum(self, of_heads: list[torch.Tensor]) -> torch.Tensor:
        """The sum over the heads, with the gains that they have in this epoch."""
        gains = [self.criterion.o2m, self.criterion.o2o] if self._end_to_end else [1.0]
        return torch.stack([gain * value for gain, value in zip(gains, of_heads, strict=True)]).sum(0)

    def _terms(self, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss of each term, with each image weighted."""
        of_heads = [head.terms(weight) for head in self._heads]
        return {name: self._sum([terms[name] for terms in of_heads]) for name in of_heads[0]}

    def _check(self, own: dict[str, torch.Tensor]) -> None:
        """Raise unless the images' losses add up to the criterion's own: once, on the first batch."""
        for name, value in self._terms(torch.ones_like(self._heads[0].divisor)).items():
            if not torch.allclose(value, own[name].to(value.dtype), rtol=0.05, atol=1e-3):
                raise RuntimeError(
                    f"{type(self.criterion).__name__} computes {name} in a way that is not known: it is "
                    f"{own[name]:.6g}, but the images' parts add up to {value:.6g}. Leave trainer= out to train on "
                    "full data"
                )
        self._checked = True


class Head:
    """One head's criterion: its loss by image, and the gradients of its predictions, weighted.

    Its loss is Σ_i s_i / T, where T = max(1, Σ_i t_i) is a constant for the gradient. s_i has the terms of
    :attr:`gains`. Segmentation adds Σ_i m_i / Σ_i f_i, where f_i is the number of places in image i that predict a
    box, and, in some models, the mean over the images of a loss of semantic masks.
    """

    def __init__(self, criterion: Any) -> None:
        if type(criterion) not in (v8DetectionLoss, v8SegmentationLoss, SegmentLoss26):
            raise TypeError(
                f"{type(criterion).__name__} is not known by image: pruned() knows the losses of YOLO models for "
                "detection, segmentation and classification. Leave trainer= out to train on full data"
            )
        hyp = criterion.hyp
        self.gains = {"box_loss": hyp.box, "cls_loss": hyp.cls, "dfl_loss" if criterion.use_dfl else "l1_loss": hyp.dfl}
        self.divisor = torch.zeros(0)  # t
        self._places = torch.zeros(0)  # f
        self._sums: dict[str, torch.Tensor] = {}  # of each term, by image, without its gain
        self._boxes, self._masks, self._semantic = Factor(), Factor(), Factor()
        self._targets = self._leaf = self._classes = torch.zeros(0)
        criterion.assigner.register_forward_hook(self._note_targets)
        criterion.bce.register_forward_hook(self._note_classes)
        criterion.bbox_loss.register_forward_pre_hook(self._follow_targets)
        criterion.bbox_loss.register_forward_hook(self._note_boxes)

    # -- hooks on the criterion's modules --------------------------------------------------------------------------

    def _note_targets(self, _: Any, inputs: Any, outputs: Any) -> None:
        _, _, self._targets, is_place, _ = outputs
        self.divisor = self._targets.float().sum((1, 2))
        self._places = is_place.float().sum(1)

    def _note_classes(self, _: Any, inputs: Any, output: torch.Tensor) -> None:
        self._classes = output.detach()  # the same memory: class weights are multiplied into it later

    def _follow_targets(self, _: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The targets as a leaf: the terms are linear in them, so that Σ target · gradient is a term by image."""
        if not any(each is self._targets for each in inputs):
            raise RuntimeError(
                "this release of Ultralytics makes its box loss from other targets than its assigner's. Leave trainer= "
                "out to train on full data"
            )
        self._leaf = self._targets.detach().requires_grad_()
        return tuple(self._leaf if each is self._targets else each for each in inputs)

    def _note_boxes(self, _: Any, inputs: Any, outputs: tuple[torch.Tensor, torch.Tensor]) -> None:
        box, cls, distance = self.gains
        for name, term in zip((box, distance), outputs, strict=True):
            (slope,) = torch.autograd.grad(term, self._leaf, retain_graph=True)
            self._sums[name] = (slope * self._leaf.detach()).float().sum((1, 2)) * self._whole()
        self._sums[cls] = self._classes.float().sum((1, 2))  # class weights are multiplied in by now
        self._targets = self._leaf = self._classes = torch.zeros(0)

    def _whole(self, weight: torch.Tensor | None = None) -> torch.Tensor:
        """The divisor of the loss."""
        return (self.divisor if weight is None else weight * self.divisor).sum().clamp(min=1)

    # -- weighted losses and gradients -----------------------------------------------------------------------------

    def terms(self, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss of each term, with each image weighted."""
        return {
            name: gain * (weight * self._sums[name]).sum() / self._whole(weight) for name, gain in self.gains.items()
        }

    def losses(self, weight: torch.Tensor) -> torch.Tensor:
        """The loss of each image: their weighted mean is Σ w_i s_i / Σ w_i t_i."""
        sums = torch.stack([gain * self._sums[name] for name, gain in self.gains.items()]).sum(0)
        return len(weight) * sums / self._whole(weight)

    def watch(self, preds: dict[str, Any]) -> dict[str, Any]:
        """The predictions, with gradients that :meth:`weigh_gradients` will weigh."""
        watched: dict[str, Any] = {}
        for name, value in preds.items():
            if name in ("boxes", "scores"):
                watched[name] = _weigh(value, self._boxes)
            elif name == "mask_coefficient":
                watched[name] = _weigh(value, self._masks)
            elif name == "proto":
                watched[name] = self._watch_masks(value)
            elif name == "feats":  # only their shapes are used
                watched[name] = [each.detach() for each in value]
            else:
                raise RuntimeError(
                    f"this release of Ultralytics predicts {name!r}, whose part of the loss is not known. Leave "
                    "trainer= out to train on full data"
                )
        return watched

    def _watch_masks(self, value: Any) -> Any:
        if isinstance(value, tuple):
            masks, semantic = value
            return _weigh(masks, self._masks), _weigh(semantic, self._semantic)
        return _weigh(value, self._masks)

    def weigh_gradients(self, weight: torch.Tensor, images: float) -> None:
        """Set the factors that make the batch's loss, with its images weighted, one of ``images`` of full data."""
        scale = images / len(weight) * weight
        self._boxes.value = scale * self._whole() / self._whole(weight)
        self._masks.value = scale * self._places.sum() / (weight * self._places).sum().clamp(min=1e-9)
        self._semantic.value = scale


class Factor:
    """The factor for the gradient of each image, set before the backward pass."""

    value: torch.Tensor


class _Weigh(torch.autograd.Function):
    """The identity. On the way back, each image's gradient is multiplied by its factor."""

    @staticmethod
    def forward(ctx: Any, predictions: torch.Tensor, factor: Factor) -> torch.Tensor:
        ctx.factor = factor
        return predictions.view_as(predictions)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        factor = ctx.factor.value.to(gradient.dtype)
        return gradient * factor.view(-1, *[1] * (gradient.dim() - 1)), None


def _weigh(predictions: torch.Tensor, factor: Factor) -> torch.Tensor:
    weighed: torch.Tensor = _Weigh.apply(predictions, factor)  # type: ignore[no-untyped-call]
    return weighed


# -- stopping and going on -------------------------------------------------------------------------------------------


class CheckpointState:
    """The gradient scaler, with the state of ``train_data``: Ultralytics' checkpoints have no other place for it."""

    def __init__(self, trainer: Any, scaler: Any) -> None:
        self.trainer = trainer
        self.scaler = scaler

    def state_dict(self) -> dict[str, Any]:
        return {"infobatch": self.trainer.train_data.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        ours = "infobatch" in state_dict  # else Ultralytics' own trainer saved it, without scores
        if ours:
            self.trainer.load_pruning_state(state_dict["infobatch"])
        scaler = state_dict["scaler"] if ours else state_dict
        if scaler:
            self.scaler.load_state_dict(scaler)

    def __getattr__(self, name: str) -> Any:
        if name == "scaler" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.scaler, name)
