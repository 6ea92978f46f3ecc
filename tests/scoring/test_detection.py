"""Each image's losses against a loop over boxes, and their mean and gradient against transformers' own detectors."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import (
    ConditionalDetrConfig,
    ConditionalDetrForObjectDetection,
    ConvNextConfig,
    DeformableDetrConfig,
    DeformableDetrForObjectDetection,
    DetrConfig,
    DetrForObjectDetection,
    RTDetrConfig,
    YolosConfig,
    YolosForObjectDetection,
)
from transformers.loss.loss_for_object_detection import generalized_box_iou

from infobatch import InfoBatch
from infobatch.scoring.detection import (
    TERMS,
    DetectorLoss,
    PerImage,
    Prediction,
    corners,
    focal_loss,
    generalised_iou,
    iou,
    of_config,
)

IMAGES, QUERIES, CLASSES = 5, 6, 3
COUNTS = [2, 0, 3, 1, 1]  # boxes of each image
CRITERIA = [DetectorLoss(), DetectorLoss(focal=0.25, class_cost=2.0), DetectorLoss(no_object=0.3, bbox=1.0, giou=3.0)]
KINDS = ["detr", "conditional", "deformable", "yolos"]


@pytest.fixture(autouse=True)
def _in_double_precision():
    """Modules are made in fp64, where two ways to compute the same differ by next to nothing."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def made_targets(counts=COUNTS, seed=1):
    chance = torch.Generator().manual_seed(seed)
    return [
        {
            "class_labels": torch.randint(CLASSES, (count,), generator=chance),
            "boxes": 0.2 + 0.4 * torch.rand(count, 4, generator=chance),
        }
        for count in counts
    ]


def made_layers(classes, number=2):
    chance = torch.Generator().manual_seed(2)
    return [
        Prediction(
            torch.randn(IMAGES, QUERIES, classes, generator=chance).requires_grad_(),
            (0.1 + 0.5 * torch.rand(IMAGES, QUERIES, 4, generator=chance)).requires_grad_(),
        )
        for _ in range(number)
    ]


def layers_of(criterion):
    return made_layers(CLASSES + (criterion.focal is None))


# -- slowly ---------------------------------------------------------------------------------------------------------


def slow_giou(a, b):
    (ax, ay, aw, ah), (bx, by, bw, bh) = a, b
    left, right = max(ax - aw / 2, bx - bw / 2), min(ax + aw / 2, bx + bw / 2)
    top, bottom = max(ay - ah / 2, by - bh / 2), min(ay + ah / 2, by + bh / 2)
    common = max(right - left, 0) * max(bottom - top, 0)
    union = aw * ah + bw * bh - common
    wide = max(ax + aw / 2, bx + bw / 2) - min(ax - aw / 2, bx - bw / 2)
    high = max(ay + ah / 2, by + bh / 2) - min(ay - ah / 2, by - bh / 2)
    return common / union, common / union - (wide * high - union) / (wide * high)


def slow_class_cost(criterion, logits, label):
    if criterion.focal is None:
        return -math.exp(logits[label]) / sum(map(math.exp, logits))
    p = 1 / (1 + math.exp(-logits[label]))
    return 0.25 * (1 - p) ** 2 * -math.log(p + 1e-8) - 0.75 * p**2 * -math.log(1 - p + 1e-8)


