from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from timm.loss import SoftTargetCrossEntropy
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import infobatch
from infobatch.lab.data import fashion, folders
from infobatch.lab.data.datasets import IMAGENET_MEAN, IMAGENET_STD, Images, ImageSplit
from infobatch.lab.tasks.classification import Classification, ClassificationRecipe
from infobatch.lab.tasks.images import InMemory, augmented
from infobatch.lab.tasks.mixing import erase, mix, smooth_labels

RECIPE = ClassificationRecipe("fashion-mnist", "small-cnn", 2, batch_size=16, augment="none")


def some(split, count):
    return ImageSplit(split.images[:count, ..., None], split.labels[:count].astype(np.int64))


DATA = fashion.load()
IMAGES = Images("fashion-mnist", some(DATA.train, 60), some(DATA.test, 1100), (0.286,), (0.353,), fashion.CLASSES)


def make_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def task(**settings):
    return Classification(replace(RECIPE, **settings), IMAGES)


# -- augmentation ---------------------------------------------------------------------------------------------------


def coloured(count):
    """Three different planes from real images."""
    planes = torch.from_numpy(DATA.train.images[: 3 * count])
    return planes.view(count, 3, 28, 28)


def test_none_changes_nothing():
    images = coloured(4)
    assert augmented(images, "none", make_generator()) is images


def test_flip_mirrors_about_half_of_the_images():
    images = coloured(200)
    changed = augmented(images, "flip", make_generator())
    kept, mirrored = ((changed == like).flatten(1).all(1) for like in (images, images.flip(3)))
    assert (kept | mirrored).all()
    assert 80 < mirrored.sum() < 120
    assert torch.equal(images, coloured(200))


def test_crop_flip_shifts_each_image_by_its_own_chance_and_fills_with_black():
    images = coloured(300)
    changed = augmented(images, "crop-flip", make_generator())
    assert changed.dtype == torch.uint8
    assert changed.shape == images.shape
    seen = []
    for image, result in zip(images, changed, strict=True):
        padded = nn.functional.pad(image, (4, 4, 4, 4))
        # An image that is mirrored after its cut is the same as a mirrored cut: undo it, and look for the place.
        ways = [
            (mirrored, y, x)
            for mirrored, undone in ((False, result), (True, result.flip(2)))
            for y in range(9)
            for x in range(9)
            if torch.equal(padded[:, y : y + 28, x : x + 28], undone)
        ]
        assert ways
        seen += ways
    for part, values in enumerate(((False, True), range(9), range(9))):
        assert {way[part] for way in seen} == set(values)


@pytest.mark.parametrize(("how", "furthest", "mirrors"), [("shift-1", 1, False), ("shift-2-flip", 2, True)])
def test_shifts_go_as_far_as_they_say(how, furthest, mirrors):
    image = torch.zeros(1, 1, 14, 14, dtype=torch.uint8)
    image[0, 0, 5, 4] = 255
    changed = augmented(image.expand(400, -1, -1, -1), how, make_generator())
    _, _, rows, columns = changed.nonzero(as_tuple=True)
    reach = set(range(-furthest, furthest + 1))
    assert {row - 5 for row in rows.tolist()} == reach
    expected = {4 + step for step in reach} | ({9 + step for step in reach} if mirrors else set())
    assert set(columns.tolist()) == expected


