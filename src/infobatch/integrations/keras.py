"""Keras 3 on torch: ``PrunedModel(inputs, outputs).fit(PrunedData(x, y, epochs=10), epochs=10)``.

The data passes each batch's sample indices to the model in the place of sample weights, because Keras shuffles the
order of batches by itself; the model looks up the weights, trains with them by Keras' own loss, and records each
sample's loss. Every epoch has as many steps as full data, in smaller batches: Keras counts the steps only once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..core.checks import check_whole
from ..dataset import InfoBatch
from . import needs

with needs("keras", "keras"):
    import keras

__all__ = ["InfoBatchMixin", "PrunedData", "PrunedModel"]

if keras.backend.backend() != "torch":
    raise ImportError(
        f"this integration needs Keras on torch, but its backend is {keras.backend.backend()!r}: set the environment "
        'variable KERAS_BACKEND="torch" before keras is first imported'
    )


class PrunedData(keras.utils.PyDataset):
    """Training data with fewer samples in each epoch, from arrays or anything that is read by an array of indices.

    ``epochs`` must be the ``epochs`` of ``fit``. Options are those of :class:`InfoBatch`, such as ``method``;
    ``train_data`` is the InfoBatch, with ``summary()`` and ``state_dict()``.
    """

    def __init__(self, x: Any, y: Any, epochs: int, batch_size: int = 32, **options: Any) -> None:
        super().__init__()  # with one worker: several fetch the next epoch's batches before it is planned
        check_whole("batch_size", batch_size, 1, "the batch size of full data")
        if len(x) != len(y):
            raise ValueError(f"x and y must have one entry per sample: got {len(x)} and {len(y)}")
        self.x, self.y, self.epochs = x, y, epochs
        self.train_data = InfoBatch(range(len(x)), epochs, **options)
        self._steps = self.train_data.batches(batch_size)
        self._plan()

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, batch: int) -> tuple[Any, Any, Any]:
        index = np.asarray(self._batches[batch])
        return self.x[index], self.y[index], index

    def on_epoch_end(self) -> None:
        """Plan the next epoch."""
        self._plan()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume where ``train_data.state_dict()`` was saved, at the end of an epoch."""
        self.train_data.load_state_dict(state)
        self._plan()

    def _plan(self) -> None:
        self._batches: list[list[int]] = list(self._steps)


class InfoBatchMixin:
    """A mixin before ``keras.Model`` that lets it train on :class:`PrunedData`; on other data nothing changes."""

    _pruned: PrunedData | None = None
    _pruned_index: torch.Tensor | None = None  # of the current batch
    _pruned_weights: torch.Tensor | None = None  # of the current batch
    _pruned_checked = False

    def fit(self, x: Any = None, *args: Any, **options: Any) -> Any:
        """As ``keras.Model.fit``."""
        self._pruned = x if isinstance(x, PrunedData) else None
        self._pruned_index = None
        self._pruned_checked = False
        if self._pruned is not None:
            self._check_pruned_fit(args, options)
        return super().fit(x, *args, **options)  # type: ignore[misc]

    def _check_pruned_fit(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        data = self._pruned
        assert data is not None
        if args:
            raise TypeError("fit(PrunedData(...), ...) takes its other arguments by name: epochs=..., for example")
        if options.get("epochs", 1) != data.epochs:
            raise ValueError(
                f"fit(epochs={options.get('epochs', 1)}) and PrunedData(epochs={data.epochs}) must be the same: the "
                "last epochs are on full data, and which are the last depends on it"
            )
        if options.get("initial_epoch", 0) != data.train_data.epoch:
            raise ValueError(
                f"fit(initial_epoch={options.get('initial_epoch', 0)}), but the data stands at epoch "
                f"{data.train_data.epoch}: begin with initial_epoch={data.train_data.epoch}, or make a new PrunedData"
            )
        for name in ("class_weight", "steps_per_epoch"):
            if options.get(name) is not None:
                raise ValueError(f"{name}={options[name]!r} does not go with PrunedData. Leave it out")
        loss = self.loss  # type: ignore[attr-defined]
        if not (isinstance(loss, str | keras.losses.Loss) or callable(loss)):
            raise ValueError(f"loss={loss!r}: PrunedModel works for models with one output and one loss only")
        if getattr(keras.losses.get(loss), "reduction", "sum_over_batch_size") != "sum_over_batch_size":
            raise ValueError(f"loss={loss!r} must have reduction='sum_over_batch_size', Keras' default")

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        if self._pruned is None or not training:
            return super().compute_loss(x, y, y_pred, sample_weight, training)  # type: ignore[misc]
        index = self._pruned_index = sample_weight
        train_data = self._pruned.train_data
        losses = self._pruned_losses(y, y_pred)
        if not self._pruned_checked:
            self._check_pruned_loss(super().compute_loss(x, y, y_pred, None, training).detach(), losses)  # type: ignore[misc]
        self._pruned_weights = train_data.weights_of(index).to(losses.device, losses.dtype)
        train_data.update(losses, index)
        return super().compute_loss(x, y, y_pred, self._pruned_weights, training)  # type: ignore[misc]

    def _pruned_losses(self, y: Any, y_pred: torch.Tensor) -> torch.Tensor:
        """The loss of each sample."""
        loss = keras.losses.get(self.loss)  # type: ignore[attr-defined]
        with torch.no_grad():
            each: torch.Tensor = (loss.call if isinstance(loss, keras.losses.Loss) else loss)(y, y_pred)
        if each.dim() == 0 or len(each) != len(y_pred):
            raise ValueError(
                f"loss={self.loss!r} must return one value per sample: got the shape {tuple(each.shape)} "  # type: ignore[attr-defined]
                f"for {len(y_pred)} samples"
            )
        return each.reshape(len(y_pred), -1).mean(1)

    def _check_pruned_loss(self, own: torch.Tensor, losses: torch.Tensor) -> None:
        """Raise unless the model's loss, less its regularisers, is the mean of its samples' losses; checked once."""
        rest = float(sum(each.detach() for each in self.losses))  # type: ignore[attr-defined]
        if not np.isclose(float(own) - rest, float(losses.mean()), rtol=1e-3, atol=1e-5):
            raise ValueError(
                f"loss={self.loss!r} is not the mean of its samples' losses: it is "  # type: ignore[attr-defined]
                f"{float(own) - rest:.6g}, their mean {float(losses.mean()):.6g}. Use a loss that is"
            )
        self._pruned_checked = True

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if sample_weight is not None and sample_weight is self._pruned_index:  # of a training step
            sample_weight = self._pruned_weights
        return super().compute_metrics(x, y, y_pred, sample_weight)  # type: ignore[misc]


@keras.saving.register_keras_serializable(package="infobatch")
class PrunedModel(InfoBatchMixin, keras.Model):
    """``keras.Model`` that can be trained on :class:`PrunedData`: ``PrunedModel(inputs, outputs)``.

    A model that you have already: ``PrunedModel(model.inputs, model.outputs)`` shares its weights.
    """
