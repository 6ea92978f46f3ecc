"""Latent diffusion as a task: the autoencoder, losses and scores, the metric, generated images and their distance."""

import math
import re
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from distributed.launch import ROOT, python
from infobatch.lab.comparison import Comparison
from infobatch.lab.data import fashion, folders
from infobatch.lab.data.datasets import IMAGENET_MEAN, IMAGENET_STD, Images, ImageSplit
from infobatch.lab.method import MethodSpec
from infobatch.lab.tasks.diffusion import (
    MODELS,
    DiffusionRecipe,
    LatentDiffusion,
    frechet_distance,
    train_autoencoder,
)
from infobatch.lab.training import Training

RECIPE = DiffusionRecipe(
    "fashion-mnist", "unet-tiny", 4, 16, "adamw", lr=2e-3, schedule="constant", autoencoder_steps=3, held_out=40
)


def some(split, count):
    """Images with a black frame, 32 × 32: their sides can be halved as often as the networks do."""
    images = np.pad(split.images[:count], ((0, 0), (2, 2), (2, 2)))
    return ImageSplit(images[..., None], split.labels[:count].astype(np.int64))


DATA = fashion.load()
IMAGES = Images("fashion-mnist", some(DATA.train, 64), some(DATA.test, 60), (0.286,), (0.353,), fashion.CLASSES)


def make_generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def plain():
    return LatentDiffusion(RECIPE, IMAGES)


@pytest.fixture(scope="module")
def by_timestep():
    return LatentDiffusion(replace(RECIPE, score="relative"), IMAGES)


# -- latents --------------------------------------------------------------------------------------------------------


