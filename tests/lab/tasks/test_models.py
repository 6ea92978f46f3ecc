import pytest
import timm
import torch
from torch import nn

from infobatch.lab.tasks import models


def make(name, size=32, channels=3, seed=0):
    return models.create(name, 7, channels, size, seed)


@pytest.mark.parametrize(
    ("name", "channels", "size"),
    [
        ("small-cnn", 1, 28),
        ("small-cnn", 3, 32),
        ("strided-cnn", 1, 28),
        ("strided-cnn", 3, 32),
        ("conv-mlp", 1, 28),
        ("conv-mlp", 3, 32),
        ("resnet-narrow", 3, 32),
        ("resnet-compact", 3, 32),
        ("resnet-compact", 1, 28),
        ("pooled-cnn", 1, 28),
        ("residual-mlp", 1, 14),
        ("resnet18", 3, 32),
        ("resnet50", 3, 64),
        ("swin_tiny_patch4_window7_224", 3, 64),
        ("vit_base_patch16_224", 3, 32),
    ],
)
def test_every_network_gives_logits_and_draws_says_whether_it_draws_random_numbers(name, channels, size):
    model = make(name, size, channels).train()
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        before = torch.get_rng_state()
        assert model(torch.zeros(2, channels, size, size)).shape == (2, 7)
        drew = not torch.equal(torch.get_rng_state(), before)
    assert drew == models.draws(name)


def test_every_name_is_tried_above_and_timm_has_those_that_are_not_ours():
    ours = {"small-cnn", "strided-cnn", "pooled-cnn", "conv-mlp", "residual-mlp", "resnet-narrow", "resnet-compact"}
    pretrained = {"efficientnet-lite0"}  # test_pretrained.py
    assert set(models.NAMES) - ours - pretrained <= set(timm.list_models())
    (tried,) = test_every_network_gives_logits_and_draws_says_whether_it_draws_random_numbers.pytestmark
    assert {name for name, _, _ in tried.args[1]} == set(models.NAMES) - pretrained


@pytest.mark.parametrize("name", ["small-cnn", "resnet-compact", "resnet18"])
def test_weights_come_from_the_seed_and_the_global_random_state_is_left_alone(name):
    before = torch.get_rng_state()
    one, again, other = (nn.utils.parameters_to_vector(make(name, seed=seed).parameters()) for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_resnet_keeps_small_images_whole_at_first_and_large_ones_as_timm_does():
    small, large = make("resnet18", 32), make("resnet18", 224)
    seen = []
    small.layer1.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[2:]))
    large.layer1.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[2:]))
    with torch.inference_mode():
        small.eval()(torch.zeros(1, 3, 32, 32))
        large.eval()(torch.zeros(1, 3, 224, 224))
    assert seen == [(32, 32), (56, 56)]
    # As timm starts its convolutions: normal, of variance 2 / fan-out.
    assert small.conv1.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.1)


@pytest.mark.parametrize(("name", "size"), [("vit_base_patch16_224", 28), ("swin_tiny_patch4_window7_224", 30)])
def test_images_that_patches_do_not_cover_are_refused(name, size):
    with pytest.raises(ValueError, match=f"needs images whose side is a multiple of .*, got {size}: use a resnet"):
        make(name, size)


@pytest.mark.parametrize("name", ["small-cnn", "strided-cnn", "conv-mlp", "resnet-narrow", "resnet-compact"])
def test_the_last_batch_of_a_pruned_epoch_may_be_one_sample(name):
    model = make(name).train()
    logits = model(torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    logits.sum().backward()
    assert logits.shape == (1, 7)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
