import gzip
import re
import runpy
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from distributed.launch import ROOT
from infobatch.lab.comparison import Comparison
from infobatch.lab.data import fashion
from infobatch.lab.data.fashion_scenes import Scene, scene
from infobatch.lab.method import MethodSpec
from infobatch.lab.tasks import detection
from infobatch.lab.tasks.detection import (
    Detection,
    DetectionRecipe,
    Guesses,
    average_precision,
)

RECIPE = DetectionRecipe("fashion-scenes", "conditional-detr-tiny", 3, 8, "adamw", lr=2e-3, scenes=24, held_out=12)
DATA = fashion.load()
TRAIN, TEST = DATA.train, DATA.test


@pytest.fixture(scope="module")
def task():
    return Detection(RECIPE, TRAIN, TEST)


def make_generator():
    return torch.Generator().manual_seed(0)


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))


def test_the_original_files_of_a_folder_are_used_where_one_is_named(tmp_path):
    for name, split in (("train", DATA.train.head(40)), ("t10k", DATA.test.head(30))):
        write_idx(tmp_path / f"{name}-images-idx3-ubyte.gz", split.images)
        write_idx(tmp_path / f"{name}-labels-idx1-ubyte.gz", split.labels)
    made = RECIPE.create_task(tmp_path)
    expected = scene(DATA.train.head(40), 0, 0)
    assert torch.equal(made.train[0].image, expected.image)
    assert len(made.test) == 12
    assert len(replace(RECIPE, samples=5).create_task(tmp_path).train) == 5
    packaged = RECIPE.create_task()
    assert torch.equal(packaged.train[0].image, scene(TRAIN, 0, 0).image)
    assert torch.equal(packaged.test[0].image, scene(TEST, 1, 0).image)


def test_pictures_are_the_scenes_and_the_names_of_what_is_in_them(task):
    images, names = task.pictures([3, 1])
    np.testing.assert_array_equal(images[0], task.train[3].image.permute(1, 2, 0))
    assert names[1] == ", ".join(fashion.CLASSES[label] for label in task.train[1].labels)


# -- the task -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", detection.MODELS)
def test_losses_are_one_per_scene_whose_mean_is_the_models_own(name):
    trained = Detection(replace(RECIPE, model=name), TRAIN, TEST)
    model = trained.model(0)
    images, targets = trained.collate(trained.train.scenes)
    losses = trained.losses(model, (images, targets), make_generator())
    assert losses.shape == (24,)
    assert trained.mean_boxes == sum(len(target["boxes"]) for target in targets) / 24
    own = detection.create(name, 10)
    own.load_state_dict(model.state_dict())
    theirs = own.train()(pixel_values=(images / 255 - fashion.MEAN) / fashion.STD, labels=targets).loss
    torch.testing.assert_close(losses.mean(), theirs, rtol=1e-4, atol=1e-4)
    losses.mean().backward()
    theirs.backward()
    for (key, ours), other in zip(model.named_parameters(), own.parameters(), strict=True):
        assert (ours.grad is None) == (other.grad is None), key
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad, other.grad, rtol=1e-2, atol=1e-3)


def test_losses_of_some_rows_are_those_they_have_in_the_whole_batch(task):
    model, batch, rows = task.model(0).eval(), task.collate(task.train.scenes[:4]), torch.tensor([3, 1])
    some, whole = (task.losses(model, batch, make_generator(), chosen) for chosen in (rows, None))
    torch.testing.assert_close(some, whole[rows], rtol=1e-4, atol=1e-4)


def test_weights_come_from_the_seed_and_the_global_random_state_is_left_alone(task):
    before = torch.get_rng_state()
    one, again, other = (nn.utils.parameters_to_vector(task.model(seed).parameters()) for seed in (3, 3, 4))
    losses = [task.losses(task.model(3), task.collate(task.train.scenes[:4]), make_generator()) for _ in range(2)]
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(*losses)
    assert torch.equal(torch.get_rng_state(), before)


