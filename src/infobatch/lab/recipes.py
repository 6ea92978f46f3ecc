"""The recipes by name: the paper's set-ups, and small recipes that two CPU cores train in minutes."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

from ..core.checks import check_choice
from .recipe import Recipe
from .tasks.classification import ClassificationRecipe
from .tasks.detection import DetectionRecipe
from .tasks.diffusion import DiffusionRecipe
from .tasks.instructions import InstructionRecipe
from .tasks.masked import MaskedRecipe
from .tasks.segmentation import SegmentationRecipe
from .tasks.texts import TextRecipe

KINDS: dict[str, type[Recipe]] = {
    kind.task: kind
    for kind in (
        ClassificationRecipe,
        SegmentationRecipe,
        MaskedRecipe,
        DiffusionRecipe,
        InstructionRecipe,
        DetectionRecipe,
        TextRecipe,
    )
}

_PICTURES = ClassificationRecipe(
    *("fashion-mnist", "pooled-cnn", 24, 64),
    schedule="warmup20-cosine",
    samples=8000,
    judge_every=24,
    augment="shift-2-flip",
    judge_rest=True,
)
_DIGITS = ClassificationRecipe(
    *("mnist", "residual-mlp", 20, 100),
    lr=0.2,
    schedule="warmup20-cosine",
    samples=12_000,
    judge_every=20,
    augment="shift-1",
    pool=2,
    judge_rest=True,
)

# Sec. 4.1 and appendix A of the paper. The small recipes let the network fit its data, as the paper's do: without
# augmentation, with many weights. A network that cannot fit its data leaves little to prune (results/README.md).
RECIPES: dict[str, dict[str, Recipe]] = {
    "fashion-mnist": {
        "small": ClassificationRecipe("fashion-mnist", "strided-cnn", 20, lr=0.2, augment="flip"),
    },
    # The recipe of `infobatch demo`: seconds a run.
    "demo": {
        "small": replace(
            _DIGITS,
            dataset="fashion-mnist-10k",
            model="strided-cnn",
            epochs=24,
            samples=5000,
            lr=0.1,
            judge_every=8,
        ),
    },
    # Rulers: small enough for many seeds and judged by 58,000 images or more, so that they tell methods apart. For
    # AdamW: --set optimizer=adamw --set lr=0.004 (0.01 for the digits).
    "fashion-mnist-8k": {"small": _PICTURES},
    "cifar10-12k": {
        "small": replace(_PICTURES, dataset="cifar10", samples=12_000, epochs=30, judge_every=30, pool=2),
    },
    "mnist-12k": {"small": _DIGITS},
    "mnist-6k": {"small": replace(_DIGITS, samples=6000, epochs=80, judge_every=80)},
    # Spoken digits, judged by speakers who are not heard in training; 8 × 8 pixels keep it from being too easy.
    "audiomnist": {
        "small": replace(_DIGITS, dataset="audiomnist", samples=24_000, lr=0.1, pool=4, judge_rest=False),
    },
    # Fine-tuning of pretrained weights that come as packages (lab/tasks/pretrained.py).
    "banking77": {
        "small": TextRecipe(
            *("banking77", "minilm", 6, 16, "adamw"),
            lr=5e-4,
            weight_decay=0.01,
            schedule="warmup20-cosine",
            clip=1.0,
            samples=1000,
            judge_every=6,
            max_tokens=24,
        ),
    },
    "efficientnet-lite0": {
        "small": ClassificationRecipe(
            *("cifar100", "efficientnet-lite0", 8, 32, "adamw"),
            lr=1e-3,
            weight_decay=0.01,
            schedule="warmup20-cosine",
            samples=2500,
            judge_every=8,
            augment="flip",
        ),
    },
    # timm's options together: inputs are mixed in pairs, and the average of the weights is judged.
    "fashion-mnist-mixed": {
        "small": ClassificationRecipe(
            *("fashion-mnist", "conv-mlp", 20),
            lr=0.1,
            samples=20_000,
            augment="flip",
            label_smoothing=0.1,
            random_erase=0.25,
            mixup=0.2,
            cutmix=1.0,
            ema=0.99,
        ),
    },
    "cifar10": {
        "small": ClassificationRecipe("cifar10", "conv-mlp", 15, lr=0.1, augment="none"),
        "paper": ClassificationRecipe("cifar10", "resnet18", 200, lr=0.2, label_smoothing=0.1, precision="fp16"),
    },
    "cifar100": {
        "small": ClassificationRecipe("cifar100", "conv-mlp", 15, lr=0.1, augment="none"),
        "paper": ClassificationRecipe("cifar100", "resnet18", 200, lr=0.05, label_smoothing=0.1, precision="fp16"),
    },
    "tiny-imagenet": {
        "paper": ClassificationRecipe("tiny-imagenet", "resnet50", 200, schedule="cosine", precision="fp16"),
    },
    "imagenet": {
        "paper": ClassificationRecipe("imagenet", "resnet50", 90, 1024, "lars", lr=6.4, precision="fp16", workers=8),
    },
    # The paper does not print how it trained ResNet-50 by timm: this is timm's A3 with the options the paper names.
    "imagenet-timm": {
        "paper": ClassificationRecipe(
            *("imagenet", "resnet50", 100, 2048, "lamb"),
            lr=8e-3,
            weight_decay=0.02,
            schedule="warmup-cosine",
            precision="fp16",
            workers=8,
            label_smoothing=0.1,
            random_erase=0.25,
            mixup=0.1,
            cutmix=1.0,
            ema=0.9999,
        ),
    },
    # Appendix A.3, but for its AutoAugment; no epoch is pruned before the 20th, as in the authors' code.
    "imagenet-swin": {
        "paper": ClassificationRecipe(
            *("imagenet", "swin_tiny_patch4_window7_224", 350, 2048, "adamw"),
            lr=2e-3,
            weight_decay=0.05,
            schedule="warmup-cosine",
            precision="fp16",
            workers=8,
            warmup=20,
            label_smoothing=0.1,
            random_erase=0.3,
            cutmix=1.0,
        ),
    },
    # From scratch, as He et al. (2022) train their baseline for MAE; the paper itself pre-trains: the task masked.
    "imagenet-vit": {
        "paper": ClassificationRecipe(
            *("imagenet", "vit_base_patch16_224", 300, 4096, "adamw"),
            lr=1.6e-3,
            weight_decay=0.3,
            schedule="warmup-cosine",
            precision="fp16",
            workers=8,
            label_smoothing=0.1,
            mixup=0.8,
            cutmix=1.0,
            ema=0.9999,
        ),
    },
    "camvid": {
        "small": SegmentationRecipe("camvid", "upernet-resnet18-narrow", 33, 8, lr=0.03, size=72, crop=64),
    },
    "ade20k": {
        "paper": SegmentationRecipe(
            *("ade20k", "upernet-resnet50", 63, 16),
            lr=0.01,
            schedule="poly",
            smallest=0.5,
            largest=2.0,
            dropout=0.1,
            pretrained=True,
            workers=8,
        ),
    },
    "masked": {
        "small": MaskedRecipe(
            *("fashion-mnist", "vit-mae-micro", 48, 16, "adamw"),
            lr=3e-3,
            weight_decay=0.05,
            samples=1500,
            augment="none",
            normalised=False,
            metric="probe",
            judge_every=8,
        ),
        "paper": MaskedRecipe(
            *("imagenet", "vit-mae-base", 300, 1024, "adamw"),
            lr=6e-4,
            weight_decay=0.05,
            schedule="warmup-cosine",
            precision="fp16",
            workers=8,
        ),
    },
    "diffusion": {
        "small": DiffusionRecipe(
            *("cifar10", "unet-micro", 36, 16, "adamw"),
            lr=2e-3,
            weight_decay=0.01,
            samples=1500,
            held_out=1000,
            judge_every=12,
        ),
        "paper": DiffusionRecipe(
            *("imagefolder", "unet-ffhq", 444, 21, "adamw"),
            lr=4.2e-5,
            weight_decay=0.01,
            schedule="constant",
            workers=8,
            autoencoder="CompVis/ldm-celebahq-256:vqvae",
        ),
    },
    # Table 9. The small one trains adapters on a base made before; "paper" is Stanford Alpaca's set-up.
    "alpaca": {
        "small": InstructionRecipe(
            *("alpaca", "llama-tiny", 10, 32, "adamw"),
            lr=1e-3,
            weight_decay=0.0,
            clip=1.0,
            samples=2000,
            template="short",
            max_tokens=64,
            held_out=500,
            base_rows=10_000,
            base_epochs=2,
            lora=8,
        ),
        "paper": InstructionRecipe(
            *("alpaca", "hf:huggyllama/llama-7b", 3, 128, "adamw"),
            lr=2e-5,
            weight_decay=0.0,
            schedule="warmup-cosine",
            precision="bf16",
            rows="dq_subsets.json:dq_k5_1k",
        ),
    },
    "detection": {
        "small": DetectionRecipe(
            *("fashion-scenes", "deformable-detr-tiny", 30, 16, "adamw"),
            lr=2e-3,
            judge_every=5,
            weight_decay=1e-4,
            clip=1.0,
            scenes=1500,
            held_out=300,
        ),
    },
}


def get(name: str, preset: str = "small") -> Recipe:
    """A recipe by its name, or from a ``.json`` file with a recipe's keys and their values."""
    if name.endswith(".json"):
        return _from_file(Path(name))
    check_choice("recipe", name, RECIPES)
    check_choice(f"preset of {name}", preset, RECIPES[name])
    return RECIPES[name][preset]


def _from_file(path: Path) -> Recipe:
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold one JSON object, the recipe's keys and their values")
    task = values.pop("task", ClassificationRecipe.task)
    check_choice(f"task of {path}", task, KINDS)
    kind = KINDS[task]
    for key in values:
        check_choice(f"a key of {path}", key, ["task", *(field.name for field in fields(kind))])
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error
