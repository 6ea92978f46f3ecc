"""Keras 3 on torch trains on fewer samples, with its own loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from numpy.typing import NDArray

from infobatch import checkpoint
from infobatch.integrations.keras import PrunedData, PrunedModel

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SIZE, BATCH, EPOCHS = 101, 8, 4
STEPS = 13


def arrays() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    x = np.random.default_rng(0).normal(size=(SIZE, 5)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64)


def model(
    kind: type = PrunedModel, loss: Any = "sparse_categorical_crossentropy", rate: Any = 0.05, **options: Any
) -> Any:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(16, activation="relu", kernel_regularizer="l2")(inputs)
    made = kind(inputs, keras.layers.Dense(2, activation="softmax")(hidden))
    made.compile(keras.optimizers.SGD(rate), loss, **options)
    return made


class Diary(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []
        self.lrs: list[float] = []
        self.targets: list[Any] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.steps.append(0)
        self.targets.append(self.params["steps"])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps[-1] += 1
        self.lrs.append(float(self.model.optimizer.learning_rate))


def test_fewer_samples_in_the_same_steps_at_the_same_learning_rates() -> None:
    x, y = arrays()
    schedule = keras.optimizers.schedules.CosineDecay(0.05, EPOCHS * STEPS)
    own, ours = Diary(), Diary()
    model(keras.Model, rate=schedule).fit(x, y, BATCH, EPOCHS, verbose=0, callbacks=[own])
    data = PrunedData(x, y, EPOCHS, BATCH, delta=0.75)
    outcome = model(rate=schedule).fit(
        data, epochs=EPOCHS, verbose=0, callbacks=[ours], validation_data=(x[:20], y[:20])
    )
    assert own.steps == ours.steps == own.targets == ours.targets == [STEPS] * EPOCHS
    assert own.lrs == ours.lrs
    assert ours.lrs[-1] == pytest.approx(0, abs=1e-8)
    sizes = [epoch.seen for epoch in data.train_data.stats.epochs[:EPOCHS]]
    assert sizes[0] == sizes[-1] == SIZE
    assert max(sizes[1:-1]) < SIZE
    assert len(outcome.history["val_loss"]) == EPOCHS
    assert not np.isnan(data.train_data.scores).any()


def test_full_data_is_trained_on_as_by_keras() -> None:
    """The same batches to a plain Keras model: the same weights and the same loss."""
    x, y = arrays()
    data = PrunedData(x, y, 1, BATCH, method="full")
    ours, plain = model(), model(keras.Model)
    batches = list(data._batches)
    outcome = ours.fit(data, epochs=1, verbose=0, shuffle=False)
    losses = [plain.train_on_batch(x[batch], y[batch]) for batch in batches]
    for mine, theirs in zip(ours.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    sizes = [len(batch) for batch in batches]
    assert sum(sizes) == SIZE
    assert outcome.history["loss"][0] == pytest.approx(
        np.average([float(each) for each in losses], weights=sizes), rel=1e-3
    )


def test_each_score_is_its_samples_loss_and_losses_are_weighted() -> None:
    x, y = arrays()
    made, data = model(rate=0.0), PrunedData(x, y, 3, BATCH, delta=1.0)
    outcome = made.fit(data, epochs=3, verbose=0)
    expected = keras.losses.sparse_categorical_crossentropy(y, made.predict(x, verbose=0)).cpu().numpy()
    np.testing.assert_allclose(data.train_data.scores, expected, rtol=1e-4, atol=1e-6)
    # The weights of a plan add up to the size of the data, so that the loss of an epoch is near full data's.
    full = outcome.history["loss"][0]
    assert data.train_data.stats.epochs[1].kept < SIZE
    np.testing.assert_allclose(outcome.history["loss"], full, rtol=0.15)


def test_metrics_that_are_weighted_are_as_of_full_data() -> None:
    x, y = arrays()
    made = model(rate=0.0, metrics=["accuracy"], weighted_metrics=["accuracy"])
    right = made.predict(x, verbose=0).argmax(1) == y
    outcome = made.fit(PrunedData(x, y, 2, BATCH, delta=1.0), epochs=2, verbose=0)
    assert outcome.history["weighted_accuracy"][1] == pytest.approx(right.mean(), abs=0.12)


def test_a_fit_that_was_stopped_goes_on_bit_for_bit(tmp_path: Path) -> None:
    x, y = arrays()
    whole = model()
    data = PrunedData(x, y, EPOCHS, BATCH, delta=1.0)
    whole.fit(data, epochs=EPOCHS, verbose=0, shuffle=False)

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                checkpoint.save(first_data.train_data.state_dict(), tmp_path / "data.pt")
                self.model.save(tmp_path / "stopped.keras")
                self.model.stop_training = True

    first, first_data = model(), PrunedData(x, y, EPOCHS, BATCH, delta=1.0)
    first.fit(first_data, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[Stop()])
    second = keras.models.load_model(tmp_path / "stopped.keras")
    assert type(second) is PrunedModel
    again = PrunedData(x, y, EPOCHS, BATCH, delta=1.0)
    again.load_state_dict(checkpoint.load(tmp_path / "data.pt"))
    second.fit(again, epochs=EPOCHS, initial_epoch=again.train_data.epoch, verbose=0, shuffle=False)
    np.testing.assert_array_equal(again.train_data.scores, data.train_data.scores)
    for mine, theirs in zip(second.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_model_that_exists_and_other_data() -> None:
    x, y = arrays()
    made = keras.Sequential([keras.Input((5,)), keras.layers.Dense(2, activation="softmax")])
    before = made.get_weights()
    pruned = PrunedModel(made.inputs, made.outputs)
    pruned.compile("sgd", keras.losses.SparseCategoricalCrossentropy())
    pruned.fit(PrunedData(x, y, 2), epochs=2, verbose=0)
    assert not np.allclose(before[0], made.get_weights()[0])  # the same weights
    pruned.fit(x, y, sample_weight=np.ones(SIZE), epochs=1, verbose=0)
    assert pruned.evaluate(x, y, verbose=0) > 0


def test_what_is_refused() -> None:
    x, y = arrays()
    data = PrunedData(x, y, 2)
    with pytest.raises(ValueError, match=r"fit\(epochs=3\) and PrunedData\(epochs=2\) must be the same"):
        model().fit(data, epochs=3)
    with pytest.raises(ValueError, match="begin with initial_epoch=0"):
        model().fit(data, epochs=2, initial_epoch=1)
    with pytest.raises(ValueError, match="class_weight"):
        model().fit(data, epochs=2, class_weight={0: 1.0, 1: 2.0})
    with pytest.raises(ValueError, match="sum_over_batch_size"):
        model(loss=keras.losses.SparseCategoricalCrossentropy(reduction="sum")).fit(data, epochs=2)
    with pytest.raises(ValueError, match="must return one value per sample"):
        model(loss=lambda y, p: keras.ops.sum(p)).fit(data, epochs=2)
    with pytest.raises(ValueError, match="one entry per sample: got 101 and 50"):
        PrunedData(x, y[:50], 2)