def slow_terms(criterion, layer, targets):
    """Of each image its sums of the three terms, the weight of its queries, and its matching by trying all of them."""
    found = []
    for logits, boxes, target in zip(layer.logits.tolist(), layer.boxes.tolist(), targets, strict=True):
        labels, wanted = target["class_labels"].tolist(), target["boxes"].tolist()

        def cost(queries, logits=logits, boxes=boxes, labels=labels, wanted=wanted):
            return sum(
                criterion.class_cost * slow_class_cost(criterion, logits[q], label)
                + criterion.bbox_cost * sum(abs(x - y) for x, y in zip(boxes[q], box, strict=True))
                - criterion.giou_cost * slow_giou(boxes[q], box)[1]
                for q, label, box in zip(queries, labels, wanted, strict=True)
            )

        best = min(itertools.permutations(range(QUERIES), len(labels)), key=cost)
        label_of = dict(zip(best, labels, strict=True))
        by_class = weight = 0.0
        for q in range(QUERIES):
            if criterion.focal is None:
                w = 1.0 if q in label_of else criterion.no_object
                p = math.exp(logits[q][label_of.get(q, CLASSES)]) / sum(map(math.exp, logits[q]))
                by_class, weight = by_class - w * math.log(p), weight + w
                continue
            for c in range(CLASSES):
                p = 1 / (1 + math.exp(-logits[q][c]))
                on = label_of.get(q) == c
                alpha, p_t = (criterion.focal, p) if on else (1 - criterion.focal, 1 - p)
                by_class -= alpha * (1 - p_t) ** 2 * math.log(p_t)
        distance = sum(abs(x - y) for q, b in zip(best, wanted, strict=True) for x, y in zip(boxes[q], b, strict=True))
        overlap = sum(1 - slow_giou(boxes[q], box)[1] for q, box in zip(best, wanted, strict=True))
        found.append(((by_class, distance, overlap), weight, best))
    return found


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("mean_boxes", [None, 2.5])
def test_every_term_against_a_loop_over_images_and_queries(criterion, mean_boxes):
    layers, targets = layers_of(criterion), made_targets()
    found = criterion.terms(layers, targets, mean_boxes)
    assert list(found) == [*TERMS, *(f"{name}_0" for name in TERMS)]
    for layer, suffix in ((layers[1], ""), (layers[0], "_0")):
        slow = slow_terms(criterion, layer, targets)
        boxes = sum(COUNTS) / IMAGES if mean_boxes is None else mean_boxes
        weights = sum(weight for _, weight, _ in slow) / IMAGES
        if mean_boxes is not None:
            weights = criterion.no_object * QUERIES + (1 - criterion.no_object) * mean_boxes
        divisors = (weights if criterion.focal is None else boxes, boxes, boxes)
        for number, (name, divisor) in enumerate(zip(TERMS, divisors, strict=True)):
            expected = [sums[number] / divisor for sums, _, _ in slow]
            assert found[name + suffix].tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_matching_is_the_cheapest_of_all(criterion):
    layer, targets = layers_of(criterion)[0], made_targets()
    slow = slow_terms(criterion, layer, targets)
    for (query, chosen), (_, _, best) in zip(criterion.matches(layer, targets), slow, strict=True):
        assert query.tolist() == sorted(best)
        assert [best[i] for i in chosen.tolist()] == query.tolist()


def test_the_total_is_the_weighted_sum_of_all_layers():
    criterion = CRITERIA[2]
    terms = criterion.terms(layers_of(criterion), made_targets())
    expected = sum(
        terms["loss_ce" + layer] + 1.0 * terms["loss_bbox" + layer] + 3.0 * terms["loss_giou" + layer]
        for layer in ("", "_0")
    )
    torch.testing.assert_close(criterion.total(terms), expected)


def test_overlaps_against_a_loop_and_transformers():
    chance = torch.Generator().manual_seed(3)
    first, second = (0.05 + 0.9 * torch.rand(count, 4, generator=chance) for count in (7, 5))
    plain, general = iou(first[:, None], second), generalised_iou(first[:, None], second)
    torch.testing.assert_close(general, generalized_box_iou(corners(first), corners(second)))
    for i, j in itertools.product(range(7), range(5)):
        assert (plain[i, j], general[i, j]) == pytest.approx(slow_giou(first[i].tolist(), second[j].tolist()))
    assert (plain > 0).any()
    assert (plain == 0).any()


