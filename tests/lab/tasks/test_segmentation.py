"""Segmentation as a task: cuts, losses of two heads, and the mean IoU, on stand-ins of the real data sets."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate

import infobatch
from distributed.launch import ROOT, python
from infobatch.lab.comparison import Comparison
from infobatch.lab.data import scenes
from infobatch.lab.method import MethodSpec
from infobatch.lab.tasks.segmentation import Segmentation, SegmentationRecipe, random_cut
from infobatch.lab.training import Training
from infobatch.scoring.segmentation import image_losses, with_auxiliary
from lab.data.test_scenes import write_ade20k, write_camvid

NARROW = "upernet-resnet18-narrow"
RECIPE = SegmentationRecipe("camvid", NARROW, 4, batch_size=8, lr=0.05, size=24, crop=24)


def make_generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def camvid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("camvid")
    write_camvid(folder, train=20, test=9)
    return folder


@pytest.fixture(scope="module")
def task(camvid):
    return RECIPE.create_task(camvid)


# -- the recipe -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("dataset=camvit", "there is no 'camvit'; did you mean 'camvid'"),
        ("model=upernet-resnet18-narow", "did you mean 'upernet-resnet18-narrow'"),
        ("crop=0", "crop must be at least 1 pixel, got 0"),
        ("size=0", "size must be at least 1 pixel, got 0"),
        ("smallest=1.5", "smallest must be above 0 and not above largest, got 1.5 and 1.0"),
        ("smallest=0", "smallest must be above 0"),
        ("dropout=1", "dropout must be below 1, got 1.0"),
        ("pretrained=true", "pretrained must be false for upernet-resnet18-narrow"),
        ("auxiliary=-1", "auxiliary must not be negative"),
    ],
)
def test_wrong_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        RECIPE.changed([setting])


def test_the_recipe_is_data_and_prunes_as_the_authors_did():
    assert RECIPE.as_data()["task"] == "segmentation"
    assert (RECIPE.delta, RECIPE.auxiliary) == (0.85, 0.4)
    assert SegmentationRecipe(**{k: v for k, v in RECIPE.as_data().items() if k != "task"}) == RECIPE
    paper = RECIPE.changed(["model=upernet-resnet50", "pretrained=true", "smallest=0.5", "largest=2"])
    assert (paper.pretrained, paper.largest) == (True, 2.0)


# -- cuts -----------------------------------------------------------------------------------------------------------


def places(height, width):
    """An image whose pixels say where they are, and labels that say the same."""
    labels = torch.arange(height * width, dtype=torch.uint8).view(height, width)
    return labels.float().expand(3, -1, -1), labels


def test_a_cut_is_any_window_mirrored_half_of_the_time_and_labels_go_with_the_image():
    image, labels = places(8, 10)
    recipe, generator, seen = replace(RECIPE, crop=6), make_generator(), []
    for _ in range(300):
        cut, classes = random_cut(image, labels, recipe, generator)
        assert torch.equal(cut[0], classes.float())
        mirrored = bool(classes[0, 0] > classes[0, 1])
        undone = classes.flip(1) if mirrored else classes
        top, left = divmod(int(undone[0, 0]), 10)
        assert torch.equal(undone, labels[top : top + 6, left : left + 6])
        seen.append((top, left, mirrored))
    assert {(top, left) for top, left, _ in seen} == {(y, x) for y in range(3) for x in range(5)}
    assert 120 < sum(mirrored for *_, mirrored in seen) < 180


def test_what_an_image_lacks_is_zero_and_not_labelled():
    image, labels = places(4, 9)
    cut, classes = random_cut(image + 1, labels, replace(RECIPE, crop=6), make_generator())
    assert (cut.shape, classes.shape) == ((3, 6, 6), (6, 6))
    assert not cut[:, 4:].any()
    assert (classes[4:] == 255).all()
    assert torch.equal(cut[0, :4], classes[:4].float() + 1)


def test_images_are_scaled_by_chance_within_bounds():
    image, labels = torch.ones(3, 10, 20), torch.zeros(10, 20, dtype=torch.uint8)
    recipe, generator = replace(RECIPE, crop=60, smallest=0.5, largest=2.0), make_generator()
    heights = []
    for _ in range(200):
        cut, classes = random_cut(image, labels, recipe, generator)
        here = classes == 0  # the image; the rest of the window is void
        assert torch.equal(here, cut[0] > 0.9)
        heights.append(int(here.any(1).sum()))
        assert abs(int(here.any(0).sum()) - 2 * heights[-1]) <= 1
    assert (min(heights), max(heights)) == (5, 20)
    # Scaled labels are the nearest ones, never a mixture.
    image, labels = places(4, 4)
    _, classes = random_cut(image, labels, replace(RECIPE, crop=8, smallest=2.0, largest=2.0), make_generator())
    doubled = labels.repeat_interleave(2, 0).repeat_interleave(2, 1)
    assert torch.equal(classes, doubled) or torch.equal(classes, doubled.flip(1))


def test_cuts_depend_on_the_generator_alone(task):
    before = torch.get_rng_state()
    image, labels = (part[:, :20] if part.ndim == 3 else part[:20] for part in task.train[0])
    recipe = replace(RECIPE, crop=16, smallest=0.8, largest=1.2)
    one, again, other = (random_cut(image.float(), labels, recipe, make_generator(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


# -- the network ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "width"), [(NARROW, 64), ("upernet-resnet18", 256), ("upernet-resnet50", 1024)])
def test_the_auxiliary_head_sees_the_third_stage_in_training_only(task, name, width):
    model = Segmentation(replace(RECIPE, model=name), task.data).model(0)
    seen = []
    model.auxiliary.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape))
    images = torch.rand(2, 3, 32, 64, generator=make_generator())
    with torch.no_grad():
        assert [logits.shape for logits in model.train()(images)] == [(2, 11, 32, 64)] * 2
        assert [logits.shape for logits in model.eval()(images)] == [(2, 11, 32, 64)]
        assert model(images[..., :29, :61])[0].shape == (2, 11, 29, 61)  # of any size
    assert seen == [(2, width, 2, 4)]


def test_every_network_is_tried_above():
    (tried,) = test_the_auxiliary_head_sees_the_third_stage_in_training_only.pytestmark
    assert {name for name, _ in tried.args[1]} == set(SegmentationRecipe.choices["model"])


def test_weights_come_from_the_seed_and_the_global_random_state_is_left_alone(task):
    before = torch.get_rng_state()
    one, again, other = (torch.cat([p.flatten() for p in task.model(seed).parameters()]) for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


# -- losses ---------------------------------------------------------------------------------------------------------


def scaled(task, images):
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (task.data.mean, task.data.std))
    return (images / 255 - mean) / std


def cut_by_hand(task, samples, seed):
    generator = make_generator(seed)
    cuts = [random_cut(scaled(task, image), labels, task.recipe, generator) for image, labels in samples]
    return (torch.stack(parts) for parts in zip(*cuts, strict=True))


@pytest.mark.parametrize("auxiliary", [0.4, 0.0])
def test_losses_are_one_per_sample_of_both_heads_of_normalised_cuts(task, auxiliary):
    task = Segmentation(replace(RECIPE, auxiliary=auxiliary), task.data)
    model = task.model(0).train()
    samples = [task.train[i] for i in range(4)]
    samples[2] = (samples[2][0], torch.full_like(samples[2][1], 255))
    losses = task.losses(model, task.collate(samples), make_generator(5))
    images, labels = cut_by_hand(task, samples, 5)
    heads = model(images)
    assert len(heads) == (2 if auxiliary else 1)
    expected = with_auxiliary(*heads, labels) if auxiliary else image_losses(*heads, labels).mean
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    assert losses[2] == 0
    assert (losses[[0, 1, 3]] > 0).all()
    losses.mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_a_batch_of_one_image_trains_although_batch_norm_needs_two(task):
    task = Segmentation(replace(RECIPE, size=64, crop=64), task.data)
    model, sample = task.model(0).train(), task.train[0]
    losses = task.losses(model, [sample], make_generator(5))
    assert losses.shape == (1,)
    losses.mean().backward()
    single = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    # To the last bit the same: the pooled features of twins are normalised to 0, where the ReLU after it has its kink.
    image, labels = random_cut(task._normalise(sample[0]), sample[1], task.recipe, make_generator(5))
    images = torch.stack([image, image]).contiguous(memory_format=torch.channels_last)
    twins = with_auxiliary(*model(images), torch.stack([labels, labels]))
    torch.testing.assert_close(losses.expand(2), twins)
    twins.mean().backward()
    for one, parameter in zip(single, model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)
    model.zero_grad()
    task.losses(model, [task.train[i] for i in range(4)], make_generator(5)).mean().backward()
    usual = max(parameter.grad.norm() for parameter in model.parameters())
    assert max(gradient.norm() for gradient in single) < 3 * usual  # nothing is divided by the twins' variance, 0


def test_losses_of_some_rows_are_those_they_have_in_the_whole_batch(task):
    model, samples, rows = task.model(0).eval(), [task.train[i] for i in range(4)], torch.tensor([3, 1])
    some, whole = (task.losses(model, samples, make_generator(1), chosen) for chosen in (rows, None))
    torch.testing.assert_close(some, whole[rows], rtol=1e-4, atol=1e-5)


def test_dropout_draws_from_the_given_generator(task):
    dropping = Segmentation(replace(RECIPE, dropout=0.5), task.data)
    model, samples = dropping.model(0).train(), [task.train[i] for i in range(2)]
    before = torch.get_rng_state()
    with torch.no_grad():
        one, again = (dropping.losses(model, samples, make_generator(1)) for _ in range(2))
        whole = task.losses(task.model(0).train(), samples, make_generator(1))  # the same cuts
    assert torch.equal(one, again)
    assert not torch.allclose(one, whole)
    assert torch.equal(torch.get_rng_state(), before)


def test_bf16_computes_in_bf16_and_gives_losses_in_fp32_and_fp16_needs_a_gpu(task):
    reduced = Segmentation(replace(RECIPE, precision="bf16"), task.data)
    model, samples = task.model(0).train(), [task.train[i] for i in range(4)]
    kinds = []
    model.head.register_forward_hook(lambda module, inputs, output: kinds.append(output.dtype))
    exact, rounded = (by.losses(model, samples, make_generator()) for by in (task, reduced))
    assert kinds == [torch.float32, torch.bfloat16]
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(exact, rounded, rtol=0.1, atol=0.1)
    with pytest.raises(ValueError, match="precision fp16 needs a GPU"):
        Segmentation(replace(RECIPE, precision="fp16"), task.data, "cpu")


# -- the metric -----------------------------------------------------------------------------------------------------


class Colour(nn.Module):
    """Logits that are random sums of the colours: wrong, and different at every pixel."""

    def __init__(self, classes):
        super().__init__()
        self.register_buffer("mixture", torch.randn(classes, 3, generator=make_generator(8)))

    def forward(self, images):
        return [torch.einsum("kc,bchw->bkhw", self.mixture, images)]


def slow_mean_iou(task, model):
    """Over all pixels of all images at the size of the label maps; classes that are nowhere do not count."""
    classes = len(task.data.classes)
    both, either = np.zeros(classes), np.zeros(classes)
    for i in range(len(task.test)):
        image, _ = task.test[i]
        labels = task.data.test.labels(i)
        logits = interpolate(model(scaled(task, image)[None])[0], labels.shape, mode="bilinear", align_corners=False)
        guesses = logits[0].argmax(0).numpy()
        for label in range(classes):
            here, there = (guesses == label)[labels != 255], (labels == label)[labels != 255]
            both[label] += (here & there).sum()
            either[label] += (here | there).sum()
    return 100 * (both[either > 0] / either[either > 0]).mean()


def test_the_metric_is_the_mean_iou_over_all_labelled_pixels(camvid):
    task = replace(RECIPE, size=12).create_task(camvid)
    assert task.test[0][0].shape[1:] == (12, 16)
    model = Colour(11).train()
    metric = task.evaluate(model)
    assert not model.training
    assert metric == pytest.approx(slow_mean_iou(task, model), rel=1e-5)
    assert 0 < metric < 50


def test_test_images_of_several_sizes_are_all_judged(tmp_path):
    write_ade20k(tmp_path)
    task = SegmentationRecipe("ade20k", NARROW, 1, size=24, crop=24).create_task(tmp_path)
    assert len({image.shape for image, _ in (task.test[i] for i in range(3))}) == 2
    model = Colour(150)
    assert task.evaluate(model) == pytest.approx(slow_mean_iou(task, model), rel=1e-5)


def test_pictures_show_the_middle_and_name_what_covers_most(task):
    images, captions = task.pictures([7, 2])
    assert images.shape == (2, 128, 128, 3)
    counts = np.bincount(task.data.train.labels(7).ravel(), minlength=256)[:11]
    first = task.data.classes[counts.argmax()]
    assert captions[0].split(", ")[0] == first
    assert len(captions[0].split(", ")) == 3
    assert task._caption(np.full((4, 4), 255, np.uint8)) == "nothing labelled"


# -- training -------------------------------------------------------------------------------------------------------


def test_epochs_are_pruned_and_reproducible_and_it_learns(task, tmp_path):
    recipe = replace(RECIPE, epochs=6, delta=0.8)
    methods = [MethodSpec.parse(name) for name in ("full", "infobatch-quantile")]
    before = torch.get_rng_state()
    full, pruned = Comparison(recipe, methods, [0], tmp_path / "one").run(task)
    assert torch.equal(torch.get_rng_state(), before)
    assert full.kept == (20,) * 6
    assert pruned.kept[0] == pruned.kept[-1] == 20 > pruned.kept[1]
    assert pruned.losses[-1] < 0.8 * pruned.losses[0]
    assert pruned.values[-1] > 1.5 * pruned.values[0]
    (again,) = Comparison(recipe, methods[1:], [0], tmp_path / "two").run(task)
    assert (again.losses, again.values, again.kept) == (pruned.losses, pruned.values, pruned.kept)


def test_pictures_read_by_workers_are_trained_as_those_read_here(tmp_path):
    write_ade20k(tmp_path, train=5, test=1)
    recipe = SegmentationRecipe("ade20k", NARROW, 2, batch_size=2, lr=0.01, size=40, crop=32, smallest=0.5, largest=2.0)
    histories = []
    for workers in (0, 1):
        mine = replace(recipe, workers=workers)
        training = Training(mine.create_task(tmp_path), mine, MethodSpec.parse("infobatch-quantile"), 0)
        training.train_epoch()
        histories.append((training.history["losses"], training.history["values"]))
    assert np.isfinite(histories[0][0]).all()
    assert histories[0] == histories[1]


def test_the_example_runs_as_its_first_lines_say():
    done = python(ROOT / "examples" / "segmentation.py", "--epochs", 4, "--images", 60)
    assert re.search(r"saved [1-4]\d\.\d% of full training", done.stdout)
    assert re.search(r"mean IoU \d+\.\d %", done.stdout)


def test_names_are_those_of_the_data_sets():
    assert SegmentationRecipe.choices["dataset"] == scenes.NAMES


def test_eighty_thousand_iterations_become_forty_eight():
    """The lengths that docs/segmentation.md tells of."""
    images, batch, epochs = 20_210, 16, round(80_000 * 16 / 20_210)
    data = infobatch.InfoBatch(range(images), epochs, method="infobatch-quantile", delta=0.85)
    made = 0
    for epoch in range(epochs):
        data.set_epoch(epoch)
        made += -(-len(data.sampler) // batch)
        data.update(torch.rand(len(data.sampler), generator=make_generator(epoch)), torch.tensor(list(data.sampler)))
    assert (epochs, epochs * -(-images // batch), made) == (63, 79_632, 47_832)
