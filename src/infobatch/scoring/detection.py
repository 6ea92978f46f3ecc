"""Detection: one loss per image, in place of one per batch, for detectors of the DETR family.

These detectors predict a fixed number of boxes ("queries") in each decoder layer; a matching assigns to each annotated
box one query, and the loss has three terms: the class of every query, and the L1 distance and generalised IoU of the
matched boxes. The usual loss sums each term over the whole batch and divides it by a count over the batch. Here every
term is summed by image. With the batch's own counts the mean over the images is the usual loss; with ``mean_boxes``,
the mean number of boxes in an image of all data, the divisor does not depend on which images happen to be in the batch,
so that weighted losses are unbiased exactly.

``model.loss_function = PerImage()`` makes a detector of transformers return one loss per image as ``outputs.loss``.

Boxes are (centre x, centre y, width, height), as shares of the image. Targets are a dict per image with
``class_labels`` and ``boxes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

Target = Mapping[str, torch.Tensor]
TERMS = ("loss_ce", "loss_bbox", "loss_giou")  # transformers' names
_GAMMA = 2.0  # of the focal loss
_COST_ALPHA, _COST_EPSILON = 0.25, 1e-8  # of the focal matching cost

# Detectors of transformers by the kind of their loss; all others have terms of their own.
SOFTMAX = ("detr", "table-transformer", "yolos")
FOCAL = ("conditional_detr", "deformable_detr")


class Prediction(NamedTuple):
    """The output of one decoder layer: logits [images, queries, classes] and boxes [images, queries, 4]."""

    logits: torch.Tensor
    boxes: torch.Tensor


@dataclass(frozen=True)
class DetectorLoss:
    """The loss of a detector, one per image.

    ``focal`` is the α of the sigmoid focal loss; None is softmax cross-entropy, whose last class is "no object" with
    the weight ``no_object``. ``bbox`` and ``giou`` are the factors of those two terms; the class term has the factor 1.
    The costs are those of the matching.
    """

    focal: float | None = None
    no_object: float = 0.1
    bbox: float = 5.0
    giou: float = 2.0
    class_cost: float = 1.0
    bbox_cost: float = 5.0
    giou_cost: float = 2.0

    def total(self, terms: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The loss of each image, from its terms."""
        factors = dict(zip(TERMS, (1.0, self.bbox, self.giou), strict=True))
        parts = [factors[name] * term for key, term in terms.items() for name in TERMS if key.startswith(name)]
        return torch.stack(parts).sum(0)

    def terms(
        self, layers: Sequence[Prediction], targets: Sequence[Target], mean_boxes: float | None = None
    ) -> dict[str, torch.Tensor]:
        """All terms by image; those of the last of ``layers`` have plain names, others end in the layer's number."""
        if any(len(layer.logits) != len(targets) for layer in layers):
            raise ValueError(f"targets must be one per image, got {len(targets)} for {len(layers[-1].logits)} images")
        terms = self._layer(layers[-1], targets, mean_boxes)
        for number, layer in enumerate(layers[:-1]):
            terms |= {f"{name}_{number}": term for name, term in self._layer(layer, targets, mean_boxes).items()}
        return terms

    def _layer(
        self, predicted: Prediction, targets: Sequence[Target], mean_boxes: float | None
    ) -> dict[str, torch.Tensor]:
        logits, boxes = (part if part.dtype == torch.float64 else part.float() for part in predicted)
        matched = self.matches(Prediction(logits, boxes), targets)
        image = torch.cat([torch.full_like(query, i) for i, (query, _) in enumerate(matched)])
        query = torch.cat([query for query, _ in matched])
        label, box = (
            torch.cat([target[name][chosen] for target, (_, chosen) in zip(targets, matched, strict=True)])
            for name in ("class_labels", "boxes")
        )
        counted = max(sum(len(target["boxes"]) for target in targets), 1) / len(targets)
        divisor = counted if mean_boxes is None else mean_boxes
        if self.focal is None:
            by_class = self._softmax(logits, image, query, label, mean_boxes)
        else:
            classes = torch.zeros_like(logits, requires_grad=False)
            classes[image, query, label] = 1
            by_class = focal_loss(logits, classes, self.focal).sum((1, 2)) / divisor
        distance = (boxes[image, query] - box).abs().sum(1)
        overlap = 1 - generalised_iou(boxes[image, query], box)
        by_image = (logits.new_zeros(len(targets)).index_add(0, image, each) for each in (distance, overlap))
        return dict(zip(TERMS, (by_class, *(each / divisor for each in by_image)), strict=True))

    def _softmax(
        self,
        logits: torch.Tensor,
        image: torch.Tensor,
        query: torch.Tensor,
        label: torch.Tensor,
        mean_boxes: float | None,
    ) -> torch.Tensor:
        """Cross-entropy summed over the queries of each image, divided by the mean weight of an image's queries."""
        images, queries, classes = logits.shape
        nothing = classes - 1
        target = torch.full((images, queries), nothing, device=logits.device)
        target[image, query] = label
        weight = logits.new_ones(classes)
        weight[nothing] = self.no_object
        each = F.cross_entropy(logits.transpose(1, 2), target, weight, reduction="none")
        if mean_boxes is None:
            return each.sum(1) / (weight[target].sum() / images)
        return each.sum(1) / (self.no_object * queries + (1 - self.no_object) * mean_boxes)

    @torch.no_grad()
    def matches(self, predicted: Prediction, targets: Sequence[Target]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(queries, their boxes) of each image: the matching of least cost."""
        try:
            from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise ImportError('matching boxes needs scipy: pip install "infobatch[static]"') from error

        counts = [len(target["boxes"]) for target in targets]
        label, box = (torch.cat([target[name] for target in targets]) for name in ("class_labels", "boxes"))
        image = torch.repeat_interleave(torch.tensor(counts)).to(label.device)  # which each box is in
        # [box, query]: of every box and the queries of its own image.
        cost = (
            self.class_cost * self._class_cost(predicted.logits)[image, :, label]
            + self.bbox_cost * (predicted.boxes[image] - box[:, None]).abs().sum(-1)
            - self.giou_cost * generalised_iou(predicted.boxes[image], box[:, None])
        )
        # If training has gone wrong, the loss should show it: the matching must not fail on costs that are not finite.
        worst = torch.finfo(cost.dtype).max
        cost = torch.nan_to_num(cost, worst, worst, worst).cpu()
        pairs = (linear_sum_assignment(part.T) for part in torch.split(cost, counts))
        return [(torch.from_numpy(query).to(box.device), torch.from_numpy(of).to(box.device)) for query, of in pairs]

    def _class_cost(self, logits: torch.Tensor) -> torch.Tensor:
        """The cost of matching each query with a box of each class."""
        if self.focal is None:
            return -logits.softmax(-1)
        p = logits.sigmoid()
        as_object = _COST_ALPHA * (1 - p) ** _GAMMA * -(p + _COST_EPSILON).log()
        as_nothing = (1 - _COST_ALPHA) * p**_GAMMA * -(1 - p + _COST_EPSILON).log()
        return as_object - as_nothing


class PerImage:
    """A loss function for a detector of transformers: ``model.loss_function = PerImage(mean_boxes)``.

    With it ``model(pixel_values, labels=targets).loss`` holds one loss per image, and ``loss_dict`` each term of it.
    Settings are those of the model's config; it includes the losses of all decoder layers if the config asks for them.
    ``mean_boxes`` is the mean number of boxes in a training image; None counts the batch's boxes, as transformers does.
    """

    def __init__(self, mean_boxes: float | None = None) -> None:
        if mean_boxes is not None and not mean_boxes > 0:
            raise ValueError(f"mean_boxes must be above 0, the mean number of boxes in an image, got {mean_boxes}")
        self.mean_boxes = mean_boxes

    def __call__(
        self,
        logits: torch.Tensor,
        labels: Sequence[Target],
        device: torch.device,
        pred_boxes: torch.Tensor,
        config: Any,
        outputs_class: torch.Tensor | None = None,
        outputs_coord: torch.Tensor | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor], list[dict[str, torch.Tensor]] | None]:
        """(loss, its terms, predictions of all decoder layers but the last), as transformers expects."""
        layers, earlier = [Prediction(logits, pred_boxes)], None
        if config.auxiliary_loss:
            assert outputs_class is not None
            assert outputs_coord is not None
            before = [Prediction(*layer) for layer in zip(outputs_class[:-1], outputs_coord[:-1], strict=True)]
            layers = [*before, *layers]
            earlier = [{"logits": layer.logits, "pred_boxes": layer.boxes} for layer in before]
        criterion = of_config(config)
        terms = criterion.terms(layers, labels, self.mean_boxes)
        return criterion.total(terms), terms, earlier


def of_config(config: Any) -> DetectorLoss:
    """The criterion with which transformers trains a model of this config."""
    if config.model_type not in (*SOFTMAX, *FOCAL):
        raise ValueError(
            f"the loss of a {config.model_type} has terms that are not known: the model must be one of "
            f"{', '.join((*SOFTMAX, *FOCAL))}; for others call DetectorLoss with their decoder layers' predictions"
        )
    focal = config.model_type in FOCAL
    kind = {"focal": config.focal_alpha} if focal else {"no_object": config.eos_coefficient}
    return DetectorLoss(
        **kind,
        bbox=config.bbox_loss_coefficient,
        giou=config.giou_loss_coefficient,
        class_cost=config.class_cost,
        bbox_cost=config.bbox_cost,
        giou_cost=config.giou_cost,
    )


def focal_loss(logits: torch.Tensor, target: torch.Tensor, alpha: float) -> torch.Tensor:
    """The sigmoid focal loss of each logit, γ = 2: α_t (1 - p_t)² · -log p_t, with p_t the probability of the target.

    >>> focal_loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]), alpha=0.25)
    tensor([0.0433, 0.1300])
    """
    p = logits.sigmoid()
    entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    wrong = p * (1 - target) + (1 - p) * target
    return (alpha * target + (1 - alpha) * (1 - target)) * wrong**_GAMMA * entropy


def corners(boxes: torch.Tensor) -> torch.Tensor:
    """(left, top, right, bottom) of boxes given by centre, width and height."""
    centre, size = boxes[..., :2], boxes[..., 2:]
    return torch.cat([centre - size / 2, centre + size / 2], -1)


def iou(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Intersection over union of two boxes; shapes broadcast.

    >>> iou(torch.tensor([0.5, 0.5, 1.0, 1.0]), torch.tensor([0.25, 0.5, 0.5, 1.0]))
    tensor(0.5000)
    """
    return _overlap(first, second)[0]


def generalised_iou(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """IoU, less the share of the smallest box around both that neither covers; shapes broadcast."""
    share, union = _overlap(first, second)
    a, b = corners(first), corners(second)
    around = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1)
    return share - (around - union) / around


def _overlap(first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """IoU and union."""
    a, b = corners(first), corners(second)
    sides = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    common = sides.prod(-1)
    union = first[..., 2:].prod(-1) + second[..., 2:].prod(-1) - common
    return common / union, union
