import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import functional

from infobatch.lab.data import datasets, fashion, folders
from infobatch.lab.data.folders import Decoded

SHIRTS = fashion.load().train


def picture(index, size, mode="RGB"):
    """A real picture of a given size (width, height)."""
    return Image.fromarray(SHIRTS.images[index]).resize(size, Image.Resampling.BICUBIC).convert(mode)


@pytest.fixture
def root(tmp_path):
    """train/<class>/… and val/<class>/…, with files of several kinds, sizes and depths."""
    for split, names in (("train", ["10.png", "9.JPEG", "deeper/a.jpg"]), ("val", ["z.png"])):
        for kind in ("dog", "cat"):
            for i, name in enumerate(names):
                path = tmp_path / split / kind / name
                path.parent.mkdir(parents=True, exist_ok=True)
                picture(i, (60 + i, 50), "L" if i == 1 else "RGB").save(path)
            (tmp_path / split / kind / "notes.txt").write_text("not an image")
    return tmp_path


# -- folders --------------------------------------------------------------------------------------------------------


def test_classes_and_files_come_in_an_order_that_is_the_same_anywhere(root):
    train, test, classes = folders.read_class_folders(root)
    assert classes == ("cat", "dog")
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    names = [f"{kind}/{name}" for kind in classes for name in ("10.png", "9.JPEG", "deeper/a.jpg")]
    assert [name.decode() for name in train.names] == names
    assert test.labels.tolist() == [0, 1]
    assert len(train.head(2)) == 2
    assert train.head(None).labels.tolist() == train.labels.tolist()
    assert train.picture(4).size == (61, 50)
    np.testing.assert_array_equal(np.asarray(train.picture(3)), np.asarray(picture(0, (60, 50))))


def test_a_class_without_training_images_or_a_missing_test_folder_is_told(root):
    (root / "val" / "bird").mkdir()
    with pytest.raises(ValueError, match=r"val holds classes that .*train does not: bird"):
        folders.read_class_folders(root)
    (root / "val").rename(root / "elsewhere")
    with pytest.raises(FileNotFoundError, match="val is missing: it must hold one folder of test images per class"):
        folders.read_class_folders(root)


def test_images_that_are_not_in_folders_of_classes_are_told(tmp_path):
    (tmp_path / "train" / "cat").mkdir(parents=True)
    (tmp_path / "val").mkdir()
    with pytest.raises(ValueError, match=r"train holds no image in a folder of its class: .*<class>/<image>"):
        folders.read_class_folders(tmp_path)
    (tmp_path / "train" / "cat").rmdir()
    with pytest.raises(ValueError, match="train must hold one folder of images per class; it holds no folder"):
        folders.read_class_folders(tmp_path)


