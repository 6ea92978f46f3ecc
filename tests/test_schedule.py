"""paced(): the learning rate as a function of training progress is the one of full data.

Every test trains a real parameter from a real loader, so that position, skipped steps and partial batches are what
they are for users. The yardstick is the same scheduler, unwrapped, stepped once for every step of full data.
"""

import copy
import io
import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import SGD
from torch.optim import lr_scheduler as lr
from torch.utils.data import DataLoader, TensorDataset

from infobatch import InfoBatch, paced

EPOCHS, SIZE, BATCH = 8, 42, 4  # 11 steps in a full epoch, the last of 2 samples
STEPS = math.ceil(SIZE / BATCH)

SCHEDULERS = {
    "OneCycle": lambda opt, steps: lr.OneCycleLR(opt, max_lr=0.3, total_steps=steps),
    "Cosine": lambda opt, steps: lr.CosineAnnealingLR(opt, T_max=steps),
    "WarmRestarts": lambda opt, steps: lr.CosineAnnealingWarmRestarts(opt, T_0=max(steps // 7, 1), T_mult=2),
    "MultiStep": lambda opt, steps: lr.MultiStepLR(opt, [steps // 3, 2 * steps // 3], gamma=0.1),
    "Step": lambda opt, steps: lr.StepLR(opt, step_size=5, gamma=0.9),
    "Lambda": lambda opt, steps: lr.LambdaLR(opt, lambda step: 1 / (1 + step)),
    "Sequential": lambda opt, steps: lr.SequentialLR(
        opt,
        [lr.LinearLR(opt, 0.01, total_iters=steps // 5), lr.CosineAnnealingLR(opt, T_max=steps - steps // 5)],
        milestones=[steps // 5],
    ),
    "Chained": lambda opt, steps: lr.ChainedScheduler(
        [lr.LinearLR(opt, 0.1, total_iters=steps // 4), lr.ExponentialLR(opt, 0.98)]
    ),
    "Linear": lambda opt, steps: lr.LinearLR(opt, 1.0, 0.01, total_iters=steps),
    "Polynomial": lambda opt, steps: lr.PolynomialLR(opt, total_iters=steps, power=2.0),
}


def optimizer():
    return SGD([torch.nn.Parameter(torch.ones(()))], lr=0.1)


def full_trajectory(make, steps):
    """The learning rate after 0, 1, … ``steps`` steps of full data."""
    opt = optimizer()
    scheduler = make(opt, steps)
    rates = [opt.param_groups[0]["lr"]]
    for _ in range(steps):
        opt.step()
        scheduler.step()
        rates.append(opt.param_groups[0]["lr"])
    return rates


@dataclass
class Training:
    """A training as a user writes it. ``rates`` maps (epoch, samples done, samples in all) to the rate set there."""

    make: object = SCHEDULERS["OneCycle"]
    size: int = SIZE
    batch: int = BATCH
    epochs: int = EPOCHS
    accumulate: int = 1
    step_tail: bool = True  # whether a last, incomplete group of batches is stepped
    drop_last: bool = False
    full_steps: int = STEPS  # of one epoch, for which the inner schedule is made
    steps_per_epoch: int | None = None
    skip: object = None  # (epoch, number of the step) -> whether the GradScaler finds an inf there
    step_when_skipped: bool = True  # both ways users write it
    options: dict = field(default_factory=dict)

    def __post_init__(self):
        data = TensorDataset(torch.arange(self.size))
        self.train_data = InfoBatch(data, self.epochs, **{"ratio": 0.6, **self.options})
        self.loader = DataLoader(self.train_data, self.batch, sampler=self.train_data.sampler, drop_last=self.drop_last)
        self.optimizer = optimizer()
        self.scaler = None
        if self.skip is not None:
            self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        inner = self.make(self.optimizer, self.epochs * self.full_steps)
        self.scheduler = paced(inner, self.train_data, self.steps_per_epoch)
        self.rates = {}
        self.optimizer_steps = 0

    @property
    def rate(self):
        return self.optimizer.param_groups[0]["lr"]

    @property
    def weight(self):
        return self.optimizer.param_groups[0]["params"][0]

    def run(self, first=0, last=None, leave_after=None):
        for epoch in range(first, self.epochs if last is None else last):
            self.train_data.set_epoch(epoch)
            self.run_epoch(epoch, leave_after if epoch == 0 else None)
        return self

    def run_epoch(self, epoch, leave_after=None):
        batches, step = len(self.loader), 0
        for i, (samples,) in enumerate(self.loader, start=1):
            loss = self.train_data.update(self.weight * (samples % 10 + 1.0))
            tail = self.step_tail and i == batches
            stepped = i % self.accumulate == 0 or tail
            skipped = stepped and self.skip is not None and self.skip(epoch, step)
            loss = loss * math.inf if skipped else loss
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            if stepped:
                self.take_step(skipped)
                self.rates[(epoch, *self.train_data.position)] = self.rate
                step += 1
            if i == leave_after:
                return

    def take_step(self, skipped):
        if self.scaler is None:
            self.optimizer.step()
        else:
            scale = self.scaler.get_scale()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            assert (self.scaler.get_scale() < scale) == skipped
        self.optimizer.zero_grad()
        with torch.no_grad():
            self.weight.fill_(1.0)  # losses, and so plans, stay as they are
        self.optimizer_steps += not skipped
        if self.step_when_skipped or not skipped:
            self.scheduler.step()


def check(training):
    """Every rate is the full-data one at ⌊S·(e + p)⌋; with no error at the ends of epochs."""
    steps = training.full_steps
    full = full_trajectory(training.make, training.epochs * steps)
    ends = set()
    for (epoch, done, total), rate in training.rates.items():
        place = steps * epoch + steps * done // total
        assert rate == full[place], (epoch, done, total)
        if done == total:
            assert place == steps * (epoch + 1)
            ends.add(epoch)
    assert ends == set(range(training.epochs))


@pytest.mark.parametrize("name", SCHEDULERS)
def test_follows_the_full_trajectory(name):
    training = Training(SCHEDULERS[name]).run()
    check(training)
    assert training.train_data.stats.saved > 0
    assert training.optimizer_steps < EPOCHS * STEPS


@pytest.mark.parametrize("name", SCHEDULERS)
def test_without_pacing_it_would_not(name):
    """The yardstick can tell: the bare scheduler is elsewhere when pruned training ends."""
    training = Training(SCHEDULERS[name])
    training.scheduler = training.scheduler.scheduler
    training.run()
    full = full_trajectory(training.make, EPOCHS * STEPS)
    errors = [
        abs(rate - full[STEPS * (epoch + 1)]) for (epoch, done, total), rate in training.rates.items() if done == total
    ]
    assert errors[0] == 0
    assert max(errors) > 0


@pytest.mark.parametrize("name", ["OneCycle", "Sequential", "MultiStep"])
def test_the_first_epoch_is_stepped_once_per_step(name):
    """Before S is known: the schedule goes with every step, as on full data."""
    training = Training(SCHEDULERS[name]).run(last=1)
    assert list(training.rates.values()) == full_trajectory(training.make, EPOCHS * STEPS)[1 : STEPS + 1]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    size=st.integers(2, 60),
    batch=st.integers(1, 8),
    accumulate=st.integers(1, 3),
    epochs=st.integers(2, 5),
    given_steps=st.booleans(),
)
def test_any_size_batch_and_accumulation(size, batch, accumulate, epochs, given_steps):
    steps = math.ceil(math.ceil(size / batch) / accumulate)
    training = Training(
        SCHEDULERS["Lambda"],
        size=size,
        batch=batch,
        accumulate=accumulate,
        epochs=epochs,
        full_steps=steps,
        steps_per_epoch=steps if given_steps else None,
    )
    check(training.run())


@pytest.mark.parametrize("accumulate", [2, 3])
@pytest.mark.parametrize("size", [42, 48])  # 11 or 12 batches: with and without a tail
@pytest.mark.parametrize("name", ["OneCycle", "MultiStep"])
def test_accumulation_with_the_tail_stepped(name, accumulate, size):
    steps = math.ceil(math.ceil(size / BATCH) / accumulate)
    check(Training(SCHEDULERS[name], size=size, accumulate=accumulate, full_steps=steps).run())


@pytest.mark.parametrize(
    ("size", "drop_last", "accumulate"),
    [(42, False, 2), (42, False, 3), (42, False, 4), (42, True, 3), (42, True, 4), (46, False, 5), (46, True, 2)],
)
def test_accumulation_with_the_tail_not_stepped(size, drop_last, accumulate):
    """With whole groups of batches only: where an epoch's last one is stepped, the epoch is done for the schedule."""
    batches = size // BATCH if drop_last else math.ceil(size / BATCH)
    steps, group = batches // accumulate, BATCH * accumulate
    training = Training(
        SCHEDULERS["Linear"],
        size=size,
        accumulate=accumulate,
        step_tail=False,
        drop_last=drop_last,
        full_steps=steps,
    ).run()
    full = full_trajectory(training.make, EPOCHS * steps)
    last_of_epoch = {epoch: rate for (epoch, _, _), rate in training.rates.items()}
    assert last_of_epoch == {epoch: full[steps * (epoch + 1)] for epoch in range(EPOCHS)}
    for (epoch, done, total), rate in training.rates.items():
        assert rate == full[steps * epoch + steps * (done // group) // (total // group)]


@pytest.mark.parametrize("accumulate", [2, 3])
def test_accumulation_with_a_tail_in_pruned_epochs_only(accumulate):
    """The first epoch divides: nothing tells that a tail would not be stepped, and samples are counted."""
    steps = 12 // accumulate
    training = Training(SCHEDULERS["Linear"], size=48, accumulate=accumulate, step_tail=False, full_steps=steps).run()
    full = full_trajectory(training.make, EPOCHS * steps)
    for (epoch, done, total), rate in training.rates.items():
        assert rate == full[steps * epoch + steps * done // total]
    assert training.rate == full[-1]


@pytest.mark.parametrize("size", [42, 41, 40])
def test_drop_last(size):
    training = Training(size=size, drop_last=True, full_steps=10).run()
    check(training)
    assert training.train_data.stats.epochs[0].seen == 40


@pytest.mark.parametrize("name", SCHEDULERS)
def test_with_the_steps_of_a_full_epoch_given(name):
    check(Training(SCHEDULERS[name], steps_per_epoch=STEPS).run())


# -- steps that a GradScaler skips -------------------------------------------------------------------------------

SKIPS = {
    "the first two of all": lambda epoch, step: epoch == 0 and step < 2,
    "some in the first epoch": lambda epoch, step: epoch == 0 and step in (0, 4, 5, 8),
    "some in pruned epochs": lambda epoch, step: epoch in (1, 3) and step in (0, 2),
    "the first of every epoch": lambda epoch, step: step == 0,
    "a few everywhere": lambda epoch, step: (5 * epoch + step) % 4 == 1 and step < 5,
}


each_style = pytest.mark.parametrize("step_when_skipped", [True, False], ids=["step always", "step when not skipped"])


@each_style
@pytest.mark.parametrize("given_steps", [False, True])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("skip", SKIPS.values(), ids=SKIPS)
def test_skipped_steps(skip, accumulate, given_steps, step_when_skipped):
    """A skipped step does not move the schedule; the next real one takes it to where training stands."""
    steps = math.ceil(STEPS / accumulate)
    training = Training(
        SCHEDULERS["Linear"],
        skip=skip,
        step_when_skipped=step_when_skipped,
        accumulate=accumulate,
        full_steps=steps,
        steps_per_epoch=steps if given_steps else None,
    ).run()
    full = full_trajectory(training.make, EPOCHS * steps)
    before, count = full[0], Counter()
    for (epoch, done, total), rate in training.rates.items():
        if skip(epoch, count[epoch]):
            assert rate == before
        elif epoch or given_steps or done == total:  # how long a step is must first be learned
            assert rate == full[steps * epoch + steps * done // total]
        count[epoch] += 1
        before = rate
    assert training.optimizer_steps < len(training.rates)


@each_style
@pytest.mark.parametrize("size", [40, 42])
def test_the_last_step_of_the_first_epoch_is_skipped(size, step_when_skipped):
    """It belongs to the steps of a full epoch all the same, whole or partial as its batch may be."""
    steps = math.ceil(size / BATCH)
    training = Training(
        SCHEDULERS["Linear"],
        size=size,
        full_steps=steps,
        skip=lambda epoch, step: epoch == 0 and step == steps - 1,
        step_when_skipped=step_when_skipped,
    ).run()
    full = full_trajectory(training.make, EPOCHS * steps)
    for (epoch, done, total), rate in training.rates.items():
        if epoch > 0:
            assert rate == full[steps * epoch + steps * done // total]


def test_half_of_a_short_first_epoch_is_skipped():
    """Two steps in an epoch, the very first one skipped: still two."""
    training = Training(
        SCHEDULERS["Linear"], size=8, full_steps=2, epochs=16, skip=lambda epoch, step: epoch == step == 0
    ).run()
    assert training.rate == full_trajectory(training.make, 32)[-1]


# -- epochs left early, going on, mistakes -----------------------------------------------------------------------


@pytest.mark.parametrize("batches", [3, 9, 10])
def test_a_first_epoch_left_early_still_tells_how_long_it_would_have_been(batches):
    training = Training(SCHEDULERS["Linear"]).run(leave_after=batches)
    full = full_trajectory(training.make, EPOCHS * STEPS)
    for (epoch, done, total), rate in training.rates.items():
        assert rate == full[STEPS * epoch + STEPS * done // total if epoch else math.ceil(done / BATCH)]
    assert training.rate == full[-1]


@pytest.mark.parametrize("name", ["OneCycle", "Sequential", "WarmRestarts", "Chained"])
@pytest.mark.parametrize(("epoch", "leave_after"), [(0, 5), (0, 11), (2, 3), (7, 2)])
def test_goes_on_from_its_state_in_the_middle_of_training(name, epoch, leave_after):
    whole = Training(SCHEDULERS[name]).run()

    first = Training(SCHEDULERS[name])
    first.run(last=epoch)
    first.train_data.set_epoch(epoch)
    first.run_epoch(epoch, leave_after)
    file = io.BytesIO()
    parts = {"data": first.train_data, "schedule": first.scheduler, "optimizer": first.optimizer}
    torch.save({part: owner.state_dict() for part, owner in parts.items()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)

    second = Training(SCHEDULERS[name])
    second.train_data.load_state_dict(saved["data"])
    second.scheduler.load_state_dict(saved["schedule"])
    second.optimizer.load_state_dict(saved["optimizer"])
    second.run(first=second.train_data.epoch)
    assert {**first.rates, **second.rates} == whole.rates
    assert second.scheduler.get_last_lr() == whole.scheduler.get_last_lr() == [whole.rate]


@pytest.mark.parametrize(
    "make",
    [
        lambda opt: lr.StepLR(opt, 2, gamma=0.5),
        lambda opt: lr.CosineAnnealingLR(opt, T_max=EPOCHS),
        lambda opt: lr.ReduceLROnPlateau(opt, patience=0),
    ],
)
def test_schedulers_that_step_once_per_epoch_need_nothing(make):
    def rates(method):
        data = TensorDataset(torch.arange(SIZE))
        train_data = InfoBatch(data, EPOCHS, method=method)
        loader = DataLoader(train_data, BATCH, sampler=train_data.sampler)
        opt = optimizer()
        scheduler = make(opt)
        found = []
        for _ in range(EPOCHS):
            for (samples,) in loader:
                train_data.update(samples + 1.0)
                opt.step()
            scheduler.step(*([1.0] if isinstance(scheduler, lr.ReduceLROnPlateau) else []))
            found.append(opt.param_groups[0]["lr"])
        return found

    assert rates("infobatch") == rates("full")
    assert len(set(rates("full"))) > 2


def test_the_rest_is_the_inner_schedulers_own():
    training = Training(SCHEDULERS["Cosine"]).run(last=2)
    inner = training.scheduler.scheduler
    assert isinstance(training.scheduler, lr.LRScheduler)
    assert training.scheduler.last_epoch == inner.last_epoch == 2 * STEPS
    assert training.scheduler.base_lrs == inner.base_lrs
    assert training.scheduler.T_max == EPOCHS * STEPS
    assert training.scheduler.optimizer is training.optimizer
    assert training.scheduler.get_last_lr() == [training.rate]
    with pytest.raises(AttributeError, match="nonsense"):
        _ = training.scheduler.nonsense


def test_a_call_without_an_optimiser_step_does_nothing():
    training = Training().run(last=2)
    before = training.rate
    for _ in range(3):
        training.scheduler.step()
    assert training.rate == before


def test_it_can_be_copied():
    training = Training().run(last=2)
    assert copy.deepcopy(training.scheduler).get_last_lr() == [training.rate]


def test_past_the_last_epoch_the_trajectory_goes_on():
    training = Training(SCHEDULERS["Lambda"], epochs=3)
    training.run()
    training.train_data.set_epoch(3)
    training.run_epoch(3)
    assert training.rate == full_trajectory(training.make, 4 * STEPS)[-1]


def test_a_metric_scheduler_is_refused():
    train_data = InfoBatch(range(4), num_epochs=2)
    with pytest.raises(TypeError, match=r"got ReduceLROnPlateau.*needs no pacing"):
        paced(lr.ReduceLROnPlateau(optimizer()), train_data)
    with pytest.raises(TypeError, match=r"scheduler must be a torch scheduler.*got SGD"):
        paced(optimizer(), train_data)


@pytest.mark.parametrize("wrong", [0, -3, 2.5, "10", True])
def test_wrong_steps_per_epoch_are_refused(wrong):
    with pytest.raises(ValueError, match="steps_per_epoch must be a whole number from 1 on"):
        paced(lr.StepLR(optimizer(), 1), InfoBatch(range(4), num_epochs=2), steps_per_epoch=wrong)


def test_an_epoch_given_to_step_is_refused():
    with pytest.raises(ValueError, match=r"step\(\) of a paced schedule takes no epoch, got 3: it follows"):
        Training().scheduler.step(3)


def test_starting_late_without_steps_per_epoch_says_what_to_do():
    training = Training()
    with pytest.raises(RuntimeError, match=r"did not see the first epoch: pass steps_per_epoch to paced\(\), or load"):
        training.run(first=1)


def test_starting_late_with_steps_per_epoch():
    training = Training(SCHEDULERS["Linear"], steps_per_epoch=STEPS).run(first=1)
    assert training.rate == full_trajectory(training.make, EPOCHS * STEPS)[-1]


def test_the_state_of_a_bare_scheduler_is_refused_with_a_remedy():
    training = Training()
    before = training.scheduler.state_dict()
    with pytest.raises(ValueError, match=r"not that of a paced schedule.*scheduler\.load_state_dict\(state\); paced"):
        training.scheduler.load_state_dict(lr.StepLR(optimizer(), 1).state_dict())
    assert training.scheduler.state_dict() == before


def test_steps_per_epoch_of_numpy():
    assert paced(lr.StepLR(optimizer(), 1), InfoBatch(range(4), num_epochs=2), np.int64(5)).steps_per_epoch == 5
