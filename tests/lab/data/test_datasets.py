import gzip
import pickle
import shutil
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from infobatch.lab.data import datasets, fashion
from infobatch.lab.data.folders import files

RANDOM = np.random.default_rng(0)


# -- CIFAR, as its authors wrote it ---------------------------------------------------------------------------------


def python2_pickle(value):
    """What Python 2's cPickle wrote at protocol 2, with the numpy of its day: the form of CIFAR's files."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value):
    if isinstance(value, bytes):  # a str of Python 2
        return (b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))) + value
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if value is None:
        return b"N"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_python2, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(part) for pair in value.items() for part in pair) + b"u"
    assert value.dtype == np.uint8
    dtype = (
        b"cnumpy\ndtype\n" + _python2((b"u1", 0, 1)) + b"R" + _python2((3, b"|", None, None, None, -1, -1, 0)) + b"b"
    )
    empty = b"cnumpy.core.multiarray\n_reconstruct\n" + b"(cnumpy\nndarray\n" + _python2((0,)) + _python2(b"b") + b"tR"
    state = b"(" + _python2(1) + _python2(value.shape) + dtype + _python2(False) + _python2(value.tobytes()) + b"t"
    return empty + state + b"b"


def cifar_batch(labels, **extra):
    """A batch's dictionary and the images that it stands for."""
    images = RANDOM.integers(0, 256, (len(labels), 32, 32, 3), np.uint8)
    names = [b"picture_s_%06d.png" % i for i in range(len(labels))]
    planes = images.transpose(0, 3, 1, 2).reshape(len(labels), -1)
    return {b"batch_label": b"a batch", b"data": planes, b"filenames": names, **extra}, images


def write_cifar10(folder):
    folder.mkdir()
    every, labels = [], [[6, 9], [9, 4], [1, 1], [2, 7], [8, 3], [0, 5, 5]]
    for name, own in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], labels, strict=True):
        batch, images = cifar_batch(own)
        (folder / name).write_bytes(python2_pickle({**batch, b"labels": own}))
        every.append(images)
    (folder / "readme.html").write_text("<html>")
    return np.concatenate(every[:5]), [label for own in labels[:5] for label in own], every[5], labels[5]


def write_cifar100(folder):
    folder.mkdir()
    splits = []
    for name, fine in (("train", [99, 0, 3]), ("test", [42])):
        batch, images = cifar_batch(fine)
        (folder / name).write_bytes(python2_pickle({**batch, b"fine_labels": fine, b"coarse_labels": [1] * len(fine)}))
        splits += [images, fine]
    return splits


def packed(folder, name):
    archive = folder.parent / name
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)


def assert_holds(images, train_x, train_y, test_x, test_y):
    np.testing.assert_array_equal(images.train.images, train_x)
    np.testing.assert_array_equal(images.train.labels, train_y)
    np.testing.assert_array_equal(images.test.images, test_x)
    np.testing.assert_array_equal(images.test.labels, test_y)
    assert images.train.images.dtype == np.uint8
    assert images.train.labels.dtype == np.int64


def test_the_pickles_made_here_are_as_python_2_wrote_them():
    batch, _ = cifar_batch([1, 2])
    loaded = pickle.loads(python2_pickle(batch).replace(b"numpy.core", b"numpy._core"), encoding="bytes")
    assert loaded.keys() == batch.keys()
    np.testing.assert_array_equal(loaded[b"data"], batch[b"data"])


@pytest.mark.parametrize("form", ["folder", "archive"])
@pytest.mark.parametrize(
    ("name", "write", "unpacked", "archive"),
    [
        ("cifar10", write_cifar10, "cifar-10-batches-py", "cifar-10-python.tar.gz"),
        ("cifar100", write_cifar100, "cifar-100-python", "cifar-100-python.tar.gz"),
    ],
)
def test_cifar_is_read_from_the_original_files(tmp_path, form, name, write, unpacked, archive):
    expected = write(tmp_path / unpacked)
    if form == "archive":
        packed(tmp_path / unpacked, archive)
        shutil.rmtree(tmp_path / unpacked)
    data = datasets.load(name, tmp_path)
    assert_holds(data, *expected)
    assert len(data.mean) == len(data.std) == 3
    assert len(data.classes) == int(name.removeprefix("cifar"))


