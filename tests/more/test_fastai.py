"""fastai trains on fewer samples, with its own loss and schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from fastai.callback.core import Callback, CancelFitException
from fastai.callback.mixup import MixUp
from fastai.callback.schedule import ParamScheduler  # noqa: F401 (gives the Learner fit_one_cycle)
from fastai.callback.training import GradientAccumulation
from fastai.data.core import DataLoaders
from fastai.data.load import SkipItemException
from fastai.learner import Learner
from fastai.losses import CrossEntropyLossFlat
from fastai.optimizer import SGD
from torch import nn

from infobatch import checkpoint
from infobatch.integrations.fastai import InfoBatchCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # fastai's own

SIZE, BATCH, EPOCHS = 101, 8, 4


def samples() -> list[tuple[torch.Tensor, torch.Tensor]]:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(SIZE, 5, generator=chance)
    return list(zip(x, (x[:, 0] > 0).long(), strict=True))


def learner(data: Any = None, loss: Any = None, drop_last: bool = False, **options: Any) -> Learner:
    data = data or samples()
    dls = DataLoaders.from_dsets(
        data, data[:20], bs=BATCH, drop_last=drop_last, device="cpu", **{"num_workers": 0, **options}
    )
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))
    return Learner(dls, model, loss_func=loss or CrossEntropyLossFlat(), opt_func=SGD)


class Diary(Callback):
    order = 100

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.plans: list[list[int]] = []
        self.seen: list[list[int]] = []
        self.lrs: list[float] = []
        self.steps: list[int] = []

    def before_train(self) -> None:
        self.seen.append([])
        self.steps.append(0)

    def before_batch(self) -> None:
        if self.training:
            self.lrs.append(self.opt.hypers[-1]["lr"])
            self.steps[-1] += 1
            assert self.n_iter == 13
            self.seen[-1] += [round(1e6 * float(x)) for x in self.xb[0][:, 0]]

    def after_epoch(self) -> None:
        if self.epoch == self.stop_after:
            raise CancelFitException


def fit(learn: Learner, pruning: InfoBatchCallback | None, diary: Diary, one_cycle: bool = True, **options: Any) -> Any:
    cbs = [diary] if pruning is None else [pruning, diary]
    with learn.no_bar(), learn.no_logging():
        (learn.fit_one_cycle if one_cycle else learn.fit)(EPOCHS, 0.05, cbs=cbs, **options)
    return None if pruning is None else pruning.train_data


@pytest.mark.parametrize("workers", [0, 2])
def test_fewer_samples_in_the_same_steps_at_the_same_learning_rates(workers: int) -> None:
    own, ours, pruning = Diary(), Diary(), InfoBatchCallback(delta=0.75)
    fit(learner(), None, own)
    learn = learner(num_workers=workers)
    train_data = fit(learn, pruning, ours)
    assert own.steps == ours.steps == [13] * EPOCHS
    assert own.lrs == ours.lrs
    sizes = [len(seen) for seen in ours.seen]
    assert sizes[0] == sizes[-1] == SIZE
    assert max(sizes[1:-1]) < SIZE
    assert all(len(set(seen)) == len(seen) for seen in ours.seen)
    assert train_data.stats.saving == pytest.approx(1 - sum(sizes) / (SIZE * EPOCHS))
    assert type(learn.dls.train).__name__ == "TfmdDL"  # the Learner's own again
    assert learn.dls.train.n == SIZE


def test_each_score_is_its_samples_loss() -> None:
    learn, pruning = learner(num_workers=2), InfoBatchCallback(method="full")
    with learn.no_bar(), learn.no_logging():
        learn.fit(1, lr=0.0, wd=0.0, cbs=pruning)
    x, y = (torch.stack(each) for each in zip(*samples(), strict=True))
    with torch.no_grad():
        expected = F.cross_entropy(learn.model(x), y, reduction="none")
    np.testing.assert_allclose(pruning.train_data.scores, expected, rtol=1e-4, atol=1e-6)


def test_full_data_is_trained_on_as_without_the_callback() -> None:
    """Same batches, same loss: the callback's own order is given to a Learner without it."""
    pruned, diary, pruning = learner(), Diary(), InfoBatchCallback(method="full")
    fit(pruned, pruning, diary, one_cycle=False)
    batches = pruning.train_data.batches(BATCH)
    plain = learner()
    data = samples()
    for epoch in range(EPOCHS):
        pruning.train_data.set_epoch(epoch)
        for batch in batches:
            x, y = (torch.stack(each) for each in zip(*[data[i] for i in batch], strict=True))
            F.cross_entropy(plain.model(x), y).backward()
            with torch.no_grad():
                for each in plain.model.parameters():
                    each -= 0.05 * each.grad
                    each.grad = None
    with torch.no_grad():
        for ours, theirs in zip(pruned.model.parameters(), plain.model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_fit_that_was_stopped_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole, expected = learner(), Diary()
    train_data = fit(whole, InfoBatchCallback(delta=1.0), expected)

    first, pruning, before = learner(), InfoBatchCallback(delta=1.0), Diary(stop_after=1)
    fit(first, pruning, before)
    first.path = tmp_path
    first.save("stopped")
    checkpoint.save(pruning.train_data.state_dict(), tmp_path / "data.pt")

    second, after = learner(), Diary()
    second.path = tmp_path
    second.create_opt()
    second.load("stopped")
    again = fit(second, InfoBatchCallback(state=checkpoint.load(tmp_path / "data.pt"), delta=1.0), after, start_epoch=2)
    assert before.seen + after.seen == expected.seen
    assert before.lrs + after.lrs == expected.lrs
    np.testing.assert_array_equal(train_data.scores, again.scores)
    for ours, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_loss_functions_of_torch_and_plain_ones() -> None:
    def plain(output: torch.Tensor, target: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
        return F.cross_entropy(output, target, reduction=reduction)

    for loss in (nn.CrossEntropyLoss(), plain, nn.CrossEntropyLoss(label_smoothing=0.1)):
        pruning = InfoBatchCallback()
        fit(learner(loss=loss), pruning, Diary())
        assert pruning.train_data.stats.saving > 0.05
    assert nn.CrossEntropyLoss().reduction == "mean"


def test_the_learning_rate_finder_and_predictions_are_left_alone() -> None:
    learn, pruning = learner(), InfoBatchCallback()
    learn.add_cb(pruning)
    with learn.no_bar(), learn.no_logging():
        learn.fit(2, 0.01)
        learn.lr_find(num_it=5, show_plot=False)
        assert len(learn.get_preds()[0]) == 20
    assert pruning.train_data.num_epochs == 2


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="not the mean of its samples' losses"):
        fit(learner(loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0]))), InfoBatchCallback(), Diary())
    for callback in (MixUp(), GradientAccumulation(16)):
        learn = learner()
        learn.add_cb(callback)
        with pytest.raises(ValueError, match="Leave it out"):
            fit(learn, InfoBatchCallback(), Diary())
    with pytest.raises(ValueError, match="n=50 of 101"):
        fit(learner(n=50), InfoBatchCallback(), Diary())


def test_a_sample_that_is_skipped_is_an_error() -> None:
    class Holes(list):
        def __getitem__(self, index: Any) -> Any:
            if index == 7:
                raise SkipItemException
            return super().__getitem__(index)

    with pytest.raises(RuntimeError, match="sample 7 was left out by SkipItemException"):
        fit(learner(Holes(samples())), InfoBatchCallback(), Diary())