def test_the_focal_loss_of_each_logit():
    logits, target = torch.tensor([1.5, -0.5, 2.0]), torch.tensor([1.0, 1.0, 0.0])
    p = [1 / (1 + math.exp(-x)) for x in logits.tolist()]
    expected = [0.3 * (1 - p[0]) ** 2 * -math.log(p[0]), 0.3 * (1 - p[1]) ** 2 * -math.log(p[1])]
    expected.append(0.7 * p[2] ** 2 * -math.log(1 - p[2]))
    assert focal_loss(logits, target, 0.3).tolist() == pytest.approx(expected)


def test_a_batch_without_a_single_box_and_predictions_that_are_not_finite():
    criterion = CRITERIA[1]
    layers, empty = layers_of(criterion), made_targets([0] * IMAGES)
    terms = criterion.terms(layers, empty)
    assert terms["loss_bbox"].tolist() == terms["loss_giou"].tolist() == [0] * IMAGES
    assert (terms["loss_ce"] > 0).all()
    broken = Prediction(layers[0].logits, layers[0].boxes.detach().clone())
    broken.boxes[0, 0] = math.nan
    assert 0 not in criterion.matches(broken, made_targets())[0][0]


def test_half_precision_is_summed_in_single():
    layers = [Prediction(*(part.detach().bfloat16() for part in layer)) for layer in layers_of(CRITERIA[0])]
    targets = [{**target, "boxes": target["boxes"].float()} for target in made_targets()]
    assert all(term.dtype == torch.float32 for term in CRITERIA[0].terms(layers, targets).values())


# -- transformers' own ----------------------------------------------------------------------------------------------


def detector(kind):
    """A detector of two decoder layers, whose losses both count."""
    backbone = {"num_stages": 2, "hidden_sizes": [4, 8], "depths": [1, 1], "out_features": ["stage1", "stage2"]}
    size = {
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
        "num_queries": QUERIES,
        "num_labels": CLASSES,
        "dropout": 0.0,
        "auxiliary_loss": True,
        "backbone_config": ConvNextConfig(num_channels=3, patch_size=4, **backbone),
    }
    torch.manual_seed(0)
    if kind == "detr":
        return DetrForObjectDetection(DetrConfig(**size))
    if kind == "conditional":
        return ConditionalDetrForObjectDetection(ConditionalDetrConfig(**size))
    if kind == "deformable":
        return DeformableDetrForObjectDetection(DeformableDetrConfig(num_feature_levels=2, **size))
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    dice = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    ends = {"image_size": [32, 32], "patch_size": 8, "num_detection_tokens": QUERIES, "num_labels": CLASSES}
    return YolosForObjectDetection(YolosConfig(**size, **dice, **ends))


def pictures():
    return torch.rand(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(4))


def gradients(model, loss):
    """By parameter; None where the loss does not depend on it."""
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(loss, wanted, allow_unused=True, retain_graph=True)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_and_its_gradient_are_the_models_own_in_every_term_and_parameter(kind):
    """Official issue 22: a loss put together from terms of which some had lost their gradient."""
    model, targets = detector(kind), made_targets()
    own = model(pixel_values=pictures(), labels=targets)
    model.loss_function = PerImage()
    ours = model(pixel_values=pictures(), labels=targets)
    assert ours.loss.shape == (IMAGES,)
    layers = 1 if kind == "yolos" else 2
    assert len(ours.loss_dict) == 3 * layers
    pairs = {name: (own.loss_dict[name], term.mean()) for name, term in ours.loss_dict.items()}
    pairs["total"] = own.loss, ours.loss.mean()
    reached = set()
    for name, (theirs, mine) in pairs.items():
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)
        expected, found = gradients(model, theirs), gradients(model, mine)
        for parameter, gradient in expected.items():
            assert (found[parameter] is None) == (gradient is None), (name, parameter)
            if gradient is not None:
                torch.testing.assert_close(found[parameter], gradient, rtol=1e-8, atol=1e-12)
                reached.add(parameter)
    assert reached == {name for name, gradient in gradients(model, ours.loss.sum()).items() if gradient is not None}
    # The class's term trains the classifier and not the boxes' head; with those of the boxes it is the other way round.
    heads = {
        "class": "class_labels_classifier",
        "box": "bbox_predictor",
        "boxes": "bbox_embed",
        "class_": "class_embed",
    }
    for name, term in ours.loss_dict.items():
        trained = {parameter for parameter, gradient in gradients(model, term.sum()).items() if gradient is not None}
        is_class = name.startswith("loss_ce")
        assert any(heads["class"] in p or heads["class_"] in p for p in trained) == is_class


