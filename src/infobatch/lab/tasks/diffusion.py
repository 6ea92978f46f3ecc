"""Latent diffusion as a task of the lab: a U-Net learns to predict the noise in an autoencoder's latents."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d
from torch.utils.data import Dataset

from ...integrations import needs
from ...records import Measure
from ...scoring.diffusion import ExpectedLoss, noise_prediction, relative
from ..data import datasets
from ..data.datasets import Images, ImageSplit
from ..data.folders import Decoded, Lazy
from .device import autocast, choose_device
from .images import ImageRecipe, InMemory, batches, to_pictures
from .rows import take_rows
from .task import Task

_TEST_BATCH = 500
_NEW, _NEW_STEPS = 1000, 25  # new images that are measured, and the DDIM steps that make each
TIMESTEPS = 1000
# Latent diffusion's own noise (Rombach et al.); their "linear" schedule is linear in the square root.
_NOISE: dict[str, Any] = {
    "num_train_timesteps": TIMESTEPS,
    "beta_start": 0.0015,
    "beta_end": 0.0195,
    "beta_schedule": "scaled_linear",
}
MODELS: dict[str, dict[str, Any]] = {
    # Small enough to come near its best result in a few thousand steps.
    "unet-micro": {
        "layers_per_block": 1,
        "block_out_channels": (16, 16),
        "down_block_types": ("DownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "UpBlock2D"),
        "attention_head_dim": 16,
        "norm_num_groups": 4,
    },
    "unet-tiny": {
        "layers_per_block": 1,
        "block_out_channels": (32, 32),
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        "attention_head_dim": 16,
        "norm_num_groups": 8,
    },
    # ffhq-ldm-vq-4 of latent diffusion: 274 million parameters.
    "unet-ffhq": {
        "layers_per_block": 2,
        "block_out_channels": (224, 448, 672, 896),
        "down_block_types": ("DownBlock2D", *("AttnDownBlock2D",) * 3),
        "up_block_types": (*("AttnUpBlock2D",) * 3, "UpBlock2D"),
        "attention_head_dim": 32,
    },
}
OWN_AUTOENCODER = "tiny"
_AUTOENCODER: dict[str, Any] = {
    "latent_channels": 4,
    "block_out_channels": (8, 16, 32),  # each block but the first halves the sides
    "down_block_types": ("DownEncoderBlock2D",) * 3,
    "up_block_types": ("UpDecoderBlock2D",) * 3,
    "norm_num_groups": 4,
    "mid_block_add_attention": False,
}
_AUTOENCODER_BATCH, _AUTOENCODER_LR, _AUTOENCODER_KL = 32, 6e-3, 1e-6
SCORES = ("loss", "relative")
METRICS = {"error": "held-out noise-prediction error", "distance": "Fréchet distance of new latents to held-out ones"}


@dataclass(frozen=True)
class DiffusionRecipe(ImageRecipe):
    """A recipe for latent diffusion.

    ``autoencoder`` is "tiny", which is trained first, for ``autoencoder_steps`` on the training images, the same for
    all runs; or a pre-trained autoencoder: a folder or a name on the Hugging Face hub that diffusers reads, or
    NAME:SUBFOLDER. ``score`` "loss" judges a sample by its last loss, "relative" by that loss over the usual loss at
    its timestep. ``metric`` is measured on the first ``held_out`` test images, None for all: "error" is the loss on
    them, "distance" the distance of new images to them (:meth:`LatentDiffusion.distance`). Pictures from files are cut
    to ``image_size``.
    """

    task: ClassVar[str] = "diffusion"
    choices: ClassVar[dict[str, Iterable[str]]] = {
        **ImageRecipe.choices,
        "model": MODELS,
        "score": SCORES,
        "metric": METRICS,
    }

    delta: float = 0.825  # the paper's, appendix A.5
    autoencoder: str = OWN_AUTOENCODER
    autoencoder_steps: int = 200
    score: str = "loss"
    metric: str = "error"
    held_out: int | None = None
    image_size: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.held_out is not None and self.held_out < 2:
            raise ValueError(f"held_out must be at least 2, or None for all test images, got {self.held_out}")
        if self.autoencoder_steps < 1:
            raise ValueError(f"autoencoder_steps must be at least 1, got {self.autoencoder_steps}")

    def create_task(self, data: Path | None = None) -> LatentDiffusion:
        return LatentDiffusion(self, datasets.load(self.dataset, data))


class Latents(Dataset[Tensor]):
    """The images' latents, a batch of which is taken at once."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Tensor:
        return self.values[index]

    def __getitems__(self, indices: list[int]) -> Tensor:
        return self.values[torch.tensor(indices)]


