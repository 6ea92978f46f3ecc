"""Each image's loss against a loop over patches and values, and their mean against the model's own loss."""

from __future__ import annotations

import pytest
import torch
from transformers import ViTMAEConfig, ViTMAEForPreTraining

from infobatch.scoring.masked import patches, reconstruction


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_losses_against_a_loop() -> None:
    predicted, target = (torch.randn(4, 6, 5, generator=chance(seed)) for seed in (1, 2))
    mask = (torch.rand(4, 6, generator=chance(3)) < 0.6).float()
    mask[2] = 0

    expected = []
    for guess, truth, hidden in zip(predicted.tolist(), target.tolist(), mask.tolist(), strict=True):
        errors = []
        for guessed, true, is_hidden in zip(guess, truth, hidden, strict=True):
            if is_hidden:
                errors.append(sum((g - t) ** 2 for g, t in zip(guessed, true, strict=True)) / 5)
        expected.append(sum(errors) / len(errors) if errors else 0.0)
    found = reconstruction(predicted, target, mask)
    assert found.tolist() == pytest.approx(expected, rel=1e-5)
    assert found[2] == 0


@pytest.mark.parametrize("normalised", [False, True])
def test_patches_against_a_loop(normalised: bool) -> None:
    images = torch.randn(2, 3, 8, 12, generator=chance())
    found = patches(images, 4, normalised=normalised)
    assert found.shape == (2, 6, 48)
    for image, cut in zip(images, found, strict=True):
        for number, patch in enumerate(cut):
            top, left = 4 * (number // 3), 4 * (number % 3)
            values = torch.stack([image[:, top + y, left + x] for y in range(4) for x in range(4)]).flatten()
            if normalised:
                values = (values - values.mean()) / (values.var() + 1e-6) ** 0.5
            torch.testing.assert_close(patch, values)


@pytest.mark.parametrize("normalised", [False, True])
def test_their_mean_is_the_models_own_loss(normalised: bool) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = ViTMAEForPreTraining(
            ViTMAEConfig(
                image_size=16, patch_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                intermediate_size=16, decoder_hidden_size=16, decoder_num_hidden_layers=1,
                decoder_num_attention_heads=2, decoder_intermediate_size=16, norm_pix_loss=normalised,
            )
        )  # fmt: skip
    images = torch.randn(5, 3, 16, 16, generator=chance())
    output = model(images, noise=torch.rand(5, 16, generator=chance()))
    found = reconstruction(output.logits, patches(images, 4, normalised=normalised), output.mask)
    torch.testing.assert_close(found.mean(), output.loss)

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    ours, theirs = (torch.autograd.grad(loss, parameters, retain_graph=True) for loss in (found.mean(), output.loss))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_patch_of_one_colour_is_nothing_but_zeros_when_normalised() -> None:
    assert patches(torch.full((1, 3, 4, 4), 0.5), 4, normalised=True).abs().max() == 0


def test_half_precision_is_squared_and_summed_in_single() -> None:
    predicted = torch.full((1, 2000, 4), 300.0, dtype=torch.float16)  # its square is beyond fp16
    found = reconstruction(predicted, torch.zeros_like(predicted), torch.ones(1, 2000))
    assert found.dtype == torch.float32
    assert found.item() == 90_000


def test_shapes_that_do_not_fit_are_told() -> None:
    cut = torch.zeros(2, 6, 48)
    with pytest.raises(ValueError, match=r"got \(2, 6, 48\) and \(2, 3, 16, 16\); patches\(images, size\) cuts"):
        reconstruction(cut, torch.zeros(2, 3, 16, 16), torch.ones(2, 6))
    with pytest.raises(ValueError, match=r"mask must have one entry per patch, .*: shape \(2, 6\), got \(2, 6, 48\)"):
        reconstruction(cut, cut, torch.ones(2, 6, 48))
    with pytest.raises(ValueError, match=r"size must divide .* got size 5 for images of 16 × 16"):
        patches(torch.zeros(2, 3, 16, 16), 5)
