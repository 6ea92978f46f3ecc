"""The training loop: averaged weights, mixed inputs, methods that choose within the batch or look at what is hidden."""

import itertools
from dataclasses import replace

import pytest
import torch

from infobatch.lab.method import MethodSpec
from infobatch.lab.tasks.classification import Classification
from infobatch.lab.training import Training
from lab.tasks.test_classification import IMAGES, RECIPE

MIXED = replace(RECIPE, epochs=4, lr=0.05, mixup=0.2, cutmix=1.0, random_erase=0.3, ema=0.9, label_smoothing=0.1)


class Watched(Classification):
    """Remembers the weights before each step, and what was judged."""

    def __init__(self, recipe):
        super().__init__(recipe, IMAGES)
        self.seen, self.judged, self.shown = [], [], []

    def losses(self, model, batch, generator, rows=None):
        count = len(batch[1] if rows is None else rows)
        self.seen.append((count, torch.is_grad_enabled(), weights(model)))
        return super().losses(model, batch, generator, rows)

    def _training_logits(self, model, images, generator):
        self.shown.append((torch.is_grad_enabled(), images.clone()))
        return super()._training_logits(model, images, generator)

    def evaluate(self, model):
        self.judged.append(weights(model))
        return super().evaluate(model)


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items() if value.is_floating_point()}


def training(recipe, method="infobatch"):
    return Training(Watched(recipe), recipe, MethodSpec.parse(method), 0)


def test_the_model_is_judged_by_the_running_average_of_its_weights():
    run = training(replace(RECIPE, lr=0.1, ema=0.9), "full")
    run.train_epoch()
    _, *after = [current for _, _, current in run.task.seen]
    expected = None
    for current in [*after, weights(run.model)]:
        mixed = {name: 0.9 * expected[name] + 0.1 * current[name] for name in current} if expected else current
        expected = mixed
    [judged] = run.task.judged
    for name in expected:
        torch.testing.assert_close(judged[name], expected[name], rtol=1e-4, atol=1e-6)
    assert not torch.equal(judged["0.weight"], weights(run.model)["0.weight"])


def test_without_an_average_the_model_itself_is_judged():
    run = training(RECIPE, "full")
    run.train_epoch()
    assert torch.equal(run.task.judged[0]["0.weight"], weights(run.model)["0.weight"])


def test_the_test_data_is_looked_at_as_often_as_the_recipe_says_and_at_the_end():
    run = training(replace(RECIPE, epochs=5, judge_every=2), "full")
    while not run.finished:
        run.train_epoch()
    assert [value == value for value in run.history["values"]] == [False, True, False, True, True]
    assert len(run.task.judged) == 3


@pytest.mark.parametrize(
    "method", ["full", "random", "random:rescale=true", "selective-backprop:start=0.0,interrupt=0"]
)
def test_the_loss_of_an_epoch_is_a_mean_whatever_the_method_leaves_out(method):
    """With a rate of 0 and no augmentation it changes only by chance: by which samples are in the epoch."""
    run = training(replace(RECIPE, epochs=3, lr=0.0, schedule="constant", batch_size=8), method)
    for _ in range(2):
        run.train_epoch()
    first, second = run.history["losses"]
    assert run.history["kept"][1] < run.history["kept"][0] or method == "full"
    assert second == pytest.approx(first, rel=0.25)


def test_mixed_training_prunes_and_goes_on_as_if_never_interrupted():
    whole, first = training(MIXED), training(MIXED)
    while not whole.finished:
        whole.train_epoch()
    kept = whole.history["kept"]
    assert kept[0] == 60 > kept[1]
    assert max(whole.train_data.scores) <= 2  # A.3's, not losses
    first.train_epoch()
    first.train_epoch()
    second = training(MIXED)
    second.load_state_dict(first.state_dict())
    while not second.finished:
        second.train_epoch()
    assert second.history["values"] == whole.history["values"]
    assert second.history["losses"] == whole.history["losses"]
    for name, value in whole.average.state_dict().items():
        assert torch.equal(value, second.average.state_dict()[name])