def test_cifar100s_classes_are_in_the_order_of_its_labels():
    classes = datasets._CIFAR100
    assert len(set(classes)) == 100
    assert list(classes) == sorted(classes)
    assert (classes[0], classes[42], classes[99]) == ("apple", "leopard", "worm")


def test_a_cifar_archive_that_lacks_a_file_says_which(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(FileNotFoundError, match="not complete, it lacks data_batch_3: get it again"):
        datasets.load("cifar10", tmp_path)
    packed(tmp_path / "cifar-10-batches-py", "cifar-10-python.tar.gz")
    shutil.rmtree(tmp_path / "cifar-10-batches-py")
    with pytest.raises(FileNotFoundError, match="lacks data_batch_3"):
        datasets.load("cifar10", tmp_path)


class Evil:
    def __reduce__(self):
        return print, ("run by a pickle",)


def test_a_pickle_that_runs_something_is_refused_before_it_does(tmp_path, capsys):
    write_cifar100(tmp_path / "cifar-100-python")
    (tmp_path / "cifar-100-python" / "train").write_bytes(pickle.dumps({b"data": Evil(), b"fine_labels": [1]}))
    with pytest.raises(pickle.UnpicklingError, match=r"must not need builtins\.print"):
        datasets.load("cifar100", tmp_path)
    assert not capsys.readouterr().out


# -- arrays ---------------------------------------------------------------------------------------------------------


def write_arrays(path, **changes):
    arrays = {
        "train_x": RANDOM.integers(0, 256, (4, 32, 32, 3), np.uint8),
        "train_y": np.array([0, 1, 9, 2], np.uint8),
        "test_x": RANDOM.integers(0, 256, (2, 32, 32, 3), np.uint8),
        "test_y": np.array([3, 3], np.int32),
        **changes,
    }
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return arrays.values()


def test_arrays_are_read(tmp_path):
    expected = write_arrays(tmp_path / "cifar10.npz")
    assert_holds(datasets.load("cifar10", tmp_path), *expected)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"test_y": None}, "train_x, train_y, test_x and test_y: .*test_y"),
        ({"train_y": np.array([0])}, "with N labels, got uint8 .4, 32, 32, 3. and 1 labels"),
        ({"train_x": np.zeros((4, 32, 32, 3))}, "must be bytes .* got float64"),
        ({"test_x": np.zeros((2, 32, 32), np.uint8)}, r"got uint8 \(2, 32, 32\)"),
        ({"train_y": np.array([0, 1, 10, 2])}, "labels must be from 0 to 9, got 0 to 10"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path, change, says):
    write_arrays(tmp_path / "cifar10.npz", **change)
    with pytest.raises(ValueError, match=says):
        datasets.load("cifar10", tmp_path)


def test_spoken_digits_are_grey_pictures(tmp_path):
    pictures, digits = RANDOM.integers(0, 256, (6, 32, 32), np.uint8), np.arange(6, dtype=np.uint8)
    np.savez(tmp_path / "audiomnist.npz", train_x=pictures, train_y=digits, test_x=pictures[:2], test_y=digits[:2])
    data = datasets.load("audiomnist", tmp_path)
    assert_holds(data, pictures[..., None], digits, pictures[:2, ..., None], digits[:2])
    assert data.classes == tuple("0123456789")


@pytest.mark.parametrize(("dataset", "folder"), [("fashion-mnist", "FashionMNIST"), ("mnist", "MNIST")])
def test_mnist_and_its_kin_are_read_from_where_torchvision_puts_them(tmp_path, dataset, folder):
    data = fashion.load()
    raw = tmp_path / folder / "raw"
    raw.mkdir(parents=True)
    for name, split in (("train", data.train.head(20)), ("t10k", data.test.head(10))):
        for what, array in (("images-idx3", split.images), ("labels-idx1", split.labels)):
            lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
            content = bytes([0, 0, 8, array.ndim]) + lengths + array.tobytes()
            (raw / f"{name}-{what}-ubyte.gz").write_bytes(gzip.compress(content))
    read = datasets.load(dataset, tmp_path)
    expected = (data.train.images[:20, ..., None], data.train.labels[:20], data.test.images[:10, ..., None])
    assert_holds(read, *expected, data.test.labels[:10])
    assert read.classes == (fashion.CLASSES if dataset == "fashion-mnist" else tuple("0123456789"))
    assert len(read.train.head(7)) == 7
    assert len(read.train.head(None)) == 20
    assert read.train.size == 28