def test_fp16_on_the_cpu_is_refused():
    with pytest.raises(ValueError, match="precision fp16 needs a GPU"):
        Detection(replace(RECIPE, precision="fp16"), TRAIN, TEST, "cpu")


@pytest.mark.parametrize("name", ["detr-tiny", "deformable-detr-tiny"])
def test_a_model_that_sees_half_of_the_scenes_is_judged_so(name):
    judged = Detection(replace(RECIPE, model=name), TRAIN, TEST)
    known = {tuple(made.image.flatten().tolist()): made for made in judged.test.scenes[::2]}

    class Knows(nn.Module):
        """Says what is in the scenes it knows, and that there is nothing in the others."""

        def forward(self, pixel_values):
            images = (pixel_values * fashion.STD + fashion.MEAN) * 255
            softmax = name == "detr-tiny"
            logits, boxes = torch.full((len(images), 10, 10 + softmax), -9.0), torch.full((len(images), 10, 4), 0.01)
            if softmax:
                logits[..., 10] = 9.0
            for i, image in enumerate(images):
                if made := known.get(tuple(image.round().byte().flatten().tolist())):
                    for query, (label, box) in enumerate(zip(made.labels, made.boxes, strict=True)):
                        logits[i, query], logits[i, query, label], boxes[i, query] = -9.0, 9.0, box
            return SimpleNamespace(logits=logits, pred_boxes=boxes)

    guesses = [
        Guesses(made.boxes, made.labels, torch.ones(len(made.labels)))
        if i % 2 == 0
        else Guesses(torch.zeros(0, 4), torch.zeros(0).long(), torch.zeros(0))
        for i, made in enumerate(judged.test.scenes)
    ]
    precision = judged.evaluate(Knows())
    assert precision == pytest.approx(100 * average_precision(guesses, judged.test.scenes))
    assert 30 < precision < 70


# -- average precision ----------------------------------------------------------------------------------------------


def boxed(*labels_and_boxes):
    labels, boxes = zip(*labels_and_boxes, strict=True)
    return Scene(torch.zeros(1, 1, 1), torch.tensor(labels), torch.tensor(boxes))


LEFT, RIGHT, NEAR_LEFT = (0.2, 0.5, 0.2, 0.4), (0.8, 0.5, 0.2, 0.4), (0.22, 0.5, 0.2, 0.4)
SHIFTED = (0.27, 0.5, 0.2, 0.4)  # of LEFT it covers 0.13/0.27, less than half


@pytest.mark.parametrize(
    ("guesses", "expected"),
    [
        ([(0, LEFT, 0.9), (0, RIGHT, 0.8)], 1.0),
        ([(0, NEAR_LEFT, 0.9), (0, RIGHT, 0.8)], 1.0),
        ([(0, SHIFTED, 0.9), (0, RIGHT, 0.8)], 51 * 0.5 / 101),  # the first is wrong: precision ½ up to recall ½
        ([(0, LEFT, 0.9), (0, NEAR_LEFT, 0.8), (0, RIGHT, 0.7)], (51 + 50 * 2 / 3) / 101),  # LEFT is claimed once
        ([(0, LEFT, 0.9)], 51 / 101),
        ([(1, LEFT, 0.9), (0, RIGHT, 0.8)], 51 / 101),  # of a class that is not there: it counts for no class
        ([], 0.0),
    ],
)
def test_precision_of_one_class_by_hand(guesses, expected):
    labels, boxes, chances = zip(*guesses, strict=True) if guesses else ((), (), ())
    prediction = Guesses(torch.tensor(boxes).view(-1, 4), torch.tensor(labels).long(), torch.tensor(chances))
    assert average_precision([prediction], [boxed((0, LEFT), (0, RIGHT))]) == pytest.approx(expected)