@pytest.mark.parametrize("kind", ["detr", "deformable"])
def test_a_detached_score_and_weights_leave_every_gradient_as_it_is(kind):
    """What ``update`` gives back is the weighted mean of the images' losses, also where the score is given."""
    model, targets = detector(kind), made_targets()
    model.loss_function = PerImage(mean_boxes=1.4)
    data = InfoBatch(list(range(IMAGES)), 4, delta=1.0)
    for epoch in range(2):
        data.set_epoch(epoch)
        for index in DataLoader(data, IMAGES, sampler=data.sampler):
            chosen = index.tolist()
            losses = model(pixel_values=pictures()[chosen], labels=[targets[i] for i in chosen]).loss
            weights = data.weights_of(index).to(losses)
            found = gradients(model, data.update(losses, score=losses.detach()))
            expected = gradients(model, (losses * weights).mean())
            for name, gradient in expected.items():
                assert (found[name] is None) == (gradient is None)
                if gradient is not None:
                    torch.testing.assert_close(found[name], gradient, rtol=1e-6, atol=1e-9)
    assert len(chosen) < IMAGES  # the last epoch was a pruned one
    assert weights.max() > 1


@pytest.mark.parametrize("kind", ["detr", "deformable"])
def test_with_the_mean_number_of_boxes_a_loss_does_not_depend_on_its_batch(kind):
    model, targets = detector(kind), made_targets()
    own = model(pixel_values=pictures(), labels=targets).loss
    model.loss_function = PerImage(mean_boxes=sum(COUNTS) / IMAGES)
    together = model(pixel_values=pictures(), labels=targets).loss
    apart = [model(pixel_values=pictures()[[i]], labels=[targets[i]]).loss for i in range(IMAGES)]
    torch.testing.assert_close(torch.cat(apart), together, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(together.mean(), own, rtol=1e-9, atol=1e-10)
    model.loss_function = PerImage()
    alone = model(pixel_values=pictures()[[2]], labels=[targets[2]]).loss
    assert not torch.allclose(alone, together[2])


def test_without_auxiliary_losses_there_is_one_layer():
    model = detector("detr")
    model.config.auxiliary_loss = False
    own = model(pixel_values=pictures(), labels=made_targets())
    model.loss_function = PerImage()
    ours = model(pixel_values=pictures(), labels=made_targets())
    assert list(ours.loss_dict) == list(TERMS)
    assert ours.auxiliary_outputs is None
    torch.testing.assert_close(ours.loss.mean(), own.loss)


def test_settings_are_the_configs():
    config = DeformableDetrConfig(focal_alpha=0.4, bbox_cost=7, giou_loss_coefficient=3)
    assert of_config(config) == DetectorLoss(focal=0.4, bbox_cost=7, giou=3, class_cost=config.class_cost)
    assert of_config(DetrConfig(eos_coefficient=0.2)) == DetectorLoss(no_object=0.2)


def test_what_does_not_fit_is_refused():
    with pytest.raises(
        ValueError, match=r"the loss of a rt_detr has terms that are not known: .* detr, .*DetectorLoss"
    ):
        of_config(RTDetrConfig())
    with pytest.raises(ValueError, match=r"mean_boxes must be above 0, .* got 0"):
        PerImage(0)
    with pytest.raises(ValueError, match="targets must be one per image, got 2 for 5 images"):
        DetectorLoss().terms(made_layers(CLASSES + 1), made_targets([1, 1]))
