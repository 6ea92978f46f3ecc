"""Images that are read when they are needed: files of a folder, or rows of a Hugging Face data set."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from ...integrations import needs

if TYPE_CHECKING:
    from PIL import Image

SIZE = 224
# ImageNet's usual settings: the share and the proportions of a random cut, and the margin of a test cut.
_SHARE, _PROPORTIONS, _TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
_MARGIN = 256 / 224
_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff")
_TEST_SPLITS = ("test", "validation", "valid", "val")


@dataclass(frozen=True, eq=False)
class Lazy(ABC):
    """Pictures of any size, read one by one and cut to ``size`` × ``size``, and their labels 0, 1, 2, …"""

    labels: NDArray[np.int64]
    size: int = field(default=SIZE, kw_only=True)

    def __len__(self) -> int:
        return len(self.labels)

    def head(self, count: int | None) -> Lazy:
        """The first ``count`` samples; None for all."""
        return replace(self, labels=self.labels[:count])

    @abstractmethod
    def picture(self, index: int) -> Image.Image:
        """Read one picture."""


@dataclass(frozen=True, eq=False)
class Files(Lazy):
    """Image files. Their names are one array: every worker that reads a list of a million strings would copy it."""

    folder: Path
    names: NDArray[np.bytes_]

    def picture(self, index: int) -> Image.Image:
        return open_picture(self.folder / os.fsdecode(self.names[index]))


@dataclass(frozen=True, eq=False)
class Rows(Lazy):
    """Pictures in the rows of a data set of the package ``datasets``."""

    table: Any
    column: str

    def picture(self, index: int) -> Image.Image:
        picture: Image.Image = self.table[index][self.column]
        return picture


# -- where they come from -------------------------------------------------------------------------------------------


def read_class_folders(folder: Path, names: tuple[str, ...] = ("train", "val")) -> tuple[Files, Files, tuple[str, ...]]:
    """Training and test images of ``folder/<train or val>/<class>/…``, at any depth, and the names of the classes."""
    train, test = (folder / name for name in names)
    classes = tuple(sorted(place.name for place in train.iterdir() if place.is_dir()))
    if not classes:
        raise ValueError(f"{train} must hold one folder of images per class; it holds no folder")
    if not test.is_dir():
        raise FileNotFoundError(f"{test} is missing: it must hold one folder of test images per class, as {train} does")
    extra = sorted({place.name for place in test.iterdir() if place.is_dir()} - set(classes))
    if extra:
        raise ValueError(f"{test} holds classes that {train} does not: {', '.join(extra[:5])}")
    return _label_files(train, classes), _label_files(test, classes), classes


def _label_files(folder: Path, classes: tuple[str, ...]) -> Files:
    labelled = [(name, label) for label, kind in enumerate(classes) for name in _images(folder, kind)]
    if not labelled:
        raise ValueError(
            f"{folder} holds no image in a folder of its class: it must be {folder}/<class>/<image>, where an image "
            f"ends in one of {' '.join(_ENDINGS)}"
        )
    return files(folder, *zip(*labelled, strict=True))


def files(folder: Path, names: tuple[str, ...], labels: tuple[int, ...]) -> Files:
    """Image files in ``folder``, by their names relative to it."""
    return Files(np.array(labels, np.int64), folder, np.array([os.fsencode(name) for name in names]))


def _images(folder: Path, kind: str) -> list[str]:
    """The image names in the folder ``kind``, relative to ``folder``, in the same order on every machine."""
    paths = []
    for place, _, names in os.walk(folder / kind, followlinks=True):
        inside = os.path.relpath(place, folder)
        paths += [os.path.join(inside, name) for name in names if name.lower().endswith(_ENDINGS)]
    return sorted(paths)


def rows(name: str) -> tuple[Rows, Rows, tuple[str, ...]]:
    """Training and test rows of a data set on the Hugging Face hub or in a folder, and the names of the classes."""
    table = _table(name)
    splits = list(table) if isinstance(table, dict) else ["no named splits"]
    if "train" not in splits:
        raise ValueError(f"hf:{name} must have a split named train and a test split, got {', '.join(splits)}")
    image, label = _columns(name, table["train"].features)
    train = Rows(_labels(table["train"], label), table["train"], image)
    for split in (split for split in _TEST_SPLITS if split in splits):
        labels = _labels(table[split], label)
        if len(labels) and labels.min() >= 0:  # hidden labels are -1
            return train, Rows(labels, table[split], image), tuple(table["train"].features[label].names)
    raise ValueError(
        f"hf:{name} must have a test split with labels, named one of {', '.join(_TEST_SPLITS)}; it has "
        f"{', '.join(splits)}. Make one, for example with train_test_split, and save it with save_to_disk"
    )


def _table(name: str) -> Any:
    try:
        import datasets
    except ModuleNotFoundError as error:
        missing = f"hf:{name} needs the package datasets, which is not installed: pip install datasets"
        raise ImportError(missing) from error

    if Path(name, "dataset_dict.json").exists() or Path(name, "dataset_info.json").exists():
        return datasets.load_from_disk(name)
    try:
        return datasets.load_dataset(name)
    except OSError as error:
        raise FileNotFoundError(
            f"hf:{name} is neither a folder written by save_to_disk nor in the cache of the package datasets, and it "
            f'could not be fetched. Where there is a network, datasets.load_dataset("{name}") fetches it; then '
            f"save_to_disk(FOLDER) and hf:FOLDER use it anywhere. ({error})"
        ) from error


def _labels(table: Any, column: str) -> NDArray[np.int64]:
    return np.asarray(table.select_columns([column]).with_format("numpy")[:][column], np.int64)


def _columns(name: str, features: Any) -> tuple[str, str]:
    """The columns of image and label, found by their types; among several of a type, by their usual names."""
    import datasets

    def pick_column(kind: type, usual: tuple[str, ...]) -> str:
        columns = [column for column, feature in features.items() if isinstance(feature, kind)]
        named = [column for column in usual if column in columns]
        if len(columns) != 1 and not named:
            have = ", ".join(f"{column}: {type(feature).__name__}" for column, feature in features.items())
            raise ValueError(
                f"hf:{name} must have one column of type {kind.__name__}, or one of them named {' or '.join(usual)}; "
                f"its columns are {have}. Change them with cast_column or rename_column, and save it with save_to_disk"
            )
        return (named or columns)[0]

    return pick_column(datasets.Image, ("image", "img")), pick_column(datasets.ClassLabel, ("label", "fine_label"))


def open_picture(path: Path) -> Image.Image:
    """Read the picture in a file."""
    with needs("PIL", "lab"):
        from PIL import Image

    try:
        with Image.open(path) as file:
            file.load()
            picture: Image.Image = file
            return picture
    except OSError as error:
        raise OSError(f"{path} cannot be read as an image: {error}") from error


# -- as tensors -----------------------------------------------------------------------------------------------------


class Decoded(Dataset[tuple[Tensor, Tensor]]):
    """Pictures as tensors of bytes, a batch at once, decoded and cut in the calling process: a worker in training.

    ``augment`` "crop-flip" takes a random cut of random size, mirrored or not; "flip" takes the middle, mirrored or
    not; "none" takes the middle. Random numbers come from the worker's seed, which the loader draws from its own
    generator for each epoch. Outside a worker there is no such seed and every batch gets the same random numbers:
    good for a look, not for training.
    """

    def __init__(self, source: Lazy, augment: str = "none") -> None:
        self.source, self.augment = source, augment
        self.labels = torch.from_numpy(source.labels)
        self._generator: torch.Generator | None = None

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        images, labels = self.__getitems__([index])
        return images[0], labels[0]

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        generator = self._get_generator()
        images = [self._tensor(self.source.picture(index).convert("RGB"), generator) for index in indices]
        return torch.stack(images), self.labels[indices]

    def _tensor(self, picture: Image.Image, generator: torch.Generator) -> Tensor:
        size = self.source.size
        picture = random_cut(picture, size, generator) if self.augment == "crop-flip" else middle_cut(picture, size)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
        mirrored = self.augment != "none" and torch.rand((), generator=generator) < 0.5
        return pixels.flip(2) if mirrored else pixels

    def _get_generator(self) -> torch.Generator:
        worker = get_worker_info()
        if worker is None:
            return torch.Generator().manual_seed(0)
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(worker.seed)
        return self._generator


def random_cut(picture: Image.Image, size: int, generator: torch.Generator) -> Image.Image:
    """A random cut of 8 to 100 % of the area and 3:4 to 4:3, resized: torchvision's RandomResizedCrop."""
    from PIL import Image

    width, height = picture.size
    low, high = map(math.log, _PROPORTIONS)
    for _ in range(_TRIES):
        share, proportion, x, y = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
        area = width * height * (_SHARE[0] + share * (_SHARE[1] - _SHARE[0]))
        aspect = math.exp(low + proportion * (high - low))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(x * (width - across + 1)), int(y * (height - down + 1))
            break
    else:  # a very long picture: take its middle
        across = min(width, round(height * _PROPORTIONS[1]))
        down = min(height, round(width / _PROPORTIONS[0]))
        left, top = (width - across) // 2, (height - down) // 2
    # Cut first, then resize: resizing with a box would mix in pixels from outside the box.
    return picture.crop((left, top, left + across, top + down)).resize((size, size), Image.Resampling.BILINEAR)


def middle_cut(picture: Image.Image, size: int) -> Image.Image:
    """The middle, after resizing the shorter side to 8/7 of ``size``: torchvision's Resize(256), CenterCrop(224)."""
    from PIL import Image

    width, height = picture.size
    short = round(size * _MARGIN)
    long = int(short * max(width, height) / min(width, height))
    width, height = (short, long) if width <= height else (long, short)
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + size, top + size))