class Denoiser(nn.Module):
    """The U-Net and its usual loss at each timestep: the state of one run, saved and restored together."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet, self.usual = unet, ExpectedLoss(TIMESTEPS)

    def forward(self, noisy: Tensor, timestep: Tensor) -> Tensor:
        """The predicted noise."""
        predicted: Tensor = self.unet(noisy, timestep).sample
        return predicted


class LatentDiffusion(Task):
    """Latent diffusion as the training loop sees it, on ``device``: the GPU if there is one, else the CPU.

    All images are encoded once, when the task is made, and the latents stay in memory: runs do not pay for the
    autoencoder.
    """

    train: Latents
    higher_is_better = False

    def __init__(self, recipe: DiffusionRecipe, data: Images, device: torch.device | str | None = None) -> None:
        with needs("diffusers", "diffusion"):
            from diffusers import DDPMScheduler

        self.recipe, self.data, self.metric = recipe, data, METRICS[recipe.metric]
        self.device = choose_device(recipe.precision, device)
        self.images = self._pixels(data.train.head(recipe.samples))
        self.test_images = self._pixels(data.test.head(recipe.held_out))
        self.autoencoder: Any = self._autoencoder()
        train, test = (self._encode(images) for images in (self.images, self.test_images))
        self.scale = 1 / float(train.std())  # gives the latents variance 1, as the noise has
        self.train, self.test = Latents(train * self.scale), Latents(test * self.scale)
        side, halved = train.shape[-1], 2 ** (len(MODELS[recipe.model]["block_out_channels"]) - 1)
        if side % halved:
            raise ValueError(
                f"{recipe.model} needs latents whose side is a multiple of {halved}, got {side}, from images of "
                f"{self.images[0][0].shape[-1]}: take images of another size"
            )
        self.noise = DDPMScheduler(**_NOISE)

    def model(self, seed: int) -> Denoiser:
        """The recipe's network, on the device; torch's global random state stays as it is."""
        from diffusers import UNet2DModel

        channels, size = self.train.values.shape[1:3]
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            unet: nn.Module = UNet2DModel(size, channels, channels, **MODELS[self.recipe.model])
        return Denoiser(unet).to(self.device)

    def losses(
        self, model: nn.Module, batch: Tensor, generator: torch.Generator, rows: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """One loss per sample at a random timestep with random noise, in fp32; with "relative" also the scores."""
        noise = torch.randn(batch.shape, generator=generator)
        timestep = torch.randint(TIMESTEPS, (len(batch),), generator=generator).to(self.device)
        batch, noise, timestep = take_rows((batch, noise, timestep), rows)
        loss = self._losses(model, batch, noise, timestep)
        if self.recipe.score == "loss":
            return loss
        usual: ExpectedLoss = model.get_submodule("usual")  # type: ignore[assignment]
        usual.book(loss, timestep)
        return loss, relative(loss, usual(timestep))

    @torch.inference_mode()
    def evaluate(self, model: nn.Module) -> float:
        """The metric on the held-out images."""
        return self.distance(model) if self.recipe.metric == "distance" else self.error(model)

    @torch.inference_mode()
    def further(self, model: nn.Module) -> list[Measure]:
        """The metric that the recipe does not name."""
        if self.recipe.metric == "distance":
            return [Measure(METRICS["error"], self.error(model), False)]
        return [Measure(METRICS["distance"], self.distance(model), False)]

    @torch.inference_mode()
    def error(self, model: nn.Module) -> float:
        """The mean loss on held-out images; each image has its own timestep and noise, the same for all models.

        The timesteps are spread evenly over all timesteps, so that their choice adds no noise to the metric.
        """
        model.eval()
        generator, count, total = torch.Generator().manual_seed(0), len(self.test), 0.0
        evenly = (torch.arange(count) * TIMESTEPS + TIMESTEPS // 2) // count
        timesteps = evenly[torch.randperm(count, generator=generator)]
        parts = (torch.split(part, _TEST_BATCH) for part in (self.test.values, timesteps))
        for latents, timestep in zip(*parts, strict=True):
            noise = torch.randn(latents.shape, generator=generator)
            total += self._losses(model, latents, noise, timestep.to(self.device)).double().sum().item()
        return total / count

    @torch.inference_mode()
    def generate(self, model: nn.Module, count: int, *, steps: int = 50, seed: int = 0) -> Tensor:
        """New images with values in [0, 1], from noise, by ``steps`` of DDIM."""
        return torch.cat([self._decode(latents) for latents in self._new_latents(model, count, steps, seed)])

    @torch.inference_mode()
    def distance(self, model: nn.Module) -> float:
        """The distance of new images' latents to held-out latents: FID's distance, without its network.

        Up to ``_NEW`` latents of each kind are compared, averaged over 2 × 2. New images start from the same noise for
        all models.
        """
        held_out = self.test.values[:_NEW]
        new = torch.cat(list(self._new_latents(model, len(held_out), _NEW_STEPS, seed=0))).cpu()
        real, generated = (avg_pool2d(latents, 2).flatten(1) for latents in (held_out, new))
        return frechet_distance(real, generated)

    def fid(
        self, model: nn.Module, features: Callable[[Tensor], Tensor], count: int, *, steps: int = 50, seed: int = 0
    ) -> float:
        """The Fréchet distance of generated images to the held-out ones, in the features of a network you give.

        ``features`` takes images with values in [0, 1] and gives one row of numbers for each. Published FID figures use
        the pool-3 features of one certain Inception network and tens of thousands of images; with fewer images or
        another network, figures can be compared only with each other.
        """
        images = self.generate(model, count, steps=steps, seed=seed)
        with torch.inference_mode():
            pixels = (batch.to(self.device) / 255 for batch, _ in batches(self.test_images, self.recipe))
            real = [features(batch) for batch in pixels]
            generated = [features(batch) for batch in torch.split(images, _TEST_BATCH)]
        return frechet_distance(torch.cat(real), torch.cat(generated))

    def pictures(self, indices: list[int]) -> tuple[NDArray[np.uint8], list[str]]:
        """Training images and the names of their classes, for the report."""
        return to_pictures(self.images, self.data.classes, indices)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _losses(self, model: nn.Module, latents: Tensor, noise: Tensor, timestep: Tensor) -> Tensor:
        latents, noise = latents.to(self.device), noise.to(self.device)
        noisy = self.noise.add_noise(latents, noise, timestep)
        with autocast(self.recipe.precision, self.device):
            predicted = model(noisy, timestep)
        return noise_prediction(predicted, noise)

    def _new_latents(self, model: nn.Module, count: int, steps: int, seed: int) -> Iterator[Tensor]:
        """The latents of new images, a batch at a time."""
        from diffusers import DDIMScheduler

        model.eval()
        scheduler = DDIMScheduler(**_NOISE, clip_sample=False, set_alpha_to_one=False)
        scheduler.set_timesteps(steps)
        generator = torch.Generator().manual_seed(seed)
        for start in range(0, count, _TEST_BATCH):
            shape = (min(_TEST_BATCH, count - start), *self.train.values.shape[1:])
            latents = torch.randn(shape, generator=generator).to(self.device)
            for timestep in scheduler.timesteps:
                predicted = model(latents, timestep.to(self.device))
                latents = scheduler.step(predicted, timestep, latents).prev_sample
            yield latents

    def _pixels(self, split: ImageSplit | Lazy) -> InMemory | Decoded:
        if isinstance(split, ImageSplit):
            return InMemory(split)
        return Decoded(replace(split, size=self.recipe.image_size))

    def _autoencoder(self) -> nn.Module:
        """The autoencoder, frozen: no run changes it."""
        if self.recipe.autoencoder == OWN_AUTOENCODER:
            model = train_autoencoder(self.images, self.recipe.autoencoder_steps, self.device)
        else:
            from diffusers import AutoModel

            name, _, subfolder = self.recipe.autoencoder.partition(":")
            model = AutoModel.from_pretrained(name, subfolder=subfolder or None).to(self.device)
        return model.eval().requires_grad_(False)

    @torch.no_grad()
    def _encode(self, images: InMemory | Decoded) -> Tensor:
        latents = []
        for batch, _ in batches(images, self.recipe):
            output = self.autoencoder.encode(_scale_pixels(batch.to(self.device)))
            # A variational autoencoder gives a distribution, whose mode is taken; others give a value.
            latents.append((output.latent_dist.mode() if hasattr(output, "latent_dist") else output.latents).cpu())
        return torch.cat(latents)

    def _decode(self, latents: Tensor) -> Tensor:
        images: Tensor = self.autoencoder.decode(latents / self.scale).sample
        return (images / 2 + 0.5).clamp(0, 1)


def train_autoencoder(images: InMemory | Decoded, steps: int, device: torch.device) -> nn.Module:
    """Train a small AutoencoderKL, with latents of a quarter of the images' side; it depends on nothing else."""
    from diffusers import AutoencoderKL

    generator = torch.Generator().manual_seed(0)
    channels = images[0][0].shape[0]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model: Any = AutoencoderKL(channels, channels, **_AUTOENCODER)
    model.to(device)
    optimiser = torch.optim.Adam(model.parameters(), _AUTOENCODER_LR)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _AUTOENCODER_LR, total_steps=steps)
    for _ in range(steps):
        chosen = torch.randint(len(images), (_AUTOENCODER_BATCH,), generator=generator)
        pixels = _scale_pixels(images.__getitems__(chosen.tolist())[0].to(device))
        latent = model.encode(pixels).latent_dist
        sample = latent.mean + latent.std * torch.randn(latent.mean.shape, generator=generator).to(device)
        error = (model.decode(sample).sample - pixels).square().mean()
        optimiser.zero_grad()
        (error + _AUTOENCODER_KL * latent.kl().mean()).backward()
        optimiser.step()
        schedule.step()
    autoencoder: nn.Module = model
    return autoencoder


