"""Scores against their definitions, autograd and hand-made traces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from infobatch.static import el2n, forgetting, grand, least_confidence, margin
from infobatch.static.scores import errors

RNG = np.random.default_rng(0)
LOGITS, LABELS = RNG.normal(size=(30, 4)) * 3, RNG.integers(4, size=30)
SOFTMAX = torch.softmax(torch.from_numpy(LOGITS), 1).numpy()


def test_least_confidence_and_margin_by_definition() -> None:
    top = np.sort(SOFTMAX, 1)[:, ::-1]
    np.testing.assert_allclose(least_confidence(LOGITS), 1 - top[:, 0])
    np.testing.assert_allclose(margin(LOGITS), 1 - (top[:, 0] - top[:, 1]))
    assert least_confidence(LOGITS).argmax() == top[:, 0].argmin()
    assert margin(LOGITS).argmax() == (top[:, 0] - top[:, 1]).argmin()


def test_very_confident_samples_are_still_told_apart() -> None:
    logits = np.array([[60.0, 0.0], [50.0, 0.0], [70.0, 0.0]])  # the softmax is 1.0 in all of them
    for score in (least_confidence(logits), margin(logits), el2n(logits, [0, 0, 0])):
        assert np.argsort(score).tolist() == [2, 0, 1]


def test_errors_are_the_gradient_of_the_loss_in_the_logits() -> None:
    logits = torch.from_numpy(LOGITS).requires_grad_()
    nn.functional.cross_entropy(logits, torch.from_numpy(LABELS), reduction="sum").backward()
    np.testing.assert_allclose(errors(LOGITS, LABELS), logits.grad.numpy(), atol=1e-15)
    np.testing.assert_allclose(el2n(LOGITS, LABELS), np.linalg.norm(SOFTMAX - np.eye(4)[LABELS], axis=1))


@pytest.mark.parametrize("bias", [True, False])
def test_grand_is_the_norm_of_autograds_gradient_of_each_sample(bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 4, bias=bias).double()
    features = torch.from_numpy(RNG.normal(size=(30, 6)))
    logits = layer(features)
    norms = []
    for row, label in zip(logits, LABELS, strict=True):
        loss = nn.functional.cross_entropy(row[None], torch.tensor([label]))
        found = torch.autograd.grad(loss, [*layer.parameters()], retain_graph=True)
        norms.append(torch.cat([gradient.flatten() for gradient in found]).norm().item())
    ours = grand(logits.detach().numpy(), LABELS, features.numpy(), bias=bias)
    np.testing.assert_allclose(ours, norms, rtol=1e-12)


@pytest.mark.parametrize(
    ("trace", "score"),
    [
        ([1, 1, 1, 1, 1, 1], 0),
        ([0, 0, 1, 1, 1, 1], 0),  # learned late, never forgotten
        ([1, 0, 1, 0, 1, 0], 3),
        ([0, 1, 1, 0, 0, 0], 1),  # staying wrong is not forgotten again
        ([0, 0, 0, 0, 0, 0], 6),  # never learned: above any number of forgettings
        ([1, -1, 0, -1, -1, 1], 1),  # not seen is neither right nor wrong
        ([1, -1, -1, -1, -1, 1], 0),
        ([-1, -1, -1, -1, -1, -1], 6),
        ([-1, -1, -1, -1, 1, 0], 1),
    ],
)
def test_forgetting_on_hand_made_traces(trace: list[int], score: float) -> None:
    assert forgetting(np.array(trace)[:, None]).tolist() == [score]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: least_confidence(np.ones(3)), r"logits must be \(samples, classes\).*\(3,\)"),
        (lambda: margin(np.ones((3, 1))), r"at least two classes.*\(3, 1\)"),
        (lambda: el2n(LOGITS, LABELS[:5]), r"one class per row of logits: got \(5,\) for \(30, 4\)"),
        (lambda: forgetting(np.ones(3)), r"correct must be \(times, samples\).*\(3,\)"),
    ],
)
def test_wrong_shapes_are_named(call: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()