def test_a_file_that_is_no_image_is_named(root):
    whole = (root / "train" / "cat" / "10.png").read_bytes()
    train, _, _ = folders.read_class_folders(root)
    for content in (b"<html>", whole[: len(whole) // 2]):
        (root / "train" / "cat" / "10.png").write_bytes(content)
        with pytest.raises(OSError, match=r"cat/10\.png cannot be read as an image"):
            train.picture(0)


# -- cuts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(300, 200), (200, 301), (77, 77), (20, 31)])
def test_the_middle_is_torchvisions(size):
    original = picture(0, size)
    for side in (224, 32):
        expected = functional.center_crop(functional.resize(original, round(side * 256 / 224)), side)
        np.testing.assert_array_equal(np.asarray(folders.middle_cut(original, side)), np.asarray(expected))


def position_picture(width, height):
    """Red tells the column, green the row."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = np.arange(width), np.arange(height)[:, None]
    return Image.fromarray(pixels)


def test_random_cuts_have_the_usual_shares_proportions_and_places():
    generator = torch.Generator().manual_seed(0)
    shares, aspects, lefts, tops = [], [], [], []
    for _ in range(2000):
        pixels = np.asarray(folders.random_cut(position_picture(250, 200), 64, generator), float)
        across, down = (64 / 48 * (pixels[56, 56, channel] - pixels[8, 8, channel]) for channel in (0, 1))
        shares.append(across * down / (250 * 200))
        aspects.append(math.log(across / down))
        middle = pixels.mean((0, 1))
        if across < 225:
            lefts.append((middle[0] - across / 2) / (250 - across))
        if down < 180:
            tops.append((middle[1] - down / 2) / (200 - down))
    # Uniform, but for the largest ones, of which some do not fit.
    assert 0.075 < min(shares) < 0.09
    assert 0.95 < max(shares) < 1.03
    assert np.quantile(shares, 0.25) == pytest.approx(0.08 + 0.92 * 0.25, abs=0.06)
    assert min(aspects) == pytest.approx(math.log(3 / 4), abs=0.08)
    assert max(aspects) == pytest.approx(math.log(4 / 3), abs=0.08)
    assert np.mean(aspects) == pytest.approx(0, abs=0.03)
    # Places are uniform: their quartiles are ¼, ½ and ¾.
    for places in (lefts, tops):
        np.testing.assert_allclose(np.quantile(places, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.06)


def test_a_cut_is_torchvisions_resized_crop_of_the_rectangle_drawn():
    original, size = picture(3, (40, 30)), 16
    cut = np.asarray(folders.random_cut(original, size, torch.Generator().manual_seed(1)))
    share, proportion, x, y = torch.rand(4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).tolist()
    area, aspect = 1200 * (0.08 + 0.92 * share), (3 / 4) * (16 / 9) ** proportion
    w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
    place = (int(y * (31 - h)), int(x * (41 - w)), h, w)
    np.testing.assert_array_equal(cut, np.asarray(functional.resized_crop(original, *place, [size, size])))


def test_of_a_picture_too_long_for_any_proportion_the_middle_is_taken():
    for width, height in ((255, 2), (2, 255)):
        pixels = np.asarray(
            folders.random_cut(position_picture(width, height), 8, torch.Generator().manual_seed(0)), float
        )
        longer = 0 if width > height else 1
        assert pixels[..., longer].mean() == pytest.approx(127, abs=2)
        assert np.ptp(pixels[..., longer]) <= 3


# -- as tensors -----------------------------------------------------------------------------------------------------


def small(lazy, size=32):
    return folders.Files(lazy.labels, lazy.folder, lazy.names, size=size)


def batches(data, seed):
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(data, 3, num_workers=1, collate_fn=lambda batch: batch, generator=generator)
    return [[images for images, _ in loader] for _ in range(2)]  # two epochs


def test_batches_are_whole_and_bytes_and_of_three_channels(root):
    train, _, _ = folders.read_class_folders(root)
    data = Decoded(small(train))
    images, labels = data.__getitems__([5, 0, 1])
    assert images.shape == (3, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert labels.tolist() == [1, 0, 0]
    middle = folders.middle_cut(train.picture(1).convert("RGB"), 32)
    np.testing.assert_array_equal(images[2].permute(1, 2, 0), np.asarray(middle))
    image, label = data[5]
    assert torch.equal(image, images[0])
    assert label == 1


def test_flip_only_mirrors(root):
    train, _, _ = folders.read_class_folders(root)
    plain, _ = Decoded(small(train)).__getitems__(list(range(6)))
    flipped = torch.cat([images for epoch in batches(Decoded(small(train), "flip"), 0) for images in epoch])
    kept, mirrored = (
        (flipped == twice).flatten(1).all(1) for twice in (plain.repeat(2, 1, 1, 1), plain.flip(3).repeat(2, 1, 1, 1))
    )
    assert (kept ^ mirrored).all()
    assert 0 < mirrored.sum() < 12


def test_workers_draw_from_the_loaders_generator_and_nobodys_else(root):
    train, _, _ = folders.read_class_folders(root)
    data = Decoded(small(train), "crop-flip")
    before = torch.get_rng_state()
    first, again, other = batches(data, 0), batches(data, 0), batches(data, 1)
    assert torch.equal(torch.get_rng_state(), before)
    for epoch in (0, 1):
        assert all(map(torch.equal, first[epoch], again[epoch]))
        assert not any(map(torch.equal, first[epoch], other[epoch]))
    assert not any(map(torch.equal, first[0], first[1]))  # each epoch is cut anew
    assert not torch.equal(first[0][0], first[0][1])


# -- Hugging Face ---------------------------------------------------------------------------------------------------


def table(count, size, features=None, labels=None, **columns):
    import datasets as hf

    names = ["shirt", "trouser", "pullover"]
    features = features or {"img": hf.Image(), "label": hf.ClassLabel(names=names)}
    image = next(iter(features))
    rows = {
        image: [picture(i, size, "L") for i in range(count)],
        "label": labels if labels is not None else [i % 3 for i in range(count)],
        **columns,
    }
    return hf.Dataset.from_dict(rows, features=hf.Features({name: features[name] for name in rows}))


def saved(folder, **splits):
    import datasets as hf

    hf.DatasetDict(splits).save_to_disk(folder)
    return f"hf:{folder}"


@pytest.fixture(autouse=True)
def quiet():
    import datasets as hf

    hf.disable_progress_bars()
    yield
    hf.enable_progress_bars()


def test_small_rows_are_held_in_memory_with_their_own_mean_and_spread(tmp_path):
    data = datasets.load(saved(tmp_path, train=table(5, (28, 28)), test=table(3, (28, 28))))
    np.testing.assert_array_equal(data.train.images[..., 0], SHIRTS.images[:5])
    assert data.train.labels.tolist() == [0, 1, 2, 0, 1]
    assert data.test.labels.tolist() == [0, 1, 2]
    assert data.classes == ("shirt", "trouser", "pullover")
    assert data.mean[0] == pytest.approx((SHIRTS.images[:5] / 255).mean())
    assert data.std[0] == pytest.approx((SHIRTS.images[:5] / 255).std())


def test_large_rows_are_read_when_needed_and_hidden_labels_are_no_test(tmp_path):
    name = saved(
        tmp_path,
        train=table(4, (90, 70)),
        test=table(2, (90, 70), labels=[-1, -1]),
        validation=table(3, (90, 70)),
    )
    data = datasets.load(name)
    assert isinstance(data.train, folders.Rows)
    assert data.test.labels.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(np.asarray(data.train.picture(3)), np.asarray(picture(3, (90, 70), "L")))
    images, labels = Decoded(data.train).__getitems__([1, 2])
    assert images.shape == (2, 3, 224, 224)
    assert labels.tolist() == [1, 2]


def test_rows_of_unknown_columns_or_splits_are_refused_with_a_remedy(tmp_path):
    import datasets as hf

    name = saved(tmp_path / "a", train=table(2, (28, 28)))
    with pytest.raises(ValueError, match=r"must have a test split with labels, .*; it has train. Make one"):
        datasets.load(name)
    name = saved(tmp_path / "b", test=table(2, (28, 28)))
    with pytest.raises(ValueError, match="must have a split named train and a test split, got test"):
        datasets.load(name)
    table(2, (28, 28)).save_to_disk(tmp_path / "c")
    with pytest.raises(ValueError, match="got no named splits"):
        datasets.load(f"hf:{tmp_path / 'c'}")
    plain = table(2, (28, 28), {"image": hf.Image(), "label": hf.Value("int64")})
    name = saved(tmp_path / "d", train=plain, test=plain)
    with pytest.raises(ValueError, match=r"one column of type ClassLabel.* image: Image, label: Value. Change them"):
        datasets.load(name)
    kind = hf.ClassLabel(names=["one", "two"])
    two = table(
        2, (28, 28), {"image": hf.Image(), "label": hf.Value("int64"), "x": kind, "y": kind}, x=[0, 1], y=[1, 0]
    )
    with pytest.raises(ValueError, match="or one of them named label or fine_label"):
        datasets.load(saved(tmp_path / "e", train=two, test=two))


def test_of_several_labels_the_usual_one_is_taken(tmp_path):
    import datasets as hf

    coarse, fine = hf.ClassLabel(names=["all"]), hf.ClassLabel(names=["one", "two"])
    features = {"img": hf.Image(), "label": hf.Value("int64"), "coarse_label": coarse, "fine_label": fine}
    rows = table(2, (28, 28), features, coarse_label=[0, 0], fine_label=[1, 0])
    data = datasets.load(saved(tmp_path, train=rows, test=rows))
    assert data.train.labels.tolist() == [1, 0]
    assert data.classes == ("one", "two")


def test_a_missing_table_says_how_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="neither a folder written by save_to_disk nor in the cache"):
        datasets.load(f"hf:{tmp_path / 'nowhere'}")
    with pytest.raises(ValueError, match="hf:x names its own place: leave --data here out, or write hf:here"):
        datasets.load("hf:x", "here")
