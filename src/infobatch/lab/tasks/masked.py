"""Masked-image pre-training (MAE) as a task of the lab: a ViT learns to fill in hidden patches."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...integrations import needs
from ...records import Measure
from ...scoring import masked
from ..data import datasets
from ..data.datasets import Images
from ..data.folders import Decoded
from .device import autocast
from .images import AugmentedRecipe, ImageTask, InMemory
from .rows import take_rows

_TOKEN_STD = 0.02
_RIDGE = 1e-3  # the probe's ridge penalty; the features' variance is 1
_TINY: dict[str, Any] = {
    "patch_size": 4,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "decoder_hidden_size": 32,
    "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 128,
    "initializer_range": 0.1,  # transformers' 0.02 is for wider networks
}
# Small enough to come near its best result in a few thousand steps.
_MICRO: dict[str, Any] = {
    **_TINY,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "decoder_hidden_size": 24,
    "decoder_intermediate_size": 48,
}
_BASE: dict[str, Any] = {"patch_size": 16}  # the rest of ViT-B/16 and its decoder are transformers' own defaults
MODELS = {"vit-mae-micro": _MICRO, "vit-mae-tiny": _TINY, "vit-mae-base": _BASE}
METRICS = {"reconstruction": ("held-out reconstruction error", False), "probe": ("linear probe, %", True)}


@dataclass(frozen=True)
class MaskedRecipe(AugmentedRecipe):
    """A recipe for masked-image pre-training.

    ``mask_ratio`` is the share of an image's patches that are hidden; ``normalised`` scales each patch to mean 0 and
    variance 1 before the model guesses it (``norm_pix_loss``). ``metric`` is measured on the first ``held_out`` test
    images, None for all: "reconstruction" is the pre-training loss with the same masks for all models, "probe" the
    accuracy of a linear classifier on the frozen encoder.
    """

    task: ClassVar[str] = "masked"
    choices: ClassVar[dict[str, Iterable[str]]] = {
        **AugmentedRecipe.choices,
        "model": MODELS,
        "metric": METRICS,
    }

    mask_ratio: float = 0.75
    normalised: bool = True
    metric: str = "reconstruction"
    held_out: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mask_ratio < 1:
            raise ValueError(f"mask_ratio must be above 0 and below 1, got {self.mask_ratio}; MAE's is 0.75")
        if self.held_out is not None and self.held_out < 1:
            raise ValueError(f"held_out must be at least 1, or None for all test images, got {self.held_out}")

    def create_task(self, data: Path | None = None) -> MaskedImages:
        return MaskedImages(self, datasets.load(self.dataset, data))


class MaskedImages(ImageTask):
    """Masked-image pre-training as the training loop sees it."""

    recipe: MaskedRecipe

    def __init__(self, recipe: MaskedRecipe, data: Images, device: torch.device | str | None = None) -> None:
        super().__init__(recipe, data, device, recipe.held_out)
        self.metric, self.higher_is_better = METRICS[recipe.metric]
        side, patch = data.train.size, MODELS[recipe.model]["patch_size"]
        if side % patch:
            raise ValueError(f"{recipe.model} needs images whose side is a multiple of {patch}, got {side}")
        self.patch, self.patches = patch, (side // patch) ** 2

    def model(self, seed: int) -> nn.Module:
        """The recipe's network, on the device; torch's global random state stays as it is."""
        with needs("transformers", "transformers"):
            from transformers import ViTMAEForPreTraining

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model: nn.Module = ViTMAEForPreTraining(self._config(self.recipe.mask_ratio))
            initialise(model)
        return model.to(self.device)

    def losses(
        self,
        model: nn.Module,
        batch: tuple[Tensor, Tensor],
        generator: torch.Generator,
        rows: Tensor | None = None,
    ) -> Tensor:
        """One loss per image, randomly augmented and masked, in fp32."""
        images = self._augment(batch[0].to(self.device, non_blocking=True), generator)
        masks = torch.rand(len(images), self.patches, generator=generator)
        return self._losses(model, *take_rows((images, masks), rows))

    @torch.inference_mode()
    def evaluate(self, model: nn.Module) -> float:
        """The metric on the held-out images."""
        model.eval()
        return self._accuracy(model) if self.recipe.metric == "probe" else self._error(model)

    @torch.inference_mode()
    def further(self, model: nn.Module) -> list[Measure]:
        """The metric that the recipe does not name."""
        model.eval()
        if self.recipe.metric == "probe":
            return [Measure(METRICS["reconstruction"][0], self._error(model), False)]
        return [Measure(METRICS["probe"][0], self._accuracy(model), True)]

    def features(self, model: nn.Module, data: InMemory | Decoded) -> tuple[Tensor, Tensor]:
        """The encoder's features of whole images, averaged over their patches, and the labels."""
        encoder, order = self._encoder(model), torch.arange(self.patches, dtype=torch.float32, device=self.device)
        features, labels = [], []
        for images, label in self._batches(data):
            pixels = self._standardise(images.to(self.device))
            # Patches are sorted by the noise: rising noise keeps their order, and no random numbers are drawn.
            tokens = encoder(pixels, noise=order.expand(len(pixels), -1)).last_hidden_state
            features.append(tokens[:, 1:].mean(1))
            labels.append(label)
        return torch.cat(features).cpu(), torch.cat(labels)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _losses(self, model: nn.Module, images: Tensor, noise: Tensor) -> Tensor:
        """Losses where the patches with the highest ``noise`` are hidden."""
        pixels = self._standardise(images)
        with autocast(self.recipe.precision, self.device):
            output = model(pixels, noise=noise.to(self.device))
        target = masked.patches(pixels, self.patch, normalised=self.recipe.normalised)
        return masked.reconstruction(output.logits, target, output.mask)

    def _error(self, model: nn.Module) -> float:
        generator = torch.Generator().manual_seed(0)  # every model fills in the same masks
        total = 0.0
        for images, _ in self._batches(self.test):
            noise = torch.rand(len(images), self.patches, generator=generator)
            total += self._losses(model, images.to(self.device), noise).double().sum().item()
        return total / len(self.test)

    def _accuracy(self, model: nn.Module) -> float:
        train, labels = self.features(model, self._unaugmented_images())
        test, expected = self.features(model, self.test)
        guesses = linear_probe(train, labels, test, len(self.data.classes))
        return 100 * (guesses == expected).double().mean().item()

    def _encoder(self, model: nn.Module) -> nn.Module:
        """The model's encoder with its weights, hiding no patches."""
        from transformers import ViTMAEModel

        with torch.device("meta"):  # a shell: no memory, no random numbers
            encoder: nn.Module = ViTMAEModel(self._config(mask_ratio=0.0))
        encoder.load_state_dict(model.get_submodule("vit").state_dict(), assign=True)
        return encoder.eval()

    def _config(self, mask_ratio: float) -> Any:
        from transformers import ViTMAEConfig

        return ViTMAEConfig(
            image_size=self.data.train.size,
            num_channels=len(self.data.mean),
            mask_ratio=mask_ratio,
            norm_pix_loss=self.recipe.normalised,
            **MODELS[self.recipe.model],
        )