def test_augmentation_depends_on_the_generator_alone():
    before = torch.get_rng_state()
    one, again, other = (augmented(coloured(50), "crop-flip", make_generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


# -- in memory ------------------------------------------------------------------------------------------------------


def test_batches_are_taken_at_once():
    data = InMemory(IMAGES.train)
    images, labels = data.__getitems__([5, 3, 5])
    np.testing.assert_array_equal(images[1, 0], DATA.train.images[3])
    assert labels.tolist() == DATA.train.labels[[5, 3, 5]].tolist()
    assert torch.equal(data[5][0], images[2])
    assert len(data) == 60
    assert len(task(samples=10).train) == 10


def test_losses_are_one_per_sample_of_normalised_images_with_smoothed_labels():
    trained = task(label_smoothing=0.1)
    model = trained.model(0).eval()
    images, labels = trained.train.__getitems__(list(range(16)))
    losses = trained.losses(model, (images, labels), make_generator())
    expected = cross_entropy(model((images / 255 - 0.286) / 0.353), labels, reduction="none", label_smoothing=0.1)
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    assert losses.shape == (16,)
    losses.mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_accuracy_is_over_all_test_images():
    judged = task()
    model = judged.model(0)
    model.train()
    accuracy = judged.evaluate(model)
    assert not model.training
    pixels = torch.from_numpy(DATA.test.images[:1100, None])
    with torch.inference_mode():
        guesses = model((pixels / 255 - 0.286) / 0.353).argmax(1).numpy()
    assert accuracy == pytest.approx(100 * (guesses == DATA.test.labels[:1100]).mean())


def test_pictures_are_the_training_images_and_the_names_of_what_they_show():
    pictures, names = task().pictures([7, 2])
    np.testing.assert_array_equal(pictures, DATA.train.images[[7, 2]][..., None])
    assert names == [fashion.CLASSES[DATA.train.labels[i]] for i in (7, 2)]


# -- precision and device -------------------------------------------------------------------------------------------


def test_bf16_computes_in_bf16_and_gives_losses_in_fp32():
    plain, reduced = task(), task(precision="bf16")
    model = plain.model(0).eval()
    kinds = []
    model[0].register_forward_hook(lambda module, inputs, output: kinds.append(output.dtype))
    batch = plain.train.__getitems__(list(range(16)))
    exact, rounded = (by.losses(model, batch, make_generator()) for by in (plain, reduced))
    assert kinds == [torch.float32, torch.bfloat16]
    assert exact.dtype == rounded.dtype == torch.float32
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, rtol=0.05, atol=0.05)
    reduced.evaluate(model)
    assert kinds[-1] == torch.bfloat16


def test_fp16_on_the_cpu_is_refused():
    with pytest.raises(ValueError, match="precision fp16 needs a GPU: on the CPU take fp32, or bf16"):
        Classification(replace(RECIPE, precision="fp16"), IMAGES, "cpu")


def test_the_gpu_is_used_if_there_is_one():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    trained = task()
    assert trained.device.type == expected
    assert next(trained.model(0).parameters()).device.type == expected


def test_layers_draw_random_numbers_from_the_given_generator():
    images = np.repeat(np.pad(DATA.train.images[:8], ((0, 0), (2, 2), (2, 2)))[..., None], 3, 3)
    split = ImageSplit(images, DATA.train.labels[:8].astype(np.int64))
    data = Images("cifar10", split, split, IMAGENET_MEAN, IMAGENET_STD, fashion.CLASSES)
    trained = Classification(replace(RECIPE, model="swin_tiny_patch4_window7_224"), data)
    model = trained.model(0).train()
    batch = trained.train.__getitems__(list(range(8)))
    before = torch.get_rng_state()
    with torch.no_grad():
        one, again, other = (trained.losses(model, batch, make_generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


# -- timm's options -------------------------------------------------------------------------------------------------


def test_mixed_inputs_have_the_loss_of_their_mixed_targets_and_scores_that_are_traced_back():
    mixed = task(mixup=0.4, cutmix=1.0, label_smoothing=0.1)
    model, batch = mixed.model(0).eval(), mixed.train.__getitems__(list(range(16)))
    for seed in range(4):
        outcome = mixed.losses(model, batch, make_generator(seed))
        inputs = mix(batch[0], smooth_labels(batch[1], 10, 0.1), 0.4, 1.0, make_generator(seed))
        assert outcome.share == inputs.share
        with torch.no_grad():
            logits = model((inputs.images / 255 - 0.286) / 0.353)
        torch.testing.assert_close(outcome.losses.mean(), SoftTargetCrossEntropy()(logits, inputs.target))
        probability = logits.softmax(1)
        for i, label in enumerate(batch[1].tolist()):
            own = -(inputs.target[i] * probability[i].log()).sum()
            torch.testing.assert_close(outcome.losses[i], own)
            error = (inputs.target - probability).abs()[:, label]
            torch.testing.assert_close(outcome.score[i], error[i] + error[15 - i])
        assert not outcome.score.requires_grad


def test_erasing_comes_after_normalising():
    erased, plain = task(random_erase=1.0), task()
    seen = []
    model = erased.model(0).eval()
    model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    batch = erased.train.__getitems__(list(range(16)))
    for by in (plain, erased):
        by.losses(model, batch, make_generator())
    changed = seen[0] != seen[1]
    assert torch.equal(seen[1], erase(seen[0], 1.0, make_generator()))
    assert changed.flatten(1).any(1).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"random_erase": 1.5}, "random_erase must be a probability, at most 1, got 1.5"),
        ({"ema": 1.0}, "ema must be below 1, got 1.0"),
        ({"label_smoothing": 1.0}, "label_smoothing must be below 1, got 1.0"),
        ({"pool": 0}, "pool must be at least 1, got 0"),
        ({"judge_rest": True, "samples": None}, "judge_rest=true needs samples"),
        ({"mixup": -1.0}, "mixup must not be negative, got -1.0"),
    ],
)
def test_options_out_of_range_are_told(settings, message):
    with pytest.raises(ValueError, match=message):
        replace(RECIPE, **settings)