def frechet_distance(one: Tensor, other: Tensor) -> float:
    """|μ₁ - μ₂|² + Tr(Σ₁ + Σ₂ - 2 (Σ₁ Σ₂)^½) of two sets of features, a row per sample: FID, for its own network.

    The trace of the root is the sum of the roots of the eigenvalues of Σ₁^½ Σ₂ Σ₁^½, which is symmetric: this
    needs no root of a general matrix and no complex numbers.

    >>> frechet_distance(torch.tensor([[0.0], [2.0]]), torch.tensor([[3.0], [7.0]]))
    18.0
    """
    if one.ndim != 2 or other.ndim != 2 or one.shape[1] != other.shape[1]:
        raise ValueError(
            "both sets must be of shape (samples, features), with equally many features, got "
            f"{tuple(one.shape)} and {tuple(other.shape)}"
        )
    if min(len(one), len(other)) < 2:
        raise ValueError(f"each set needs at least 2 samples for its spread, got {len(one)} and {len(other)}")
    if not (one.isfinite().all() and other.isfinite().all()):
        return math.nan  # a model that diverged: there are no eigenvalues
    (mean, spread), (other_mean, other_spread) = (_mean_and_covariance(features) for features in (one, other))
    values, vectors = torch.linalg.eigh(spread)
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    shared = torch.linalg.eigvalsh(root @ other_spread @ root).clamp(min=0).sqrt().sum()
    apart = (mean - other_mean).square().sum()
    return float(apart + spread.trace() + other_spread.trace() - 2 * shared)


def _mean_and_covariance(features: Tensor) -> tuple[Tensor, Tensor]:
    features = features.double().cpu()
    mean = features.mean(0)
    centred = features - mean
    return mean, centred.T @ centred / (len(features) - 1)


def _scale_pixels(pixels: Tensor) -> Tensor:
    """Scale bytes to [-1, 1], the range that autoencoders take."""
    return pixels / 127.5 - 1
