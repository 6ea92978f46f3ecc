"""Per-sample losses against torch's own criteria, and mixed scores against their formulas written out."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from infobatch.scoring import classification
from infobatch.scoring.classification import LEAST_SHARE

SAMPLES, CLASSES = 6, 5


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(SAMPLES, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def label() -> torch.Tensor:
    return torch.tensor([0, 4, 2, 2, 1, 3])


@pytest.fixture
def soft() -> torch.Tensor:
    made = torch.rand(SAMPLES, CLASSES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return made / made.sum(-1, keepdim=True)


# -- losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("kind", ["label", "soft"])
def test_cross_entropy_is_torchs(
    kind: str, smoothing: float, logits: torch.Tensor, label: torch.Tensor, soft: torch.Tensor
) -> None:
    target = label if kind == "label" else soft
    ours = classification.cross_entropy(logits, target, smoothing)
    theirs = nn.CrossEntropyLoss(reduction="none", label_smoothing=smoothing)(logits, target)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)


def test_a_mixed_targets_cross_entropy_is_linear_in_its_two_labels(logits: torch.Tensor, label: torch.Tensor) -> None:
    one_hot = functional.one_hot(label, CLASSES).double()
    mixed = 0.3 * one_hot + 0.7 * one_hot.flip(0)
    apart = 0.3 * classification.cross_entropy(logits, label) + 0.7 * classification.cross_entropy(
        logits, label.flip(0)
    )
    torch.testing.assert_close(classification.cross_entropy(logits, mixed), apart, rtol=1e-12, atol=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy_is_torchs_over_classes(
    weighted: bool, logits: torch.Tensor, label: torch.Tensor, soft: torch.Tensor
) -> None:
    extra = {}
    if weighted:
        ones = torch.ones(CLASSES, dtype=torch.float64)
        extra = {"weight": ones.cumsum(0), "pos_weight": 1 / ones.cumsum(0)}
    each = nn.BCEWithLogitsLoss(reduction="none", **extra)(logits, soft)
    loss = classification.binary_cross_entropy
    torch.testing.assert_close(loss(logits, soft, **extra), each.mean(-1))
    torch.testing.assert_close(loss(logits, soft, sum_classes=True, **extra), each.sum(-1))

    smoothed = functional.one_hot(label, CLASSES).double() * 0.8 + 0.2 / CLASSES
    torch.testing.assert_close(loss(logits, label, 0.2, **extra), loss(logits, smoothed, **extra))
    yes_or_no = (soft > 0.2).double()
    torch.testing.assert_close(loss(logits, soft, threshold=0.2, **extra), loss(logits, yes_or_no, **extra))


@pytest.mark.parametrize("loss", [classification.cross_entropy, classification.binary_cross_entropy])
def test_losses_can_be_differentiated_and_leave_their_arguments_alone(
    loss: object, logits: torch.Tensor, label: torch.Tensor, soft: torch.Tensor
) -> None:
    assert callable(loss)
    for target in (label, soft):
        before = logits.clone(), target.clone()
        assert torch.autograd.gradcheck(lambda x, t=target: loss(x, t, 0.1), logits.clone().requires_grad_())
        assert torch.equal(logits, before[0])
        assert torch.equal(target, before[1])


@pytest.mark.parametrize("loss", [classification.cross_entropy, classification.binary_cross_entropy])
@pytest.mark.parametrize("target", [torch.zeros(SAMPLES), torch.zeros(SAMPLES, 2), torch.zeros(2, dtype=torch.int64)])
def test_a_target_that_is_neither_labels_nor_distributions_is_refused(
    loss: object, target: torch.Tensor, logits: torch.Tensor
) -> None:
    assert callable(loss)
    with pytest.raises(ValueError, match=r"target must be a label per sample.*\(6, 5\)"):
        loss(logits, target)


# -- scores of mixed samples -----------------------------------------------------------------------------------------


def test_mixed_score_is_appendix_a3(logits: torch.Tensor, label: torch.Tensor, soft: torch.Tensor) -> None:
    p = logits.softmax(-1)
    expected = []
    for i in range(SAMPLES):
        j, y = SAMPLES - 1 - i, int(label[i])
        expected.append(abs(soft[i, y] - p[i, y]) + abs(soft[j, y] - p[j, y]))
    torch.testing.assert_close(classification.mixed_score(p, soft, label), torch.stack(expected))


def test_mixed_score_traces_an_error_back_to_the_sample_of_that_class(label: torch.Tensor) -> None:
    one_hot = functional.one_hot(label, CLASSES).double()
    target = 0.3 * one_hot + 0.7 * one_hot.flip(0)
    p = target.clone()
    assert classification.mixed_score(p, target, label).eq(0).all()
    p[1, label[1]] -= 0.2  # in its own input
    p[0, label[5]] -= 0.5  # in its partner's
    score = classification.mixed_score(p, target, label)
    torch.testing.assert_close(score, torch.tensor([0.0, 0.2, 0.0, 0.0, 0.0, 0.5], dtype=torch.float64))


def test_mixed_score_per_element_divides_by_how_much_of_a_sample_is_shown(
    logits: torch.Tensor, soft: torch.Tensor
) -> None:
    p = logits.softmax(-1)
    share = torch.tensor([0.9, 0.2, 0.5, 0.5, 1.0, 0.3], dtype=torch.float64)
    expected = []
    for i in range(SAMPLES):
        j = SAMPLES - 1 - i
        error = (soft[i] - p[i]).abs().max() + (soft[j] - p[j]).abs().max()
        expected.append(error / (share[i] + 1 - share[j]))
    torch.testing.assert_close(classification.mixed_score_per_element(p, soft, share), torch.stack(expected))


def test_mixed_score_per_element_of_a_sample_that_is_not_shown_stays_finite() -> None:
    p, t = torch.tensor([[0.5, 0.5], [0.5, 0.5]]), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    score = classification.mixed_score_per_element(p, t, torch.tensor([0.0, 1.0]))  # twice the second sample
    torch.testing.assert_close(score, torch.tensor([1 / LEAST_SHARE, 0.5]))