def test_images_are_pooled_and_those_that_are_not_trained_on_judge(tmp_path):
    rng = np.random.default_rng(0)
    pictures, labels = rng.integers(0, 256, (10, 8, 8, 3), np.uint8), np.arange(10)
    np.savez(tmp_path / "cifar10.npz", train_x=pictures, train_y=labels, test_x=pictures[:2], test_y=labels[:2])
    recipe = ClassificationRecipe("cifar10", "small-cnn", 2, samples=4, pool=2, judge_rest=True)
    task = recipe.create_task(tmp_path)
    assert task.train.labels.tolist() == [0, 1, 2, 3]
    assert task.test.labels.tolist() == [4, 5, 6, 7, 8, 9, 0, 1]
    expected = pictures.reshape(10, 4, 2, 4, 2, 3).mean((2, 4)).transpose(0, 3, 1, 2)
    assert np.abs(task.train.images.numpy() - expected[:4]).max() <= 0.5
    assert np.abs(task.test.images[:6].numpy() - expected[4:]).max() <= 0.5
    with pytest.raises(ValueError, match="pool must divide the images' sides, 8 and 8 pixels, got 3"):
        replace(recipe, pool=3).create_task(tmp_path)


# -- for static methods ---------------------------------------------------------------------------------------------


def test_plain_images_are_all_of_them_in_order_as_the_network_sees_them():
    plain = task(augment="crop-flip", samples=50)
    images, labels = (torch.cat(parts) for parts in zip(*plain.plain_batches(), strict=True))
    pixels = torch.from_numpy(DATA.train.images[:50, None])
    torch.testing.assert_close(images, (pixels / 255 - 0.286) / 0.353, rtol=1e-4, atol=1e-5)
    assert labels.tolist() == plain.labels.tolist() == DATA.train.labels[:50].tolist()


# -- read when needed -----------------------------------------------------------------------------------------------


@pytest.fixture
def photographs(tmp_path):
    """Two classes of large pictures in folders, cut to 32 × 32."""
    for split, images, labels, count in (
        ("train", DATA.train.images, DATA.train.labels, 12),
        ("val", DATA.test.images, DATA.test.labels, 5),
    ):
        for label, name in ((1, "trouser"), (8, "bag")):
            (tmp_path / split / name).mkdir(parents=True)
            for i, pixels in enumerate(images[labels == label][:count]):
                Image.fromarray(pixels).resize((80, 60)).save(tmp_path / split / name / f"{i:02}.png")
    train, test, classes = folders.read_class_folders(tmp_path)
    train, test = (replace(lazy, size=32) for lazy in (train, test))
    return Images("imagefolder", train, test, IMAGENET_MEAN, IMAGENET_STD, classes)


