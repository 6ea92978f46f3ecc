"""Image data sets by name, from a folder that the user names or from where they usually are."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import fashion, folders
from .folders import Lazy
from .source import Source

HUGGING_FACE = "hf:"  # prefix of a data set that the package datasets reads: hf:<name on the hub or folder>
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_SMALL = 64  # Hugging Face pictures with sides of up to this many pixels are held in memory


@dataclass(frozen=True)
class ImageSplit:
    """Images as bytes, N × height × width × channels, and their labels 0, 1, 2, …"""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]

    @property
    def size(self) -> int:
        """Pixels along a side."""
        return int(self.images.shape[1])

    def __len__(self) -> int:
        return len(self.labels)

    def head(self, count: int | None) -> ImageSplit:
        """The first ``count`` samples; None for all."""
        return ImageSplit(self.images[:count], self.labels[:count])

    def after(self, count: int, more: ImageSplit) -> ImageSplit:
        """The samples after the first ``count``, followed by ``more``."""
        images, labels = (self.images[count:], more.images), (self.labels[count:], more.labels)
        return ImageSplit(np.concatenate(images), np.concatenate(labels))

    def average_pool(self, side: int) -> ImageSplit:
        """Smaller images: each pixel is the mean of ``side`` × ``side`` pixels.

        >>> images = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)
        >>> ImageSplit(images, np.zeros(1)).average_pool(2).images.ravel().tolist()
        [2, 4, 10, 12]
        """
        count, height, width, channels = self.images.shape
        if height % side or width % side:
            raise ValueError(f"pool must divide the images' sides, {height} and {width} pixels, got {side}")
        cells = self.images.reshape(count, height // side, side, width // side, side, channels)
        return ImageSplit(np.rint(cells.mean((2, 4), dtype=np.float32)).astype(np.uint8), self.labels)


@dataclass(frozen=True)
class Images:
    """A data set: ``mean`` and ``std`` of a pixel by channel, scaled to [0, 1], over the original training images.

    Small images are arrays in memory; large ones are read when they are needed.
    """

    name: str
    train: ImageSplit | Lazy
    test: ImageSplit | Lazy
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[str, ...]


# The result of reading a data set: training data, test data, the names of the classes.
_Read = tuple[ImageSplit | Lazy, ImageSplit | Lazy, tuple[str, ...]]


@dataclass(frozen=True)
class _ImageSource(Source):
    """A source with a function that reads its data set from the file or folder that was found."""

    read: Callable[[Path], _Read]
    mean: tuple[float, ...]
    std: tuple[float, ...]


# -- arrays ---------------------------------------------------------------------------------------------------------


def _allow_arrays(read: Callable[[Path], _Read], classes: tuple[str, ...]) -> Callable[[Path], _Read]:
    """A reader of the original files that also reads an ``.npz`` file of arrays made from them."""

    def either(path: Path) -> _Read:
        return (*_read_arrays(path, len(classes)), classes) if path.suffix == ".npz" else read(path)

    return either


def _read_arrays(path: Path, classes: int) -> tuple[ImageSplit, ImageSplit]:
    """Read ``train_x, train_y, test_x, test_y``: N × height × width × channels bytes, and labels."""
    with np.load(path) as arrays:
        try:
            train, test = (ImageSplit(arrays[f"{s}_x"], arrays[f"{s}_y"].astype(np.int64)) for s in ("train", "test"))
        except KeyError as error:
            raise ValueError(f"{path} must hold the arrays train_x, train_y, test_x and test_y: {error}") from None
    for split in (train, test):
        if split.images.ndim != 4 or split.images.dtype != np.uint8 or len(split.images) != len(split.labels):
            raise ValueError(
                f"{path}: images must be bytes of shape (N, height, width, channels) with N labels, got "
                f"{split.images.dtype} {split.images.shape} and {len(split.labels)} labels"
            )
        if split.labels.min() < 0 or split.labels.max() >= classes:
            raise ValueError(
                f"{path}: labels must be from 0 to {classes - 1}, got {split.labels.min()} to {split.labels.max()}"
            )
    return train, test


def _make_idx_reader(classes: tuple[str, ...]) -> Callable[[Path], _Read]:
    """A reader of MNIST's four files; Fashion-MNIST has the same format."""

    def read(path: Path) -> _Read:
        return *_to_splits(fashion.load_original(path.parent)), classes

    return read


def _to_splits(data: fashion.Fashion) -> tuple[ImageSplit, ImageSplit]:
    train, test = (
        ImageSplit(split.images[..., None], split.labels.astype(np.int64)) for split in (data.train, data.test)
    )
    return train, test


