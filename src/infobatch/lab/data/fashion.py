"""Fashion-MNIST: the subset that comes with the package, or the original files in a folder.

The subset holds the first 1,000 training images and the first 200 test images of each of the ten classes, in the order
of the original files. No image was picked by its content or altered.

Fashion-MNIST is by Xiao, Rasul and Vollgraf (2017), copyright Zalando SE, MIT licence: see
``LICENSE-fashion-mnist``.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

# Mean and standard deviation of a pixel, scaled to [0, 1], over the original 60,000 training images.
MEAN, STD = 0.2860, 0.3530


@dataclass(frozen=True)
class Split:
    """Images, 28 × 28 bytes each, and their labels 0 … 9."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.labels)

    def head(self, count: int) -> Split:
        """The first ``count`` samples."""
        return Split(self.images[:count], self.labels[:count])

    def per_class(self, count: int) -> Split:
        """The first ``count`` samples of every class, in their present order.

        >>> split = Split(np.zeros((5, 28, 28), np.uint8), np.array([3, 3, 1, 3, 1], np.uint8))
        >>> split.per_class(2).labels.tolist()
        [3, 3, 1, 1]
        """
        chosen = [np.flatnonzero(self.labels == label)[:count] for label in range(len(CLASSES))]
        index = np.sort(np.concatenate(chosen))
        return Split(self.images[index], self.labels[index])


@dataclass(frozen=True)
class Fashion:
    """A training and a test split."""

    train: Split
    test: Split


def load() -> Fashion:
    """The subset in the package: 10,000 training and 2,000 test images, as many of each class.

    >>> data = load()
    >>> data.train.images.shape, data.test.images.shape
    ((10000, 28, 28), (2000, 28, 28))
    """
    with (
        resources.files(__package__).joinpath("fashion-mnist.npz").open("rb") as file,
        np.load(file) as arrays,
    ):
        return Fashion(
            Split(arrays["train_images"], arrays["train_labels"]),
            Split(arrays["test_images"], arrays["test_labels"]),
        )


def load_original(folder: str | Path) -> Fashion:
    """All 60,000 and 10,000 images, from the four original ``*-ubyte.gz`` files in ``folder``."""

    def split(name: str) -> Split:
        images = _read_idx(Path(folder, f"{name}-images-idx3-ubyte.gz"))
        labels = _read_idx(Path(folder, f"{name}-labels-idx1-ubyte.gz"))
        if len(images) != len(labels):
            raise ValueError(f"{folder}: {len(images)} {name} images but {len(labels)} labels: get the files again")
        return Split(images, labels)

    return Fashion(split("train"), split("t10k"))


def write_subset(folder: str | Path, path: str | Path, train: int = 1000, test: int = 200) -> None:
    """Write the package's subset to ``path``, from the original files in ``folder``."""
    original = load_original(folder)
    chosen = Fashion(original.train.per_class(train), original.test.per_class(test))
    np.savez_compressed(
        path,
        train_images=chosen.train.images,
        train_labels=chosen.train.labels,
        test_images=chosen.test.images,
        test_labels=chosen.test.labels,
    )


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of bytes in an idx file: two zeros, type 8, the number of axes, their lengths, the data."""
    with gzip.open(path) as file:
        content = file.read()
    if content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path}: not an idx file of bytes (it begins with {content[:3]!r}): get it again")
    axes = content[3]
    shape: list[int] = np.frombuffer(content, ">u4", count=axes, offset=4).tolist()
    return np.array(np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape))
