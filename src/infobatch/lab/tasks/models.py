"""Networks by name: small networks for the CPU, timm's for the paper's set-ups."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ...integrations import needs
from .pretrained import EFFICIENTNET_LITE0

# Our networks, and timm's that the paper trains; a ResNet gets another stem for small images.
_SWIN, _VIT = "swin_tiny_patch4_window7_224", "vit_base_patch16_224"
_OURS = ("small-cnn", "strided-cnn", "pooled-cnn", "conv-mlp", "residual-mlp", "resnet-compact", "resnet-narrow")
_PRETRAINED = "efficientnet-lite0"
NAMES = (*_OURS, "resnet18", "resnet50", _SWIN, _VIT, _PRETRAINED)
_SMALL_IMAGE = 64
_PATCH = {_SWIN: 4, _VIT: 16}
_DROP_PATH = {_SWIN: 0.2}  # the paper's, appendix A.3


def create(name: str, classes: int, channels: int, size: int, seed: int) -> nn.Module:
    """The network, initialised from ``seed``; torch's global random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if name == "small-cnn":
            return small_cnn(classes, channels, size)
        if name == "strided-cnn":
            return strided_cnn(classes, channels)
        if name == "pooled-cnn":
            return pooled_cnn(classes, channels)
        if name == "residual-mlp":
            return ResidualMLP(classes, channels * size * size)
        if name == "conv-mlp":
            return conv_mlp(classes, channels, size)
        if name == "resnet-compact":
            return CompactResNet(classes, channels)
        if name == "resnet-narrow":
            return CompactResNet(classes, channels, (8, 16, 32, 64))
        if name == _PRETRAINED:
            return FineTunedEfficientNet(classes, channels, size)
        return _from_timm(name, classes, channels, size)


def draws(name: str) -> bool:
    """Whether the network draws random numbers in training, from torch's global generator."""
    return name in _DROP_PATH


def small_cnn(classes: int, channels: int, size: int, width: int = 16) -> nn.Module:
    """Three convolutions with batch norm: 90 % on the Fashion-MNIST subset in under a minute on two CPU cores."""

    def block(inputs: int, outputs: int, pool: nn.Module) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), pool]

    layers = [
        *block(channels, width, nn.MaxPool2d(2)),
        *block(width, 2 * width, nn.MaxPool2d(2)),
        *block(2 * width, 4 * width, nn.AdaptiveMaxPool2d(1) if size != 28 else nn.MaxPool2d(7)),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width, classes))


def strided_cnn(classes: int, channels: int, width: int = 16) -> nn.Module:
    """Three convolutions that halve the image each: a quarter of the small CNN's cost, for sweeps of many runs."""
    return nn.Sequential(
        *_build_halving_layers(channels, width), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes)
    )


def pooled_cnn(classes: int, channels: int, width: int = 12) -> nn.Module:
    """Three convolutions, averaged over the quarters of the image: 23,000 weights that fit their data slowly."""

    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]

    layers = [*block(channels, width, 2), *block(width, 2 * width, 1), nn.MaxPool2d(2), *block(2 * width, 4 * width, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16 * width, classes))