def _read_audiomnist(path: Path) -> _Read:
    """Spoken digits as log-mel pictures; no speaker is in both training and test data."""
    with np.load(path) as arrays:
        train, test = (
            ImageSplit(arrays[f"{split}_x"][..., None], arrays[f"{split}_y"].astype(np.int64))
            for split in ("train", "test")
        )
    return train, test, _DIGITS


# -- CIFAR ----------------------------------------------------------------------------------------------------------


def _make_cifar_reader(
    train: tuple[str, ...], test: str, labels: bytes, classes: tuple[str, ...]
) -> Callable[[Path], _Read]:
    """A reader of the original archive or of the folder unpacked from it."""

    def read(path: Path) -> _Read:
        files = _read_files(path, (*train, test))

        def split(names: tuple[str, ...]) -> ImageSplit:
            batches = [_ArrayUnpickler.loads(files[name]) for name in names]
            pixels = np.concatenate([np.asarray(batch[b"data"], np.uint8) for batch in batches])
            images = np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            return ImageSplit(images, np.concatenate([np.asarray(batch[labels], np.int64) for batch in batches]))

        return split(train), split((test,)), classes

    return read


def _read_files(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The files of these names in a folder or in a ``.tar.gz`` archive."""
    if path.is_dir():
        contents = {name: (path / name).read_bytes() for name in names if (path / name).exists()}
    else:
        with tarfile.open(path) as archive:
            members = {os.path.basename(member.name): member for member in archive if member.isfile()}
            opened = {name: archive.extractfile(members[name]) for name in names if name in members}
            contents = {name: file.read() for name, file in opened.items() if file is not None}
    if missing := [name for name in names if name not in contents]:
        raise FileNotFoundError(f"{path} is not complete, it lacks {', '.join(missing)}: get it again")
    return contents


class _ArrayUnpickler(pickle.Unpickler):
    """Reads CIFAR's pickles, which hold only arrays; a file that names anything else is refused."""

    # The files were written by Python 2 with the numpy of its day, whose internal modules have moved since.
    _ALLOWED = (("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"))

    def find_class(self, module: str, name: str) -> object:
        module = module.replace("numpy._core", "numpy.core")
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(
                f"a CIFAR file must not need {module}.{name}: this file is not the original, get it again"
            )
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)

    @classmethod
    def loads(cls, content: bytes) -> dict[bytes, object]:
        batch: dict[bytes, object] = cls(io.BytesIO(content), encoding="bytes").load()
        return batch


# -- pictures -------------------------------------------------------------------------------------------------------


def _read_tiny_imagenet(path: Path) -> _Read:
    """Read the original layout: train/<wnid>/images/*.JPEG, and a list of the labels of val/images/*.JPEG."""
    folder = path.parent
    wnids = path.read_text(encoding="utf-8").split()
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    words = dict(line.split("\t", 1) for line in (folder / "words.txt").read_text(encoding="utf-8").splitlines())
    listed = [line.split("\t") for line in (folder / "val" / "val_annotations.txt").read_text("utf-8").splitlines()]
    train = [
        (f"train/{wnid}/images/{file.name}", label_of[wnid])
        for wnid in wnids
        for file in sorted((folder / "train" / wnid / "images").iterdir())
    ]
    test = [(f"val/images/{name}", label_of[wnid]) for name, wnid, *_ in listed]
    splits = read_all(*(folders.files(folder, *zip(*pairs, strict=True)) for pairs in (train, test)))
    return *splits, tuple(words[wnid].partition(",")[0] for wnid in wnids)


def read_all(train: Lazy, test: Lazy) -> tuple[ImageSplit, ImageSplit]:
    """Decode all pictures into memory: with one channel if all of them are grey, else with three."""
    with ThreadPoolExecutor() as pool:  # Pillow decodes without holding the interpreter's lock
        pictures = [list(pool.map(split.picture, range(len(split)))) for split in (train, test)]
    every = [picture for split in pictures for picture in split]
    if len(sizes := {picture.size for picture in every}) > 1:
        raise ValueError(f"images in memory must be of one size, got {', '.join(map(str, sorted(sizes)[:5]))}, …")
    mode = "L" if all(picture.mode in ("1", "L") for picture in every) else "RGB"
    first, second = (np.stack([np.asarray(picture.convert(mode)) for picture in split]) for split in pictures)
    if mode == "L":
        first, second = first[..., None], second[..., None]
    return ImageSplit(first, train.labels), ImageSplit(second, test.labels)


def _read_class_folders(path: Path) -> _Read:
    return folders.read_class_folders(path.parent)


def _load_hugging_face(name: str) -> Images:
    """Small images are held in memory and normalised by their own mean and deviation, large ones by ImageNet's."""
    train, test, classes = folders.rows(name.removeprefix(HUGGING_FACE))
    if max(train.picture(0).size) > _SMALL:
        return Images(name, train, test, IMAGENET_MEAN, IMAGENET_STD, classes)
    small, small_test = read_all(train, test)
    mean, std = pixel_statistics(small.images)
    return Images(name, small, small_test, mean, std, classes)


