"""DeepFool: exact for a linear classifier, real adversaries for others."""

from __future__ import annotations

import torch
from torch import nn

from infobatch.static import deepfool


def test_the_distance_of_a_linear_classifier_is_exact() -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(7, 5).double(), torch.randn(50, 7, dtype=torch.float64)
    logits, weights = layer(inputs).detach(), layer.weight.detach()
    top = logits.argmax(1)
    gaps = logits.gather(1, top[:, None]) - logits
    lengths = (weights[top][:, None] - weights).norm(dim=2)
    exact = (gaps / lengths).nan_to_num(nan=torch.inf).amin(1)  # 0 / 0 is the class itself
    torch.testing.assert_close(deepfool(layer, inputs), exact)


def test_it_finds_the_boundary_of_a_network_and_leaves_it_unchanged() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3)).eval()
    before = [parameter.clone() for parameter in model.parameters()]
    inputs = torch.randn(40, 3, 4)
    with torch.no_grad():
        distances = deepfool(model, inputs)
        top = model(inputs).argmax(1)
        for _ in range(200):  # no step of half the distance changes the class, in whatever direction
            step = torch.randn_like(inputs)
            step *= (0.5 * distances / step.flatten(1).norm(dim=1))[:, None, None]
            assert torch.equal(model(inputs + step).argmax(1), top)
    assert not distances.requires_grad
    assert (distances > 0).all()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


def test_where_nothing_changes_the_class_the_boundary_is_infinitely_far() -> None:
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    model.bias.data = torch.tensor([1.0, 0.0])
    assert deepfool(model, torch.randn(4, 3), steps=3).tolist() == [torch.inf] * 4
