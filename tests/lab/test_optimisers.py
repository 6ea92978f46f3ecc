import math

import pytest
import timm.optim
import torch
from torch import nn

from infobatch.lab import optimisers
from infobatch.lab.tasks.classification import ClassificationRecipe

STEPS = 100


def recipe(**settings):
    return ClassificationRecipe("cifar10", "resnet18", 1, **{"lr": 0.1, **settings})


def started(**settings):
    """The optimiser of a recipe over one small layer, and that layer."""
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(6.0).view(2, 3) / 10)
        layer.bias.fill_(0.5)
    return optimisers.optimizer(recipe(**settings), layer), layer


def curve(**settings):
    """Learning rate and momentum of every step of a schedule."""
    optimizer, layer = started(**settings)
    layer(torch.zeros(1, 3)).sum().mul(0).backward()
    schedule = optimisers.schedule(recipe(**settings), optimizer, STEPS)
    rates, momenta = [], []
    for _ in range(STEPS):
        (group,) = optimizer.param_groups
        rates.append(group["lr"])
        momenta.append(group["betas"][0] if "betas" in group else group["momentum"])
        optimizer.step()
        schedule.step()
    return rates, momenta, optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("sgd", lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, nesterov=True, weight_decay=0.01)),
        ("adam", lambda p: torch.optim.Adam(p, 0.1, (0.8, 0.999), weight_decay=0.01, fused=True)),
        ("adamw", lambda p: torch.optim.AdamW(p, 0.1, (0.8, 0.999), weight_decay=0.01, fused=True)),
        ("radam", lambda p: torch.optim.RAdam(p, 0.1, (0.8, 0.999), weight_decay=0.01)),
        ("lars", lambda p: timm.optim.Lars(p, 0.1, momentum=0.8, weight_decay=0.01)),
        ("lamb", lambda p: timm.optim.Lamb(p, 0.1, betas=(0.8, 0.999), weight_decay=0.01)),
    ],
)
def test_each_optimiser_steps_as_its_own_class_does_with_the_recipes_settings(name, like):
    settings = {"optimizer": name, "momentum": 0.8, "weight_decay": 0.01}
    optimizer, layer = started(**settings)
    _, twin = started(**settings)
    reference = like(twin.parameters())
    assert type(optimizer) is type(reference)
    inputs = torch.tensor([[1.0, -2.0, 0.5]])
    for _ in range(3):
        for module, stepped in ((layer, optimizer), (twin, reference)):
            stepped.zero_grad()
            module(inputs).square().sum().backward()
            stepped.step()
    assert torch.equal(layer.weight, twin.weight)
    assert torch.equal(layer.bias, twin.bias)
    assert not torch.equal(layer.weight, started()[1].weight)


def test_every_optimiser_is_tried_above():
    (tried,) = test_each_optimiser_steps_as_its_own_class_does_with_the_recipes_settings.pytestmark
    assert [name for name, _ in tried.args[1]] == list(optimisers.OPTIMISERS)


def test_sgd_without_momentum_has_none():
    optimizer, _ = started(momentum=0.0)
    assert not optimizer.defaults["nesterov"]


@pytest.mark.parametrize("name", optimisers.OPTIMISERS)
@pytest.mark.parametrize("schedule", optimisers.SCHEDULES)
def test_every_schedule_goes_with_every_optimiser_and_never_exceeds_the_learning_rate(name, schedule):
    rates, _, _ = curve(optimizer=name, schedule=schedule)
    assert max(rates) == pytest.approx(0.1)


def test_onecycle_is_torchs_with_its_default_settings():
    rates, momenta, _ = curve(schedule="onecycle")
    optimizer, _ = started()
    reference = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS)
    for rate, momentum in zip(rates, momenta, strict=True):
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"])
        assert momentum == pytest.approx(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        if reference.last_epoch < STEPS - 1:
            reference.step()


@pytest.mark.parametrize("name", ["sgd", "adamw", "lars"])
@pytest.mark.parametrize(("momentum", "low", "high"), [(0.9, 0.85, 0.95), (0.2, 0.1, 0.3), (0.0, 0.0, 0.0)])
def test_onecycle_moves_the_momentum_around_the_recipes(name, momentum, low, high):
    _, momenta, _ = curve(optimizer=name, schedule="onecycle", momentum=momentum)
    assert (min(momenta), max(momenta)) == pytest.approx((low, high), abs=1e-3)


def test_cosine_falls_from_the_learning_rate_to_nothing():
    rates, momenta, end = curve(schedule="cosine")
    expected = [0.05 * (1 + math.cos(math.pi * step / STEPS)) for step in range(STEPS)]
    assert rates == pytest.approx(expected)
    assert end == pytest.approx(0, abs=1e-12)
    assert set(momenta) == {0.9}


def test_warmup_cosine_rises_in_a_line_and_falls_to_a_thousandth():
    rates, _, end = curve(schedule="warmup-cosine")  # 10/350 of 100 steps are 3
    assert rates[:4] == pytest.approx([0.1 * (0.001 + 0.999 * share) for share in (0, 1 / 3, 2 / 3, 1)])
    assert rates[3:] == sorted(rates[3:], reverse=True)
    half = 3 + (STEPS - 3) / 2
    assert (rates[int(half)] + rates[int(half) + 1]) / 2 == pytest.approx(0.1 * (0.001 + 0.999 / 2), rel=1e-6)
    assert end == pytest.approx(1e-4)


def test_a_longer_warm_up_takes_a_fifth_of_the_steps():
    rates, _, _ = curve(schedule="warmup20-cosine")
    assert rates.index(max(rates)) == STEPS // 5
    assert max(rates) == pytest.approx(0.1)


def test_constant_stays():
    rates, _, end = curve(schedule="constant")
    assert {*rates, end} == {0.1}