def test_a_method_that_chooses_within_the_batch_trains_on_what_it_chose():
    run = training(replace(RECIPE, epochs=3), "selective-backprop:keep=0.5,start=0.0,end=1.0,interrupt=0")
    ticks = []
    while not run.finished:
        run.train_epoch(ticks.append)
    looked = [size for size, graded, _ in run.task.seen if not graded]
    trained = [size for size, graded, _ in run.task.seen if graded]
    assert (len(looked), len(trained)) == (8, 12)  # the first epoch is full
    assert sum(looked) == 120
    assert sum(trained) == sum(run.history["kept"]) == run.train_data.stats.seen < 180
    assert [tick.done for tick in ticks if tick.done == tick.kept] == [60] * 3
    assert run.record({}).saving == pytest.approx(1 - sum(trained) / 180)


def test_last_layer_gradients_for_a_method_that_chooses_by_them():
    """Against autograd, sample by sample, of the model in evaluation mode, which is put back; labels are smoothed."""
    run = training(replace(RECIPE, epochs=2, label_smoothing=0.1), "divbs:keep=0.25")
    run.train_epoch()
    batch = run.task.collate(run.train_data.__getitems__(list(range(6))))
    run.model.train()
    look, (errors, features) = run._look_at(batch)
    assert run.model.training
    assert torch.is_grad_enabled()
    assert not look.requires_grad
    run.model.eval()
    losses = run.task.losses(run.model, batch, run.generator)
    torch.testing.assert_close(look, losses.detach())
    layer = [module for module in run.model.modules() if isinstance(module, torch.nn.Linear)][-1]
    for i, loss in enumerate(losses):
        (expected,) = torch.autograd.grad(loss, layer.weight, retain_graph=True)
        torch.testing.assert_close(torch.outer(errors[i], features[i]), expected)
    run.train_epoch()
    assert run.history["kept"] == [60, 3 * 4 + 3]
    assert len([1 for _, graded, _ in run.task.seen if not graded]) == 1 + 4


def test_looks_are_taken_only_where_the_rule_chooses():
    """Composer's rule: of 10 epochs those from 5 to 8, and of their batches every second one."""
    run = training(replace(RECIPE, epochs=10, batch_size=6), "selective-backprop")
    while not run.finished:
        run.train_epoch()
    assert len([1 for _, graded, _ in run.task.seen if not graded]) == 4 * 5
    assert len([1 for _, graded, _ in run.task.seen if graded]) == 100


@pytest.mark.parametrize("erased", [0.0, 0.5])
def test_what_is_trained_on_is_augmented_as_what_was_looked_at_and_as_without_looks(erased):
    recipe = replace(RECIPE, epochs=4, lr=0.05, augment="crop-flip", random_erase=erased, batch_size=20)
    run, full = (training(recipe, method) for method in ("selective-backprop:end=1.0", "full"))
    for epoch in range(4):
        run.train_epoch()
        full.train_epoch()
        if epoch == 1:  # nothing was chosen so far
            assert run.history["losses"] == full.history["losses"]
    assert torch.equal(run.generator.get_state(), full.generator.get_state())
    looks = 0
    for (graded, look), (_, shown) in itertools.pairwise(run.task.shown):
        if not graded:
            looks += 1
            assert len(shown) == 10
            assert all((image == look).flatten(1).all(1).any() for image in shown)
    assert looks == 4


def test_a_method_that_looks_at_what_it_left_out_gets_new_scores_of_it():
    run = training(replace(RECIPE, epochs=4, lr=0.1), "kakurenbo:fraction=0.3,confidence=0.01")
    run.train_epoch()
    before = run.train_data.scores.copy()
    run.train_data.set_epoch(1)
    left_out = run.train_data.left_out
    assert len(left_out) > 0
    run.train_epoch()
    assert (run.train_data.scores[left_out] != before[left_out]).all()
    assert any(not graded for _, graded, _ in run.task.seen)