def test_latents_are_what_the_frozen_autoencoder_makes_of_the_images(plain):
    assert plain.train.values.shape == (64, 4, 8, 8)
    assert plain.test.values.shape == (40, 4, 8, 8)
    assert plain.train.values.std().item() == pytest.approx(1, abs=1e-5)
    assert not any(parameter.requires_grad for parameter in plain.autoencoder.parameters())
    pixels = torch.from_numpy(IMAGES.train.images[:5]).permute(0, 3, 1, 2) / 127.5 - 1
    with torch.no_grad():
        expected = plain.autoencoder.encode(pixels).latent_dist.mean * plain.scale
    torch.testing.assert_close(plain.train.values[:5], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(plain.train.__getitems__([3, 1])[1], plain.train[1])


def test_the_autoencoder_learns_and_is_the_same_every_time(plain):
    before = torch.get_rng_state()
    again = train_autoencoder(plain.images, 3, torch.device("cpu"))
    longer = train_autoencoder(plain.images, 12, torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(plain.autoencoder.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    pixels = plain.images.images / 127.5 - 1
    with torch.no_grad():
        short_error, long_error = (
            (model.decode(model.encode(pixels).latent_dist.mode()).sample - pixels).square().mean()
            for model in (plain.autoencoder, longer)
        )
    assert long_error < 0.8 * short_error


def test_an_autoencoder_of_ones_own_is_read_from_its_folder(plain, tmp_path):
    plain.autoencoder.save_pretrained(tmp_path / "parts" / "vae")
    for name in (str(tmp_path / "parts" / "vae"), f"{tmp_path / 'parts'}:vae"):
        task = LatentDiffusion(replace(RECIPE, autoencoder=name, autoencoder_steps=1), IMAGES)
        torch.testing.assert_close(task.train.values, plain.train.values)


def test_pictures_in_folders_are_encoded_by_the_middle_of_each(tmp_path):
    for split, images, count in (("train", DATA.train.images, 6), ("val", DATA.test.images, 4)):
        (tmp_path / split / "thing").mkdir(parents=True)
        for i, pixels in enumerate(images[:count]):
            Image.fromarray(pixels).resize((80, 60)).save(tmp_path / split / "thing" / f"{i}.png")
    train, test, classes = folders.read_class_folders(tmp_path)
    data = Images("imagefolder", train, test, IMAGENET_MEAN, IMAGENET_STD, classes)
    task = LatentDiffusion(replace(RECIPE, dataset="imagefolder", image_size=48), data)
    assert task.train.values.shape == (6, 4, 12, 12)
    pictures, names = task.pictures([5])
    assert names == ["thing"]
    np.testing.assert_array_equal(pictures[0], folders.middle_cut(train.picture(5).convert("RGB"), 48))


# -- losses and scores ----------------------------------------------------------------------------------------------


def test_losses_are_one_per_sample_of_the_noise_that_was_added(plain):
    """With noise of √ᾱ x + √(1 - ᾱ) ε, ᾱ the product of 1 - β: Rombach et al.'s β."""
    model = plain.model(0)
    batch = plain.train.__getitems__(list(range(16)))
    losses = plain.losses(model, batch, make_generator())
    generator = make_generator()
    noise = torch.randn(16, 4, 8, 8, generator=generator)
    timestep = torch.randint(1000, (16,), generator=generator)
    beta = torch.linspace(0.0015**0.5, 0.0195**0.5, 1000, dtype=torch.float64) ** 2
    kept = torch.cumprod(1 - beta, 0)[timestep].float().view(-1, 1, 1, 1)
    predicted = model(kept.sqrt() * batch + (1 - kept).sqrt() * noise, timestep)
    torch.testing.assert_close(losses, (predicted - noise).square().mean((1, 2, 3)), rtol=1e-4, atol=1e-5)
    losses.mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_losses_of_some_rows_are_those_they_have_in_the_whole_batch(plain):
    model, batch, rows = plain.model(0).eval(), plain.train.__getitems__(list(range(16))), torch.tensor([9, 2, 5])
    some, whole = (plain.losses(model, batch, make_generator(1), chosen) for chosen in (rows, None))
    torch.testing.assert_close(some, whole[rows], rtol=1e-4, atol=1e-5)


def test_noise_and_timesteps_depend_on_the_generator_alone(plain):
    before = torch.get_rng_state()
    model = plain.model(0)
    batch = plain.train.__getitems__(list(range(16)))
    generator = make_generator(1)
    one, next_one = (plain.losses(model, batch, generator) for _ in range(2))
    again, other = (plain.losses(model, batch, make_generator(seed)) for seed in (1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, again)
    assert not torch.equal(one, next_one)
    assert not torch.equal(one, other)


def test_relative_scores_are_losses_by_what_is_usual_at_their_timestep(plain, by_timestep):
    model = by_timestep.model(0)
    generator, plain_generator = make_generator(), make_generator()
    for _ in range(3):
        batch = by_timestep.train.__getitems__(list(range(64)))
        loss, score = by_timestep.losses(model, batch, generator)
        torch.testing.assert_close(loss, plain.losses(model, batch, plain_generator))
    again = make_generator()
    for _ in range(3):
        torch.randn(64, 4, 8, 8, generator=again)
        timestep = torch.randint(1000, (64,), generator=again)
    torch.testing.assert_close(score, loss.detach() / model.usual(timestep))
    assert model.usual.weight.sum().item() == pytest.approx(64 * (1 + 0.99 + 0.99**2))
    assert not score.requires_grad


def test_what_is_usual_belongs_to_the_run_and_goes_on_with_it(by_timestep):
    """Two runs of one task take turns and do not meet; one that was interrupted goes on bit for bit."""

    def run():
        return Training(by_timestep, by_timestep.recipe, MethodSpec.parse("infobatch"), 0)

    whole, first = run(), run()
    for _ in range(2):
        whole.train_epoch()
        first.train_epoch()
    second = run()
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        whole.train_epoch()
        second.train_epoch()
    assert whole.history["values"] == second.history["values"]
    assert whole.train_data.scores.tolist() == second.train_data.scores.tolist()
    assert whole.history["kept"][1] < 64


# -- how good it is -------------------------------------------------------------------------------------------------


def test_the_metric_spreads_timesteps_evenly_and_is_the_same_every_time(plain):
    model = plain.model(0).train()
    seen = []
    hook = model.register_forward_hook(lambda module, inputs, output: seen.append(inputs[1]))
    metric = plain.evaluate(model)
    hook.remove()
    assert not model.training
    assert torch.cat(seen).sort().values.tolist() == list(range(12, 1000, 25))
    assert plain.evaluate(model) == metric

    generator = make_generator(0)
    torch.randperm(40, generator=generator)
    noise = torch.randn(40, 4, 8, 8, generator=generator)
    with torch.inference_mode():
        noisy = plain.noise.add_noise(plain.test.values, noise, torch.cat(seen))
        expected = (model(noisy, torch.cat(seen)) - noise).square().mean()
    assert metric == pytest.approx(expected.item(), rel=1e-5)


def test_generated_images_depend_on_the_seed_and_not_on_global_chance(plain):
    model = plain.model(0)
    before = torch.get_rng_state()
    one, again, other = (plain.generate(model, 3, steps=2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert one.shape == (3, 1, 32, 32)
    assert 0 <= one.min() < one.max() <= 1
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


class Knows(torch.nn.Module):
    """Of a single latent x₀ the noise in x is known: (x - √ᾱ x₀) / √(1 - ᾱ)."""

    def __init__(self, noise, latent):
        super().__init__()
        self.noise, self.latent = noise, latent

    def forward(self, noisy, timestep):
        kept = self.noise.alphas_cumprod[timestep].view(-1, 1, 1, 1)
        return (noisy - kept.sqrt() * self.latent) / (1 - kept).sqrt()


def test_a_model_that_knows_the_noise_generates_the_image(plain):
    made = plain.generate(Knows(plain.noise, plain.train.values[:1]), 2, steps=50)
    with torch.no_grad():
        decoded = plain.autoencoder.decode(plain.train.values[:1] / plain.scale).sample
    torch.testing.assert_close(made, (decoded / 2 + 0.5).clamp(0, 1).expand(2, -1, -1, -1), rtol=0, atol=0.03)


def test_how_far_new_latents_are_from_held_out_ones(plain):
    """All new ones are x₀: the distance is that of x₀ to the mean of the real ones, and the real ones' spread."""
    model = Knows(plain.noise, plain.train.values[:1])
    distance = plain.distance(model)
    latents = torch.cat([plain.test.values, plain.train.values[:1]])
    pooled = latents.unfold(2, 2, 2).unfold(3, 2, 2).mean((-2, -1)).flatten(1).double()
    real, x0 = pooled[:-1], pooled[-1]
    expected = (real.mean(0) - x0).square().sum() + real.var(0).sum()
    assert distance == pytest.approx(float(expected), rel=0.03)
    assert plain.evaluate(model) == plain.error(model)
    assert plain.further(model) == [("Fréchet distance of new latents to held-out ones", distance, False)]
    by_distance = copy(plain)
    by_distance.recipe = replace(RECIPE, metric="distance")
    assert by_distance.evaluate(model) == distance
    assert by_distance.further(model) == [("held-out noise-prediction error", plain.error(model), False)]


def test_fid_takes_the_users_network(plain):
    def features(images):
        assert 0 <= images.min() <= images.max() <= 1
        return images.mean((1, 2)).flatten(1)[:, ::8]

    model = plain.model(0)
    fid = plain.fid(model, features, 8, steps=2)
    real = features(torch.from_numpy(IMAGES.test.images[:40]).permute(0, 3, 1, 2) / 255)
    assert fid == pytest.approx(frechet_distance(real, features(plain.generate(model, 8, steps=2))), rel=1e-4)
    assert fid > 0


def test_a_model_that_diverged_has_no_distance_and_its_record_is_kept(plain, tmp_path):
    recipe = replace(RECIPE, lr=1e30, epochs=1)
    [record] = Comparison(recipe, [MethodSpec.parse("full")], [0], tmp_path).run(copy(plain))
    assert math.isnan(record.value)
    assert math.isnan(record.further[0].value)


def test_the_frechet_distance_of_gaussians_with_known_moments():
    """For covariances that commute, A and B diagonal in one basis: Σ (μ - ν)² + Σ (√a - √b)²."""
    basis, _ = torch.linalg.qr(torch.randn(5, 5, generator=make_generator(), dtype=torch.float64))
    a, b = torch.tensor([1.0, 4.0, 9.0, 0.25, 0.0]).double(), torch.tensor([4.0, 4.0, 1.0, 2.25, 1.0]).double()
    mean, other_mean = torch.zeros(5, dtype=torch.float64), torch.arange(5.0, dtype=torch.float64)

    def exactly(mean, values):
        """2 · 5 rows whose mean and (unbiased) covariance are these."""
        rows = torch.cat([torch.eye(5), -torch.eye(5)]).double() * (values * 9 / 2).sqrt()
        return rows @ basis.T + mean

    distance = frechet_distance(exactly(mean, a), exactly(other_mean, b))
    assert distance == pytest.approx(float((mean - other_mean).square().sum() + (a.sqrt() - b.sqrt()).square().sum()))


def test_the_frechet_distance_against_a_root_of_the_product():
    from scipy import linalg

    one, other = (
        torch.randn(n, 6, generator=make_generator(n)) @ torch.randn(6, 6, generator=make_generator(n + 1))
        for n in (40, 30)
    )
    covariances = [np.cov(features.double().numpy(), rowvar=False) for features in (one, other)]
    apart = ((one.double().mean(0) - other.double().mean(0)) ** 2).sum().item()
    root = linalg.sqrtm(covariances[0] @ covariances[1]).real
    assert frechet_distance(one, other) == pytest.approx(apart + np.trace(sum(covariances) - 2 * root), rel=1e-8)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-9)


def test_the_frechet_distance_says_what_it_needs():
    with pytest.raises(ValueError, match=r"equally many features, got \(4, 3\) and \(4, 2\)"):
        frechet_distance(torch.zeros(4, 3), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="at least 2 samples for its spread, got 1 and 4"):
        frechet_distance(torch.zeros(1, 3), torch.zeros(4, 3))


# -- as a recipe ----------------------------------------------------------------------------------------------------


def test_the_papers_network_has_the_size_it_is_said_to_have():
    from diffusers import UNet2DModel

    with torch.device("meta"):
        unet = UNet2DModel(64, 3, 3, **MODELS["unet-ffhq"])
    assert round(sum(parameter.numel() for parameter in unet.parameters()) / 1e6) == 274


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="held_out must be at least 2, or None for all test images, got 1"):
        replace(RECIPE, held_out=1)
    with pytest.raises(ValueError, match="autoencoder_steps must be at least 1, got 0"):
        replace(RECIPE, autoencoder_steps=0)
    with pytest.raises(ValueError, match="score: there is no 'lost'; did you mean 'loss'"):
        replace(RECIPE, score="lost")
    with pytest.raises(ValueError, match="precision fp16 needs a GPU"):
        LatentDiffusion(replace(RECIPE, precision="fp16"), IMAGES, "cpu")
    odd = replace(IMAGES, train=ImageSplit(DATA.train.images[:9, ..., None], DATA.train.labels[:9].astype(np.int64)))
    with pytest.raises(ValueError, match="needs latents whose side is a multiple of 2, got 7, from images of 28"):
        LatentDiffusion(replace(RECIPE, autoencoder_steps=1, samples=9), odd)


def test_a_comparison_prunes_and_learns(plain, tmp_path):
    methods = [MethodSpec.parse(name) for name in ("full", "infobatch")]
    full, pruned = Comparison(RECIPE, methods, [0], tmp_path).run(plain)
    assert full.kept == (64,) * 4
    assert pruned.kept[0] == 64 > pruned.kept[1]
    assert full.losses[0] == pruned.losses[0]
    for record in (full, pruned):
        assert record.values[-1] < 0.9 * record.values[0]
    assert full.recipe["delta"] == 0.825
    assert (tmp_path / "pictures.npz").exists()


@pytest.mark.slow
def test_the_example_learns_and_saves():
    done = python(ROOT / "examples" / "diffusion.py", "--epochs", 4, "--samples", 300)
    errors = [float(line.split()[-1]) for line in done.stdout.splitlines() if "noise-prediction error" in line]
    assert len(errors) == 4
    assert errors[-1] < 0.8 * errors[0]
    assert re.search(r"saved [1-9]\d?\.\d% of full training", done.stdout)