@torch.no_grad()
def initialise(model: Any) -> None:
    """Set the weights of a new ``ViTMAEForPreTraining`` that transformers 5.22 leaves at zero or too small.

    The position embeddings are frozen: at zero, the model would never learn where a patch is. Tokens and the projection
    of patches start as in MAE's own code.
    """
    for positions in (model.vit.embeddings.position_embeddings, model.decoder.decoder_pos_embed):
        positions.copy_(position_embedding(math.isqrt(positions.shape[1] - 1), positions.shape[2]))
    for token in (model.vit.embeddings.cls_token, model.decoder.mask_token):
        nn.init.normal_(token, std=_TOKEN_STD)
    nn.init.xavier_uniform_(model.vit.embeddings.patch_embeddings.projection.weight.flatten(1))


def position_embedding(side: int, width: int) -> Tensor:
    """MAE's fixed position embedding of patches in a square: sines and cosines of the column, then of the row.

    The first row, of zeros, is for the class token.
    """
    rates = 1 / 10_000 ** (torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    angles = torch.arange(side, dtype=torch.float64).outer(rates)
    waves = torch.cat([angles.sin(), angles.cos()], 1)
    columns, rows = waves.expand(side, side, -1), waves[:, None].expand(side, side, -1)
    by_patch = torch.cat([columns, rows], -1).flatten(0, 1)
    return torch.cat([torch.zeros(1, width, dtype=torch.float64), by_patch]).float()


def linear_probe(train: Tensor, labels: Tensor, test: Tensor, classes: int) -> Tensor:
    """Guesses for ``test`` by a linear classifier learnt from ``train``: ridge regression on the classes.

    The solution is in closed form: nothing is drawn or iterated. Features are scaled to mean 0 and variance 1.

    >>> train, labels = torch.tensor([[0.0, 1.0], [0.2, 0.0], [1.0, 1.0], [0.8, 0.0]]), torch.tensor([0, 0, 1, 1])
    >>> linear_probe(train, labels, torch.tensor([[0.1, 0.5], [0.9, 0.5]]), classes=2)
    tensor([0, 1])
    """
    deviation, mean = torch.std_mean(train.double(), 0, correction=0)
    deviation = deviation.clamp(min=torch.finfo(torch.float32).tiny)
    train, test = ((part.double() - mean) / deviation for part in (train, test))
    targets = nn.functional.one_hot(labels, classes).double()
    share = targets.mean(0)
    gram = train.T @ train / len(train) + _RIDGE * torch.eye(train.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(gram, train.T @ (targets - share) / len(train))
    guesses: Tensor = (test @ weights + share).argmax(1)
    return guesses