# -- pictures -------------------------------------------------------------------------------------------------------


def write_picture(path, mode="RGB", size=(64, 64)):
    """A photograph-like picture as JPEG; what a decoder gives for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = RANDOM.integers(0, 256, (4, 4) if mode == "L" else (4, 4, 3), np.uint8)
    Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(path, "JPEG")
    return np.asarray(Image.open(path).convert("RGB"))


@pytest.fixture
def tiny_imagenet(tmp_path):
    """A folder in Tiny-ImageNet's layout, and what it holds."""
    root = tmp_path / "tiny-imagenet-200"
    wnids = ["n02124075", "n01443537"]  # not sorted, as in the original
    expected = []
    for wnid in wnids:
        for i in range(3):
            mode = "L" if i == 1 else "RGB"  # some of the originals are grey
            expected.append(write_picture(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", mode))
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
    test = [write_picture(root / "val" / "images" / f"val_{i}.JPEG") for i in range(2)]
    lines = [f"val_{i}.JPEG\t{wnid}\t0\t32\t44\t62\n" for i, wnid in enumerate(["n01443537", "n02124075"])]
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("\n".join(wnids))
    words = "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02124075\tEgyptian cat\n"
    (root / "words.txt").write_text(words)
    return root, np.stack(expected), np.stack(test)


def test_tiny_imagenet_is_read_from_its_own_layout(tiny_imagenet):
    root, train, test = tiny_imagenet
    for folder in (root, root.parent):
        data = datasets.load("tiny-imagenet", folder)
        assert_holds(data, train, [0, 0, 0, 1, 1, 1], test, [1, 0])
        assert data.classes == ("Egyptian cat", "goldfish")


def test_pictures_in_memory_are_grey_where_all_are_and_of_one_size(tmp_path):
    names = ("a.jpg", "b.jpg")
    for name in names:
        write_picture(tmp_path / name, "L", (20, 20))
    grey, test = datasets.read_all(files(tmp_path, names, (1, 0)), files(tmp_path, names[:1], (1,)))
    assert grey.images.shape == (2, 20, 20, 1)
    assert test.images.shape == (1, 20, 20, 1)
    assert grey.labels.tolist() == [1, 0]
    write_picture(tmp_path / "b.jpg", "L", (20, 21))
    with pytest.raises(ValueError, match=r"must be of one size, got \(20, 20\), \(20, 21\)"):
        datasets.read_all(files(tmp_path, names, (1, 0)), files(tmp_path, names[:1], (1,)))


def test_mean_and_spread_of_pixels_are_exact():
    images = RANDOM.integers(0, 256, (5, 8, 8, 3), np.uint8)
    mean, std = datasets.pixel_statistics(images)
    np.testing.assert_allclose(mean, (images / 255).mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, (images / 255).std((0, 1, 2)), rtol=1e-12)


def test_imagenet_and_any_folder_of_classes_are_found_by_their_training_images(tmp_path):
    for split in ("train", "val"):
        for wnid in ("n01440764", "n01443537"):
            write_picture(tmp_path / "imagenet" / split / wnid / "a.JPEG", size=(50, 40))
    for name, folder in (("imagenet", tmp_path), ("imagefolder", tmp_path / "imagenet")):
        data = datasets.load(name, folder)
        assert (len(data.train), len(data.test)) == (2, 2)
        assert data.classes == ("n01440764", "n01443537")
        assert data.train.size == 224
        assert (data.mean, data.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


# -- where they lie -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", datasets.SOURCES)
def test_who_does_not_have_a_data_set_is_told_where_to_get_it_and_where_to_put_it(tmp_path, name):
    with pytest.raises(FileNotFoundError) as error:
        datasets.load(name, tmp_path)
    text = str(error.value)
    assert text.startswith(f"{name}: none of ")
    assert str(tmp_path) in text
    assert "Get it from " in text
    assert text.endswith("--data FOLDER")