def pixel_statistics(images: NDArray[np.uint8]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of a pixel by channel, scaled to [0, 1]; from counts, without a copy as floats."""
    values = np.arange(256) / 255
    means, stds = [], []
    for channel in range(images.shape[3]):
        share = np.bincount(images[..., channel].ravel(), minlength=256) / images[..., channel].size
        means.append(float(share @ values))
        stds.append(float(np.sqrt(share @ (values - means[-1]) ** 2)))
    return tuple(means), tuple(stds)


# -- by name --------------------------------------------------------------------------------------------------------

_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100_WORDS = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
"""
_CIFAR100 = tuple(_CIFAR100_WORDS.split())

_DIGITS = tuple("0123456789")

SOURCES: dict[str, _ImageSource] = {
    "mnist": _ImageSource(
        ("train-images-idx3-ubyte.gz",),
        "http://yann.lecun.com/exdb/mnist (the four *-ubyte.gz files)",
        _make_idx_reader(_DIGITS),
        (0.1307,),
        (0.3081,),
        folders=("mnist", "MNIST/raw"),
    ),
    "audiomnist": _ImageSource(
        ("audiomnist.npz",),
        "https://github.com/soerenab/AudioMNIST, as 32 × 32 log-mel pictures: train_x, train_y, test_x, test_y",
        _read_audiomnist,
        (0.5702,),
        (0.1935,),
    ),
    "fashion-mnist": _ImageSource(
        ("train-images-idx3-ubyte.gz", "fashion-mnist.npz"),
        "https://github.com/zalandoresearch/fashion-mnist (the four *-ubyte.gz files)",
        _allow_arrays(_make_idx_reader(fashion.CLASSES), fashion.CLASSES),
        (fashion.MEAN,),
        (fashion.STD,),
        folders=("fashion-mnist", "FashionMNIST/raw"),
    ),
    "cifar10": _ImageSource(
        ("cifar10.npz", "cifar-10-batches-py", "cifar-10-python.tar.gz"),
        "https://www.cs.toronto.edu/~kriz/cifar.html (cifar-10-python.tar.gz)",
        _allow_arrays(
            _make_cifar_reader(tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", b"labels", _CIFAR10),
            _CIFAR10,
        ),
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
    ),
    "cifar100": _ImageSource(
        ("cifar100.npz", "cifar-100-python", "cifar-100-python.tar.gz"),
        "https://www.cs.toronto.edu/~kriz/cifar.html (cifar-100-python.tar.gz)",
        _allow_arrays(_make_cifar_reader(("train",), "test", b"fine_labels", _CIFAR100), _CIFAR100),
        (0.5071, 0.4865, 0.4409),
        (0.2673, 0.2564, 0.2762),
    ),
    "tiny-imagenet": _ImageSource(
        ("wnids.txt",),
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip, unpack it (the folder tiny-imagenet-200)",
        _read_tiny_imagenet,
        (0.4802, 0.4481, 0.3975),
        (0.2770, 0.2691, 0.2821),
        folders=("tiny-imagenet-200",),
    ),
    "imagenet": _ImageSource(
        ("train",),
        "https://www.image-net.org/download.php, unpack it as train/<class>/<image> and val/<class>/<image>",
        _read_class_folders,
        IMAGENET_MEAN,
        IMAGENET_STD,
        folders=("imagenet", "imagenet-1k", "ILSVRC2012"),
    ),
    "imagefolder": _ImageSource(
        ("train",),
        "your own folder: put your images into train/<class>/<image> and val/<class>/<image>",
        _read_class_folders,
        IMAGENET_MEAN,
        IMAGENET_STD,
    ),
}
PACKAGED = "fashion-mnist-10k"  # comes with the package
NAMES = (*SOURCES, PACKAGED)


def load(name: str, folder: str | Path | None = None) -> Images:
    """Read the data set ``name`` from ``folder``, or from where data sets usually are.

    ``hf:<name or folder>`` is read by the package ``datasets``, from the folder or from its own cache.
    """
    if name.startswith(HUGGING_FACE):
        if folder is not None:
            raise ValueError(f"{name} names its own place: leave --data {folder} out, or write hf:{folder}")
        return _load_hugging_face(name)
    if name == PACKAGED:
        return Images(name, *_to_splits(fashion.load()), (fashion.MEAN,), (fashion.STD,), fashion.CLASSES)
    source = SOURCES[name]
    train, test, classes = source.read(source.find(name, folder))
    return Images(name, train, test, source.mean, source.std, classes)
