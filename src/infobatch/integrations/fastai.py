"""fastai: ``learn.fit_one_cycle(8, cbs=InfoBatchCallback())``; data, loss and schedule stay as they are.

The callback wraps the training set of the Learner's ``dls`` for the length of a fit. Its loader then takes its batches
from the plan: in every epoch as many as full data has, but smaller. Losses come from the Learner's own loss function
without its mean.

The names of fastai that are used here and are not documented are ``DataLoader.chunkify`` and ``fake_l``.
``tests/more/test_fastai.py`` fails loudly when a release moves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch

from ..dataset import InfoBatch
from . import needs

with needs("fastai", "fastai"):
    from fastai.callback.core import Callback
    from fastai.callback.mixup import MixHandler
    from fastai.callback.training import GradientAccumulation
    from fastai.data.load import DataLoader
    from fastai.losses import BaseLoss
    from fastai.torch_core import find_bs, num_distrib

__all__ = ["InfoBatchCallback"]


class InfoBatchCallback(Callback):
    """Trains on fewer samples: see ``docs/fastai.md``. Options are those of :class:`InfoBatch`, such as ``method``.

    ``train_data`` is the InfoBatch of the current fit, or of the last one. ``state`` is the ``train_data.state_dict()``
    of a stopped run, which ``learn.fit(..., start_epoch=...)`` then continues.
    """

    order = -5  # before the callbacks that change the gradient of the loss

    def __init__(self, state: dict[str, Any] | None = None, **options: Any) -> None:
        self.state = state
        self.options = options

    def before_fit(self) -> None:
        self.run = not (hasattr(self.learn, "lr_finder") or hasattr(self.learn, "gather_preds"))
        if not self.run:  # finding a learning rate and predicting train for a few steps, or not at all
            return
        dl = self.dls.train
        self._check(dl)
        self.train_data = InfoBatch(dl.dataset, self.n_epoch, **self.options)
        if self.state is not None:
            self.train_data.load_state_dict(self.state)
        self._own = dl
        kind = type(f"Pruned{type(dl).__name__}", (PlanLoader, type(dl)), {})
        self.dls.loaders[0] = dl.new(cls=kind)
        self.dls.train.follow(self.train_data)
        self._checked = False

    def after_fit(self) -> None:
        self.dls.loaders[0] = self._own

    def before_train(self) -> None:
        self.train_data.set_epoch(self.epoch)

    def after_loss(self) -> None:
        if not self.training:
            return
        index = torch.tensor(self.dl.batches[self.iter])
        losses = self._losses(len(index))
        self.learn.loss_grad = self.train_data.update(losses, index)
        self.learn.loss = self.train_data.loss.clone()

    def _losses(self, count: int) -> torch.Tensor:
        """The loss of each sample."""
        if find_bs(self.yb) != count:
            raise RuntimeError(
                f"the batch holds {find_bs(self.yb)} samples, but {count} were asked for: losses cannot be matched to "
                "samples. Let a batch transform keep every sample"
            )
        losses = _losses_without_mean(self.loss_func, self.pred, *self.yb).reshape(count, -1).mean(1)
        if not self._checked:
            own = self.loss_grad.detach()
            if not torch.allclose(losses.detach().mean(), own, rtol=1e-3, atol=1e-5):
                raise ValueError(
                    f"loss_func={self.loss_func!r} is not the mean of its samples' losses (class weights, ignored "
                    f"labels or a sum?): it is {own:.6g}, their mean {losses.mean():.6g}. Use a loss that is"
                )
            self._checked = True
        return losses

    def _check(self, dl: Any) -> None:
        """Raise for settings that would be wrong in silence."""
        for callback in self.learn.cbs:
            if isinstance(callback, MixHandler):
                raise ValueError(f"{callback.name}: a mixed input has no loss of a single sample. Leave it out")
            if isinstance(callback, GradientAccumulation):
                raise ValueError(f"{callback.name} counts samples, and pruned batches have fewer. Leave it out")
        if num_distrib() > 1:
            raise ValueError("InfoBatchCallback trains in one process: several have not been tried. Leave it out")
        kind = type(dl)
        if kind.get_idxs is not DataLoader.get_idxs or kind.sample is not DataLoader.sample:
            raise ValueError(
                f"dls.train is a {kind.__name__}, which chooses samples by itself: use a fastai loader that only "
                "shuffles, or leave InfoBatchCallback out"
            )
        if not dl.indexed or dl.bs is None or dl.n != len(dl.dataset):
            raise ValueError(
                f"dls.train must read all its samples by index, in batches: it has indexed={dl.indexed}, bs={dl.bs} "
                f"and n={dl.n} of {len(dl.dataset)}"
            )
        if dl.fake_l.persistent_workers:
            raise ValueError(
                "dls.train has persistent_workers=True, so that its workers would keep the first epoch's plan: use "
                "persistent_workers=False"
            )


def _losses_without_mean(loss_func: Any, *inputs: Any) -> torch.Tensor:
    """The loss function's values before their mean is taken."""
    inner = loss_func.func if isinstance(loss_func, BaseLoss) else loss_func
    if not hasattr(inner, "reduction"):
        return loss_func(*inputs, reduction="none")
    before = inner.reduction
    inner.reduction = "none"
    try:
        return loss_func(*inputs)
    finally:
        inner.reduction = before


class PlanLoader:
    """A mixin for a fastai loader: gives it the batches of the plan."""

    batches: list[list[int]]

    def follow(self, train_data: InfoBatch) -> None:
        """Take the batches from ``train_data``."""
        self._steps = train_data.batches(self.bs, self.drop_last)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self._steps)

    def get_idxs(self) -> list[int]:
        self.batches = list(self._steps)
        return [index for batch in self.batches for index in batch]

    def _worker_batches(self) -> list[list[int]]:
        return self.batches[self.offs :: self.num_workers]  # type: ignore[attr-defined]

    def sample(self) -> Iterator[int]:
        return (index for batch in self._worker_batches() for index in batch)

    def chunkify(self, items: Iterable[Any]) -> Iterator[list[Any]]:
        items = iter(items)
        return (list(islice(items, len(batch))) for batch in self._worker_batches())

    def do_item(self, index: Any) -> Any:
        item = super().do_item(index)  # type: ignore[misc]
        if item is None:
            raise RuntimeError(
                f"sample {index} was left out by SkipItemException, so that losses cannot be matched to samples: leave "
                "such samples out of the data set"
            )
        return item