def conv_mlp(classes: int, channels: int, size: int, width: int = 16, hidden: int = 256) -> nn.Module:
    """The strided CNN's convolutions and a hidden layer: many weights for few operations, so that it fits its data.

    It fits CIFAR-10 without augmentation in 15 epochs, each at a quarter of the compact ResNet's cost.
    """
    features = 4 * width * (-(-size // 8)) ** 2
    head = [nn.Linear(features, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, classes)]
    return _DoublesSingleSample(nn.Sequential(*_build_halving_layers(channels, width), nn.Flatten(), *head))


class _DoublesSingleSample(nn.Module):
    """Doubles a batch of one sample, with which a pruned epoch may end: batch norm on vectors needs two values."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, images: Tensor) -> Tensor:
        if self.training and len(images) == 1:
            return self.body(torch.cat([images, images])).mean(0, keepdim=True)  # type: ignore[no-any-return]
        return self.body(images)  # type: ignore[no-any-return]


class ResidualMLP(nn.Module):
    """A hidden layer and a residual block on the pixels: a run takes seconds."""

    def __init__(self, classes: int, pixels: int, width: int = 128) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Flatten(), nn.Linear(pixels, width, bias=False), nn.BatchNorm1d(width), nn.ReLU())
        self.block = nn.Sequential(
            nn.Linear(width, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width, bias=False),
            nn.BatchNorm1d(width),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        hidden = self.first(images)
        logits: Tensor = self.head(torch.relu(hidden + self.block(hidden)))
        return logits


def _build_halving_layers(channels: int, width: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for inputs, outputs, kernel in ((channels, width, 5), (width, 2 * width, 3), (2 * width, 4 * width, 3)):
        convolution = nn.Conv2d(inputs, outputs, kernel, 2, kernel // 2, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
    return layers


class CompactResNet(nn.Module):
    """A residual network small enough for two CPU cores; its stem halves the image.

    Use bf16 only on processors that have it: on a processor with AVX2 alone, a step took nine times as long as in fp32.
    """

    def __init__(self, classes: int, channels: int = 3, widths: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        first, *rest = widths
        self.stem = nn.Sequential(nn.Conv2d(channels, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU())
        blocks: list[nn.Module] = [_Residual(first, first, 1)]
        for inputs, outputs in zip(widths, rest, strict=False):
            blocks.append(_Residual(inputs, outputs, 2))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return logits


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.body(images) + self.skip(images))


class FineTunedEfficientNet(nn.Module):
    """EfficientNet-Lite0 with its ImageNet weights and a new last layer; small images are enlarged to 64 pixels."""

    def __init__(self, classes: int, channels: int, size: int) -> None:
        super().__init__()
        if channels != 3:
            raise ValueError(f"{_PRETRAINED} was trained on images in colour: channels must be 3, got {channels}")
        with needs("timm", "timm"):
            import timm

        self.body: Any = timm.create_model("tf_efficientnet_lite0", num_classes=1000)
        self._read_weights()
        self.body.reset_classifier(classes)
        self.enlarge = size < _SMALL_IMAGE

    def _read_weights(self) -> None:
        """Read the package's tensors, which have other names than timm's but the same order and shapes."""
        path = EFFICIENTNET_LITE0.path()
        saved = torch.load(path, map_location="cpu", weights_only=True)
        own = self.body.state_dict()
        if [tensor.shape for tensor in saved.values()] != [tensor.shape for tensor in own.values()]:
            raise ValueError(
                f"{path} does not hold the weights of timm's tf_efficientnet_lite0: install the package again"
            )
        self.body.load_state_dict(dict(zip(own, saved.values(), strict=True)))

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        if self.enlarge:
            images = interpolate(images, size=(_SMALL_IMAGE, _SMALL_IMAGE), mode="bilinear", align_corners=False)
        logits: Tensor = self.body(images)
        return logits


def _from_timm(name: str, classes: int, channels: int, size: int) -> nn.Module:
    with needs("timm", "timm"):
        import timm

    options: dict[str, Any] = {}
    if name in _PATCH:
        if size % _PATCH[name]:
            raise ValueError(
                f"{name} needs images whose side is a multiple of {_PATCH[name]}, got {size}: use a resnet"
            )
        options = {"img_size": size, "drop_path_rate": _DROP_PATH.get(name, 0.0)}
    model: Any = timm.create_model(name, num_classes=classes, in_chans=channels, **options)
    if name.startswith("resnet") and size <= _SMALL_IMAGE:
        model.conv1 = nn.Conv2d(channels, model.conv1.out_channels, 3, 1, 1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")  # as timm's own
        model.maxpool = nn.Identity()
    network: nn.Module = model
    return network