LAZY = replace(RECIPE, dataset="imagefolder", augment="crop-flip", epochs=3, lr=0.02, workers=1)


def train(photographs, seed):
    """A few pruned epochs of a network on pictures that a worker reads: losses of all steps, and the accuracy."""
    trained = Classification(LAZY, photographs)
    data = infobatch.InfoBatch(trained.train, 3, delta=1.0, seed=seed)
    loader = DataLoader(
        data, 8, sampler=data.sampler, num_workers=1, collate_fn=trained.collate, generator=make_generator(seed)
    )
    model, generator, losses, kept = trained.model(seed), make_generator(seed), [], []
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    for epoch in range(3):
        data.set_epoch(epoch)
        kept.append(len(data.sampler))
        model.train()
        for batch in loader:
            loss = data.update(trained.losses(model, batch, generator))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, kept, trained.evaluate(model)


def test_epochs_of_pictures_read_by_workers_are_pruned_and_reproducible(photographs):
    before = torch.get_rng_state()
    losses, kept, accuracy = train(photographs, 0)
    assert torch.equal(torch.get_rng_state(), before)
    assert kept[0] == 24
    assert min(kept) < 24
    # Two dozen pictures, cut so freely, teach a network too little for a claim about what it learns.
    assert np.isfinite(losses).all()
    assert train(photographs, 0) == (losses, kept, accuracy)
    assert train(photographs, 1)[0] != losses


def test_lazily_read_test_images_are_all_judged_and_training_pictures_shown(photographs):
    trained = Classification(LAZY, photographs)

    class Bright(nn.Module):
        """Calls the brighter pictures bags."""

        def forward(self, images):
            brightness = images.mean((1, 2, 3))
            return torch.stack([brightness, torch.zeros_like(brightness)], 1)

    images, labels = folders.Decoded(photographs.test).__getitems__(list(range(10)))
    scaled = (images / 255 - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / torch.tensor(IMAGENET_STD).view(3, 1, 1)
    guesses = (scaled.mean((1, 2, 3)) < 0).long()
    assert trained.evaluate(Bright()) == pytest.approx(100 * (guesses == labels).double().mean().item())
    pictures, names = trained.pictures([0, 23])
    assert pictures.shape == (2, 32, 32, 3)
    assert names == ["bag", "trouser"]
    middle = folders.middle_cut(photographs.train.picture(23).convert("RGB"), 32)
    np.testing.assert_array_equal(pictures[1], np.asarray(middle))


def test_pictures_without_a_worker_to_read_them_are_refused(photographs):
    with pytest.raises(ValueError, match=r"workers must be at least 1, got 0 \(--set workers=4\)"):
        Classification(replace(LAZY, workers=0), photographs)


def test_plain_pictures_are_cut_in_the_middle(photographs):
    trained = Classification(LAZY, photographs)
    images, labels = (torch.cat(parts) for parts in zip(*trained.plain_batches(), strict=True))
    assert labels.tolist() == photographs.train.labels.tolist()
    middle, _ = folders.Decoded(photographs.train).__getitems__([23])
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (IMAGENET_MEAN, IMAGENET_STD))
    torch.testing.assert_close(images[23], (middle[0] / 255 - mean) / std, rtol=1e-4, atol=1e-5)


def test_images_from_files_are_cut_to_the_size_that_is_asked_for(photographs, tmp_path):
    folder = photographs.train.folder.parent
    sized = replace(LAZY, size=24).create_task(folder)
    assert {image.shape[-1] for image, _ in (sized.train[0], sized.test[0])} == {24}
    with pytest.raises(ValueError, match="size must be at least 1 pixel, got 0"):
        replace(LAZY, size=0)
    with pytest.raises(ValueError, match="size is for images that are read from files; fashion-mnist-10k is in memory"):
        replace(RECIPE, dataset="fashion-mnist-10k", size=24).create_task()