def slow_precision(guesses, truth, threshold=0.5):
    """One guess after the other, over all pictures, from the surest on."""
    by_class = []
    for label in {int(label) for made in truth for label in made.labels}:
        ranked = sorted(
            (
                (-float(chance), picture, box.tolist())
                for picture, guess in enumerate(guesses)
                for box, mine, chance in zip(*guess, strict=True)
                if int(mine) == label
            ),
            key=lambda guess: guess[0],
        )
        boxes = [
            (picture, box.tolist())
            for picture, made in enumerate(truth)
            for mine, box in zip(made.labels, made.boxes, strict=True)
            if int(mine) == label
        ]
        claimed, curve = set(), []
        for rank, (_, picture, box) in enumerate(ranked, 1):
            overlaps = [
                (slow_iou(box, other), i) for i, (p, other) in enumerate(boxes) if p == picture and i not in claimed
            ]
            if overlaps and max(overlaps)[0] >= threshold:
                claimed.add(max(overlaps)[1])
            curve.append((len(claimed) / len(boxes), len(claimed) / rank))
        points = [max((p for recall, p in curve if recall >= step / 100 - 1e-9), default=0.0) for step in range(101)]
        by_class.append(sum(points) / 101)
    return sum(by_class) / len(by_class)


def slow_iou(a, b):
    width = min(a[0] + a[2] / 2, b[0] + b[2] / 2) - max(a[0] - a[2] / 2, b[0] - b[2] / 2)
    height = min(a[1] + a[3] / 2, b[1] + b[3] / 2) - max(a[1] - a[3] / 2, b[1] - b[3] / 2)
    common = max(width, 0) * max(height, 0)
    return common / (a[2] * a[3] + b[2] * b[3] - common)


@pytest.mark.parametrize("seed", range(4))
def test_precision_against_a_loop_over_all_guesses(seed):
    drawn = torch.Generator().manual_seed(seed)
    truth, guesses = [], []
    for _ in range(12):
        count = int(torch.randint(1, 4, (), generator=drawn))
        labels, boxes = torch.randint(3, (count,), generator=drawn), 0.2 + 0.3 * torch.rand(count, 4, generator=drawn)
        truth.append(Scene(torch.zeros(1, 1, 1), labels, boxes))
        tried = torch.randint(count, (6,), generator=drawn)
        wrong = torch.rand(6, generator=drawn) < 0.3
        classes = torch.where(wrong, torch.randint(3, (6,), generator=drawn), labels[tried])
        near = boxes[tried] + 0.05 * torch.randn(6, 4, generator=drawn)
        guesses.append(Guesses(near.clamp(0.05, 0.95), classes, torch.rand(6, generator=drawn)))
    precision = average_precision(guesses, truth)
    assert precision == pytest.approx(slow_precision(guesses, truth))
    assert 0.05 < precision < 0.95


def test_each_query_guesses_its_likeliest_class():
    boxes = torch.rand(2, 4, generator=make_generator())
    likeliest = Guesses.of(torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.0, 0.4]]), boxes)
    assert likeliest.labels.tolist() == [1, 0]
    assert likeliest.chances.tolist() == pytest.approx([0.7, 0.5])
    assert torch.equal(likeliest.boxes, boxes)


# -- the whole ------------------------------------------------------------------------------------------------------


def test_runs_are_pruned_learn_and_are_reproducible(task, tmp_path):
    methods = [MethodSpec.parse("full"), MethodSpec.parse("infobatch")]
    first, again = (Comparison(RECIPE, methods, [0], tmp_path / name).run(task) for name in ("one", "two"))
    full, pruned = first
    assert full.saving == 0
    assert pruned.saving > 0.05
    assert full.losses[-1] < 0.8 * full.losses[0]
    assert [record.losses for record in first] == [record.losses for record in again]


def test_the_example_runs(monkeypatch, capsys):
    options = ["--model", "conditional-detr-tiny", "--epochs", "3", "--scenes", "40", "--held-out", "10"]
    monkeypatch.setattr(sys, "argv", ["detection", *options])
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(ROOT / "examples" / "detection.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert re.search(r"saved [1-9]\d?\.\d% of full training", out)
    assert "AP at IoU 0.5" in out
