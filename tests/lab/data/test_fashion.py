import gzip
from importlib import resources

import numpy as np
import pytest

from infobatch.lab.data import fashion

DATA = resources.files("infobatch.lab.data")


def idx(array):
    """The bytes of an idx file."""
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + lengths + array.astype(np.uint8).tobytes())


def write_original(folder, data):
    for name, split in (("train", data.train), ("t10k", data.test)):
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(idx(split.images))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(idx(split.labels))


def test_the_subset_is_balanced_and_small_and_has_its_notice_beside_it():
    data = fashion.load()
    assert data.train.images.shape == (10_000, 28, 28)
    assert data.test.images.shape == (2_000, 28, 28)
    assert data.train.images.dtype == data.train.labels.dtype == np.uint8
    assert np.bincount(data.train.labels).tolist() == [1000] * 10
    assert np.bincount(data.test.labels).tolist() == [200] * 10
    assert len(fashion.CLASSES) == 10
    assert len((DATA / "fashion-mnist.npz").read_bytes()) < 6_000_000
    notice = (DATA / "LICENSE-fashion-mnist").read_text(encoding="utf-8")
    assert "Copyright © 2017 Zalando SE, https://tech.zalando.com" in notice
    assert "Permission is hereby granted, free of charge" in notice


def test_the_pixels_have_about_the_mean_and_spread_of_the_original():
    images = fashion.load().train.images / 255
    assert images.mean() == pytest.approx(fashion.MEAN, abs=0.01)
    assert images.std() == pytest.approx(fashion.STD, abs=0.01)


def test_no_image_is_in_both_splits():
    data = fashion.load()
    train, test = ({image.tobytes() for image in split.images} for split in (data.train, data.test))
    assert not train & test


def test_the_subset_is_made_of_the_first_of_each_class_in_their_order(tmp_path):
    data = fashion.load()
    data = fashion.Fashion(data.train.head(500), data.test.head(300))
    write_original(tmp_path, data)
    original = fashion.load_original(tmp_path)
    np.testing.assert_array_equal(original.train.images, data.train.images)
    np.testing.assert_array_equal(original.test.labels, data.test.labels)

    fashion.write_subset(tmp_path, tmp_path / "subset.npz", train=20, test=7)
    with np.load(tmp_path / "subset.npz") as subset:
        counts, expected = dict.fromkeys(range(10), 0), []
        for position, label in enumerate(data.train.labels.tolist()):
            if counts[label] < 20:
                expected.append(position)
                counts[label] += 1
        np.testing.assert_array_equal(subset["train_images"], data.train.images[expected])
        np.testing.assert_array_equal(subset["train_labels"], data.train.labels[expected])
        assert np.bincount(subset["test_labels"]).tolist() == [7] * 10


def test_broken_original_files_are_refused(tmp_path):
    data = fashion.load()
    data = fashion.Fashion(data.train.head(5), data.test.head(5))
    write_original(tmp_path, data)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(data.train.labels[:4]))
    with pytest.raises(ValueError, match="5 train images but 4 labels"):
        fashion.load_original(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"<html>"))
    with pytest.raises(ValueError, match="not an idx file of bytes"):
        fashion.load_original(tmp_path)
