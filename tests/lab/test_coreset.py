"""Static methods in a comparison: teachers trained once, subsets selected by them, and training on these."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from infobatch import static
from infobatch.lab.comparison import RECORD, SELECTION, TEACHERS, Comparison
from infobatch.lab.coreset import ChosenSubset, Teachers
from infobatch.lab.method import MethodSpec
from infobatch.lab.tasks.classification import Classification, ClassificationRecipe
from infobatch.lab.tasks.task import Task
from infobatch.lab.training import Training
from lab.test_comparison import RECIPE as SLOWER
from lab.test_comparison import task

RECIPE = replace(SLOWER, epochs=3, augment="none", samples=400)


def spec(text):
    return MethodSpec.parse(text)


class Untested(Classification):
    """A task whose test data must not be looked at."""

    def __init__(self):
        super().__init__(task().recipe, task().data)

    def evaluate(self, model):
        raise AssertionError("a teacher must not see the test")


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teachers")
    Teachers(RECIPE, folder).select(Untested(), spec("static-el2n:fraction=0.5,teachers=2"), 0)
    return folder


def arrays(folder, number=0):
    return static.Collected.load(folder / "seed-0" / str(number) / "arrays.npz")


def test_a_teacher_tells_what_it_makes_of_every_sample_after_each_epoch(taught):
    outputs = arrays(taught)
    assert len(outputs) == 400
    assert outputs.correct.shape == (3, 400)
    np.testing.assert_array_equal(outputs.labels, task().labels)
    np.testing.assert_array_equal(outputs.correct[-1], outputs.logits.argmax(1) == outputs.labels)
    assert outputs.correct[-1].mean() > outputs.correct[0].mean() > 0.05
    assert not np.array_equal(outputs.logits, arrays(taught, 1).logits)  # a teacher has a seed of its own


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("static-herding:fraction=0.3,balanced=true", {"balanced": True}),
        ("static-forgetting:fraction=0.3", {}),
        ("static-craig:fraction=0.3,on=features", {"on": "features"}),
    ],
)
def test_what_is_selected_is_what_the_method_selects_from_the_teachers_arrays(taught, text, options):
    ticks = []
    chosen = Teachers(RECIPE, taught).select(Untested(), spec(text), 0, ticks.append)
    assert not ticks  # the teacher was there
    expected = static.select(spec(text).static, arrays(taught), 0.3, seed=0, **options)
    np.testing.assert_array_equal(chosen.selection.indices, expected.indices)
    np.testing.assert_array_equal(chosen.selection.weights, expected.weights)
    costs = json.loads((taught / "seed-0" / "0" / "seconds.json").read_text())
    assert costs["arrays"] < chosen.seconds < costs["arrays"] + 30


def test_several_teachers_are_averaged_and_all_paid_for(taught):
    chosen = Teachers(RECIPE, taught).select(Untested(), spec("static-el2n:fraction=0.5,teachers=2"), 0)
    expected = static.select("el2n", [arrays(taught, 0), arrays(taught, 1)], 0.5)
    np.testing.assert_array_equal(chosen.selection.indices, expected.indices)
    costs = [json.loads((taught / "seed-0" / n / "seconds.json").read_text())["arrays"] for n in "01"]
    assert chosen.seconds > sum(costs)


@pytest.mark.parametrize("name", ["glister", "influence"])
@pytest.mark.parametrize("fraction", [0.2, 0.9])
def test_a_tenth_of_the_training_samples_is_held_out_for_validation_and_never_selected(taught, name, fraction):
    """The oracle selects from arrays that do not hold those samples; the count is a share of all samples."""
    text = f"static-{name}:fraction={fraction},balanced=true"
    chosen = Teachers(RECIPE, taught).select(Untested(), spec(text), 0).selection
    held_out = np.random.default_rng(0).permutation(400)[:40]
    assert not np.isin(chosen.indices, held_out).any()
    assert len(chosen) == 400 * fraction
    rest, validation = np.setdiff1d(np.arange(400), held_out), arrays(taught).take(np.sort(held_out))
    alone = arrays(taught).take(rest)
    expected = static.select(name, alone, len(chosen), balanced=True, seed=0, validation=validation)
    np.testing.assert_array_equal(chosen.indices, rest[expected.indices])


def test_distances_are_measured_when_they_are_asked_for(taught):
    small = taught / "seed-0" / "0"
    assert not (small / "distances.npy").exists()
    before = (small / "arrays.npz").stat().st_mtime_ns
    chosen = Teachers(RECIPE, taught).select(Untested(), spec("static-deepfool:fraction=0.2"), 0)
    distances = np.load(small / "distances.npy")
    assert distances.shape == (400,)
    assert distances[chosen.selection.indices].max() <= np.delete(distances, chosen.selection.indices).min()
    assert (small / "arrays.npz").stat().st_mtime_ns == before
    assert "distances" in json.loads((small / "seconds.json").read_text())


def test_random_needs_no_teacher(tmp_path):
    teachers, method = Teachers(RECIPE, tmp_path / "none"), spec("static-random:fraction=0.25,balanced=true")
    assert teachers.missing(method, 0) == set()
    chosen = teachers.select(Untested(), method, 0)
    assert len(chosen.selection) == 100
    assert not (tmp_path / "none").exists()


def test_teachers_that_are_missing_are_counted(taught):
    teachers = Teachers(RECIPE, taught)
    assert teachers.missing(spec("static-el2n:fraction=0.5,teachers=2"), 0) == set()
    assert len(teachers.missing(spec("static-grand:fraction=0.5,teachers=4"), 0)) == 2
    assert teachers.missing(spec("infobatch"), 0) == set()
    assert (teachers.epochs, Teachers(replace(RECIPE, epochs=50), taught).epochs) == (3, 10)


# -- training -------------------------------------------------------------------------------------------------------


def test_a_comparison_trains_on_the_subset_and_records_it_as_part_of_all_the_data(tmp_path):
    methods = ["full", "static-margin:fraction=0.25", "static-random:fraction=0.25"]
    mine = Comparison(RECIPE, [spec(m) for m in methods], [0], tmp_path)
    assert mine.epochs_ahead() == 3 * 3 + 3
    full, margin, random = mine.run(task())
    assert mine.epochs_ahead() == 0
    place = tmp_path / "static-margin-fraction=0.25" / "seed-0"
    chosen = ChosenSubset.load(place / SELECTION).selection.indices
    assert margin.kept == (100,) * 3
    assert margin.total == full.total == 400
    assert margin.saving == pytest.approx(0.75)
    assert margin.preparation > random.preparation > 0 == full.preparation
    scores = np.load(place / "scores.npy")
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(scores)), chosen)
    assert {index for index, _ in margin.hardest} <= set(chosen.tolist())
    assert {index for index, _ in margin.most_pruned}.isdisjoint(chosen)
    assert all(count == 3 for _, count in margin.most_pruned)
    (place / RECORD).unlink()
    ticks = []
    again = mine.run(task(), ticks.append)[1]
    assert {tick.method for tick in ticks} == {"static-margin:fraction=0.25"}  # no teacher: the selection was kept
    assert again.values == margin.values
    assert (tmp_path / TEACHERS / "seed-0" / "0").is_dir()


class Fixed(Task):
    """Losses that are known: sample i has the loss i."""

    metric, higher_is_better = "nothing", True
    train = torch.arange(10.0)

    @staticmethod
    def collate(batch):
        return torch.stack(batch)

    def model(self, seed):
        return nn.Linear(1, 1)

    def losses(self, model, batch, generator):
        return batch + 0 * model(batch[:, None])[:, 0]

    def evaluate(self, model):
        return 0.0


def test_weights_of_a_selection_multiply_losses_by_their_share_of_the_mean():
    recipe = ClassificationRecipe("cifar10", "small-cnn", 1, batch_size=2)
    selection = static.Selection(np.array([1, 4, 9]), np.array([1.0, 1.0, 4.0]))
    run = Training(Fixed(), recipe, spec("static-craig:fraction=0.3"), 0, ChosenSubset(selection, 1.5))
    run.train_epoch()
    assert run.history["losses"] == [pytest.approx((0.5 * 1 + 0.5 * 4 + 2 * 9) / 3)]
    assert run.train_data.scores.tolist() == [1, 4, 9]  # losses as they were
    assert run.left_out.tolist() == [1, 0, 1, 1, 0, 1, 1, 1, 1, 0]
    plain = Training(
        Fixed(), recipe, spec("static-craig:fraction=0.3"), 0, ChosenSubset(replace_weights(selection), 1.5)
    )
    plain.train_epoch()
    assert plain.history["losses"] == [pytest.approx(14 / 3)]


def replace_weights(selection):
    return static.Selection(selection.indices, np.full(3, 7.0))


def test_a_task_without_labels_is_told(tmp_path):
    with pytest.raises(ValueError, match="static-herding selects from images with labels, got Fixed: choose"):
        Teachers(RECIPE, tmp_path).select(Fixed(), spec("static-herding:fraction=0.5"), 0)
