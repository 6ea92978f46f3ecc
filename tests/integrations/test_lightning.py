"""Lightning's Trainer and Fabric train on the plan, at the learning rate of full data, and go on bit for bit."""

from __future__ import annotations

import csv
import importlib
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from distributed.launch import ROOT, torchrun
from distributed.training import delivered, differences
from infobatch import DriftError, InfoBatch
from infobatch.integrations.lightning import InfoBatchCallback, epochs
from infobatch.integrations.logging import metrics
from infobatch.lab.data import fashion
from integrations.lightning_ranks import STAYING_STEPS, STEPS
from integrations.lightning_run import (
    BATCH,
    EPOCHS,
    SIZE,
    TRAIN,
    Images,
    Made,
    Net,
    NetOfMade,
    Seen,
    end_of,
    fabric_fit,
    fit,
    fit_made,
    infobatch_of,
    loader_of,
    trainer_of,
)

pytestmark = [
    # Lightning's own: few workers and few batches, a resume in mid-epoch that it does not know to be right,
    # checkpoint callbacks that a resumed run does not have, and a name of torch that has moved.
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`:UserWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lightning")


def every_step(folder: Path) -> ModelCheckpoint:
    return ModelCheckpoint(folder, filename="{step}", every_n_train_steps=1, save_top_k=-1)


def saved(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder, by step."""
    paths = {int(path.stem.partition("=")[2]): path for path in folder.glob("step=*.ckpt")}
    return dict(sorted(paths.items()))


def check_seen(seen: Seen, train_data: InfoBatch) -> None:
    """Every epoch trained on its plan, each sample once, and every score is the sample's last loss."""
    history = train_data.stats.epochs
    assert [len(seen.samples(epoch)) for epoch in range(EPOCHS)] == [e.kept for e in history]
    assert all(len(set(seen.samples(e))) == len(seen.samples(e)) for e in range(EPOCHS))
    assert {e.kept for e in (history[0], history[-1])} == {SIZE}
    assert all(e.kept < SIZE for e in history[1:-1])
    scores = torch.from_numpy(train_data.scores.copy())
    assert torch.equal(scores, torch.tensor([seen.losses[i] for i in range(SIZE)]))


def starts(rates: list[tuple[int, float]]) -> list[float]:
    """The learning rate of each epoch's first step."""
    return [next(rate for e, rate in rates if e == epoch) for epoch in range(EPOCHS)]


# -- full against pruned --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full(folder: Path) -> Net:
    return fit(folder, None, schedule="step")


@pytest.fixture(scope="module")
def pruned(folder: Path) -> Net:
    return fit(folder, infobatch_of(), schedule="paced", logger=TensorBoardLogger(folder, "board"))


def test_the_samples_of_the_plan_are_seen_and_scored(pruned: Net) -> None:
    check_seen(pruned.seen, pruned.train_data)


def test_validation_in_every_epoch_after_its_last_batch(full: Net, pruned: Net) -> None:
    lengths = pruned.seen.lengths()
    assert min(lengths) < lengths[0] == lengths[-1]
    assert pruned.seen.validations == list(enumerate(lengths))
    assert full.seen.validations == list(enumerate(full.seen.lengths()))


def test_the_progress_bar_knows_each_epoch(pruned: Net) -> None:
    """Though it was given before our callback."""
    assert pruned.seen.totals == dict(enumerate(pruned.seen.lengths()))


def test_the_learning_rate_is_the_one_of_full_data(full: Net, pruned: Net) -> None:
    first = full.seen.lengths()[0]
    assert pruned.seen.rates[:first] == full.seen.rates[:first]
    assert starts(pruned.seen.rates) == starts(full.seen.rates)
    assert pruned.trainer.optimizers[0].param_groups[0]["lr"] == full.trainer.optimizers[0].param_groups[0]["lr"]
    assert {rate for _, rate in pruned.seen.rates} < {rate for _, rate in full.seen.rates}
    assert len(pruned.seen.rates) < len(full.seen.rates)


def test_a_schedule_by_epochs_needs_nothing(folder: Path) -> None:
    full, pruned = fit(folder, None, schedule="epoch"), fit(folder, infobatch_of(), schedule="epoch")
    assert starts(pruned.seen.rates) == starts(full.seen.rates)
    assert len({rate for _, rate in pruned.seen.rates}) == EPOCHS


def test_a_schedule_by_steps_without_pacing_is_warned_of(folder: Path) -> None:
    with pytest.warns(UserWarning, match=r"OneCycleLR steps after every batch.*infobatch\.paced"):
        fit(folder, infobatch_of(), schedule="step")


def test_the_figures_are_in_the_logger(pruned: Net) -> None:
    board = EventAccumulator(pruned.logger.log_dir).Reload()
    shown = {name: [event.value for event in board.Scalars(name)] for name in board.Tags()["scalars"]}
    history = pruned.train_data.stats.epochs
    saved_so_far = np.cumsum([SIZE - e.kept for e in history]) / (SIZE * EPOCHS)
    assert shown["infobatch/kept_share"] == pytest.approx([e.kept / SIZE for e in history])
    assert shown["infobatch/saving"] == pytest.approx(saved_so_far.tolist())
    assert len(shown["infobatch/mean_score"]) == EPOCHS
    assert shown["infobatch/mean_score"][-1] == pytest.approx(float(np.mean(pruned.train_data.scores)))
    assert set(metrics(pruned.train_data)) <= set(pruned.trainer.callback_metrics)


# -- the Trainer's settings -----------------------------------------------------------------------------------------


def validated(lengths: list[int], every: list[int]) -> list[tuple[int, int]]:
    return [(e, k) for e, n in enumerate(lengths) for k in range(1, n + 1) if k % every[e] == 0]


def test_validation_several_times_an_epoch(folder: Path) -> None:
    net = fit(folder, infobatch_of(), val_check_interval=0.5)
    lengths = net.seen.lengths()
    assert net.seen.validations == validated(lengths, [n // 2 for n in lengths])


def test_validation_every_so_many_batches_is_never_left_out(folder: Path) -> None:
    """Full epochs have more than 10 batches, pruned ones fewer."""
    net = fit(folder, infobatch_of(), val_check_interval=10)
    lengths = net.seen.lengths()
    assert min(lengths) < 10 < max(lengths)
    assert net.seen.validations == validated(lengths, [min(n, 10) for n in lengths])


def test_validation_by_batches_across_epochs(folder: Path) -> None:
    net = fit(folder, infobatch_of(), val_check_interval=10, check_val_every_n_epoch=None)
    done = [(e, k) for e, n in enumerate(net.seen.lengths()) for k in range(1, n + 1)]
    assert net.seen.validations == done[9::10]


def test_validation_by_the_clock(folder: Path) -> None:
    net = fit(folder, infobatch_of(), val_check_interval={"hours": 1})
    assert net.seen.validations == []
    check_seen(net.seen, net.train_data)


@pytest.mark.parametrize("limit", [0.5, 10])
def test_limit_train_batches(folder: Path, limit: float) -> None:
    train_data = infobatch_of()
    net = fit(folder, train_data, limit_train_batches=limit)
    whole = [-(-e.kept // BATCH) for e in train_data.stats.epochs]
    lengths = [min(n, limit) if limit == 10 else n // 2 for n in whole]
    assert net.seen.lengths() == lengths
    assert len(set(lengths)) > 1
    assert net.seen.validations == list(enumerate(lengths))
    assert net.seen.totals == dict(enumerate(lengths))


def test_accumulation_steps_at_the_end_of_every_epoch(folder: Path) -> None:
    full = fit(folder, None, schedule="step", accumulate_grad_batches=4)
    net = fit(folder, infobatch_of(), schedule="paced", accumulate_grad_batches=4)
    steps = [sum(e == epoch for e, _ in net.seen.rates) for epoch in range(EPOCHS)]
    assert steps == [-(-n // 4) for n in net.seen.lengths()]
    assert any(n % 4 for n in net.seen.lengths())
    assert starts(net.seen.rates) == starts(full.seen.rates)


def test_barebones() -> None:
    train_data = infobatch_of()
    net = Net(train_data)
    callbacks = [InfoBatchCallback(train_data)]
    Trainer(barebones=True, accelerator="cpu", devices=1, max_epochs=EPOCHS, callbacks=callbacks).fit(
        net, loader_of(train_data)
    )
    check_seen(net.seen, train_data)


def test_fast_dev_run(folder: Path) -> None:
    net = fit(folder, infobatch_of(), schedule="paced", fast_dev_run=2)
    assert len(net.seen.batches) == 2


def test_lightnings_own_progress_bar(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = fit(folder, infobatch_of(), TQDMProgressBar(leave=True))
    shown = re.findall(r"Epoch (\d): 100%\S* *(?:\| *)?(\d+)/(\d+)", capsys.readouterr().out)
    assert {(int(e), int(n)) for e, done, n in shown if done == n} == set(enumerate(net.seen.lengths()))


class ByHand(Net):
    """Steps its optimiser itself."""

    automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        optimizer.step()


def test_manual_optimisation(folder: Path) -> None:
    train_data = infobatch_of()
    by_itself, by_hand = fit(folder, infobatch_of()), ByHand(train_data)
    trainer_of(folder, InfoBatchCallback(train_data)).fit(by_hand, loader_of(train_data))
    assert differences(end_of(by_itself), end_of(by_hand)) == []


# -- which sample a loss is of --------------------------------------------------------------------------------------


def reversed_collate(samples: list[Any]) -> Any:
    return torch.utils.data.default_collate(samples[::-1])


def test_by_index_in_any_order_of_the_batch(folder: Path) -> None:
    train_data = infobatch_of(index_key="index")
    net = fit(folder, train_data, loader={"workers": 2, "collate_fn": reversed_collate, "persistent_workers": True})
    check_seen(net.seen, train_data)


class Forgets(Net):
    """Makes no ``update`` for some batches."""

    def __init__(self, train_data: InfoBatch, remembers: int) -> None:
        super().__init__(train_data)
        self.remembers = remembers

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx < self.remembers or batch_idx > 3:
            return super().training_step(batch, batch_idx)
        x, y, _ = batch
        return cross_entropy(self.net(x), y)


def test_a_forgotten_update_raises(folder: Path) -> None:
    train_data = infobatch_of()
    with pytest.raises(DriftError, match="an update was skipped"):
        trainer_of(folder, InfoBatchCallback(train_data)).fit(Forgets(train_data, 3), loader_of(train_data))


def test_no_update_at_all_raises(folder: Path) -> None:
    train_data = infobatch_of()
    trainer = trainer_of(folder, InfoBatchCallback(train_data), limit_train_batches=3)
    with pytest.raises(RuntimeError, match=r"training_step has not called train_data\.update"):
        trainer.fit(Forgets(train_data, 0), loader_of(train_data))


# -- data that is made in setup() -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loader",
    [{}, pytest.param({"workers": 2}, marks=pytest.mark.slow), pytest.param({"stay": True}, marks=pytest.mark.slow)],
    ids=str,
)
def test_data_made_in_setup_trains_as_data_that_is_given(tmp_path: Path, loader: dict[str, Any]) -> None:
    schedule = "step" if loader.get("stay") else "paced"
    given = fit(tmp_path, infobatch_of(), schedule=schedule, loader=loader)
    net = fit_made(tmp_path, every_step(tmp_path), data=Made(loader), schedule=schedule)
    assert differences(end_of(given), end_of(net)) == []
    assert vars(net.seen) == vars(given.seen)
    steps = len(given.seen.rates)
    for step in (steps // 2,) if loader.get("workers") else (4, given.seen.lengths()[0], steps // 2, steps):
        resumed = fit_made(tmp_path, data=Made(loader), schedule=schedule, ckpt_path=saved(tmp_path)[step])
        assert differences(end_of(given), end_of(resumed)) == [], step
        assert len(resumed.seen.batches) == steps - step


def test_two_fits_and_a_test_on_data_made_in_setup(tmp_path: Path) -> None:
    callback, data, net = InfoBatchCallback(), Made(), NetOfMade(None)
    with pytest.raises(RuntimeError, match="no train_data yet"):
        callback.train_data  # noqa: B018
    trainer = trainer_of(tmp_path, callback)
    trainer.fit(net, datamodule=data)
    first = callback.train_data
    assert first is data.train_data
    trainer.validate(net, datamodule=data, verbose=False)
    assert callback.train_data is first
    again = NetOfMade(None)
    trainer_of(tmp_path, callback).fit(again, datamodule=data)
    assert callback.train_data is data.train_data is not first
    assert again.seen.batches == net.seen.batches


@pytest.mark.filterwarnings("ignore:update\\(loss, index\\) got all samples of epoch 0, but")
def test_setup_that_runs_twice_gets_a_word(tmp_path: Path) -> None:
    data = Made()
    data.setup("fit")  # to have the data, which the Trainer then makes anew
    with pytest.raises(ValueError, match=r"setup\(\) has run a second time.*which takes the loader's"):
        trainer_of(tmp_path, InfoBatchCallback(data.train_data)).fit(NetOfMade(None), datamodule=data)
    stale = NetOfMade(None)
    stale.setup = lambda stage: setattr(stale, "train_data", infobatch_of(index_key="index"))  # not the loader's
    with pytest.raises(RuntimeError, match="of the InfoBatch that the training loader is on"):
        trainer_of(tmp_path, InfoBatchCallback()).fit(stale, datamodule=Made(index_key="index"))


def test_loaders_in_which_no_data_is_found(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"takes its train_data from the training loader.*got a DataLoader"):
        trainer_of(tmp_path, InfoBatchCallback()).fit(Net(None), loader_of(TRAIN))
    begun = infobatch_of()
    begun.set_epoch(2)
    with pytest.raises(ValueError, match="stood at epoch 2, batch 0, when the Trainer measured it"):
        trainer_of(tmp_path, InfoBatchCallback()).fit(Net(begun), loader_of(begun))
    with pytest.raises(ValueError, match=r"max_epochs=3\) and InfoBatch\(num_epochs=5\) must be the same"):
        fit_made(tmp_path, max_epochs=3)


# -- the seed -------------------------------------------------------------------------------------------------------


@pytest.fixture
def _no_seed_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):  # what seed_everything sets is undone with these
        monkeypatch.setenv(name, "0")
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_seed_left")
def test_the_plans_seed_is_that_of_seed_everything(tmp_path: Path, fabric: Fabric) -> None:
    def batches(everything: int | None, **options: Any) -> list[Any]:
        if everything is not None:
            seed_everything(everything, verbose=False)
        given, data = infobatch_of(**{"seed": None, **options}), Made(**{"seed": None, **options})
        seen = [fit(tmp_path, given).seen.batches, fit_made(tmp_path, data=data, schedule=None).seen.batches]
        assert given.sampler.seed == data.train_data.sampler.seed
        by_fabric, _ = fabric_fit(fabric, infobatch_of(**{"seed": None, **options}))
        assert [samples for _, samples in by_fabric.batches[:12]] == [samples for _, samples in seen[0][:12]]
        assert seen[0] == seen[1]
        return seen[0]

    unseeded, one, two, three = (batches(seed) for seed in (None, 1, 2, 3))
    assert unseeded == batches(3, seed=0)
    assert three == batches(3) == batches(1, seed=3)
    assert len({str(run) for run in (unseeded, one, two, three)}) == 4


@pytest.mark.usefixtures("_no_seed_left")
def test_a_resumed_run_keeps_its_seed(tmp_path: Path) -> None:
    seed_everything(1, verbose=False)
    whole = fit(tmp_path, infobatch_of(seed=None), every_step(tmp_path))
    seed_everything(2, verbose=False)
    net = fit(tmp_path, infobatch_of(seed=None), ckpt_path=saved(tmp_path)[15])
    assert differences(end_of(whole), end_of(net)) == []
    with pytest.raises(ValueError, match="seed: 1 in the state, 2 here"):
        fit(tmp_path, infobatch_of(seed=2), ckpt_path=saved(tmp_path)[15])


# -- what would be wrong in silence ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:You requested to overfit")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"overfit_batches": 2}, r"overfit_batches=2\) replaces train_data.sampler"),
        ({"reload_dataloaders_every_n_epochs": 1}, r"reload_dataloaders_every_n_epochs=1\)"),
        ({"max_epochs": 3}, r"max_epochs=3\) and InfoBatch\(num_epochs=5\) must be the same"),
        ({"max_epochs": -1}, r"max_epochs=-1\) and InfoBatch\(num_epochs=5\)"),
        ({"max_steps": 100}, r"max_steps=100\) ends training by steps.*let steps stay"),
        ({"limit_train_batches": 1, "schedule": "paced"}, r"limit_train_batches=1\).*paced schedule"),
        ({"limit_train_batches": 0.9, "schedule": "paced"}, r"limit_train_batches=0.9\).*paced schedule"),
    ],
)
def test_settings_that_are_refused(folder: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fit(folder, infobatch_of(), **options)


def stateful(train_data: InfoBatch) -> Any:
    return StatefulDataLoader(train_data, BATCH, sampler=train_data.sampler)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda _: loader_of(TRAIN), "got a DataLoader on a RandomSampler"),
        (lambda _: loader_of(infobatch_of()), "on the InfoBatch that InfoBatchCallback was given"),
        (lambda data: [loader_of(data), loader_of(TRAIN)], "must be one DataLoader.*got list"),
        (lambda data: CombinedLoader({"a": loader_of(data)}, "min_size"), "must be one DataLoader.*got dict"),
        (stateful, "is a StatefulDataLoader"),
    ],
    ids=["other sampler", "other data", "several", "combined", "stateful"],
)
def test_loaders_that_are_refused(folder: Path, make: Any, says: str) -> None:
    train_data = infobatch_of()
    with pytest.raises(ValueError, match=says):
        trainer_of(folder, InfoBatchCallback(train_data)).fit(Net(train_data), make(train_data))


def test_an_epoch_of_no_batch_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"epoch 1 has \d+ samples, not enough for one batch"):
        fit(folder, infobatch_of(), loader={"batch_size": SIZE - 1, "drop_last": True})


def test_only_an_infobatch_is_taken() -> None:
    with pytest.raises(TypeError, match="train_data must be the InfoBatch"):
        InfoBatchCallback(TRAIN)


def test_without_lightning_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "infobatch.integrations.lightning")
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(ImportError, match=r'pip install "infobatch\[lightning\]"'):
        importlib.import_module("infobatch.integrations.lightning")


def test_the_private_names_that_are_used(pruned: Net) -> None:
    """Where this fails, a release of Lightning has moved what the callback sets or reads."""
    fit_loop, seen = pruned.trainer.fit_loop, {}

    class Look(Callback):
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            fit_loop = trainer.fit_loop
            seen["length"] = fit_loop._data_fetcher.length
            seen["limits"] = fit_loop._combined_loader.limits
            seen["max_batches"] = fit_loop.max_batches
            seen["val_check_batch"] = trainer.val_check_batch
            seen["loader"] = trainer.train_dataloader

    train_data = infobatch_of()
    loader = loader_of(train_data)
    trainer_of(pruned.trainer.default_root_dir, InfoBatchCallback(train_data), Look()).fit(Net(train_data), loader)
    n = len(loader)
    assert seen == {"length": n, "limits": [n], "max_batches": n, "val_check_batch": n, "loader": loader}
    assert {"processed", "completed", "started", "ready"} <= set(vars(fit_loop.epoch_loop.batch_progress.current))
    fabric_loader = Fabric(accelerator="cpu", devices=1).setup_dataloaders(loader)
    assert vars(fabric_loader)["_num_iter_calls"] == 0
    next(iter(fabric_loader))
    assert vars(fabric_loader)["_num_iter_calls"] == 1


# -- stopping and going on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_resume_after_any_step(tmp_path: Path, workers: int, accumulate: int) -> None:
    """Also after an epoch's last batch, before a shorter epoch and before a longer one."""
    how: dict[str, Any] = {"schedule": "paced", "loader": {"workers": workers}, "accumulate_grad_batches": accumulate}
    whole = fit(tmp_path, infobatch_of(), every_step(tmp_path), **how)
    paths, lengths = saved(tmp_path), whole.seen.lengths()
    assert lengths[1] < lengths[0]
    assert lengths[-2] < lengths[-1]
    last_steps = np.cumsum([-(-n // accumulate) for n in lengths])
    steps = {last_steps[0] + 2, last_steps[-2]} if workers else {*list(paths)[::3], *last_steps}
    for step in steps:
        net = fit(tmp_path, infobatch_of(), ckpt_path=paths[step], **how)
        assert differences(end_of(whole), end_of(net)) == [], step
        rest = len(net.seen.batches)
        assert net.seen.batches == whole.seen.batches[len(whole.seen.batches) - rest :]
        assert net.seen.validations == whole.seen.validations[EPOCHS - len(net.seen.validations) :]
        assert rest == 0 if step == last_steps[-1] else rest > 0


class Noisy(Images):
    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        x, y, i = super().__getitem__(i)
        return x + torch.randn(x.shape), y, i


NOISY = Noisy(fashion.load().train.head(SIZE))


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_resume_with_random_augmentation(tmp_path: Path, workers: int) -> None:
    def train(*callbacks: Callback, **options: Any) -> Net:
        train_data = InfoBatch(NOISY, EPOCHS, seed=3, delta=0.8, seed_samples=True)
        return fit(tmp_path, train_data, *callbacks, loader={"workers": workers}, **options)

    whole = train(every_step(tmp_path))
    assert differences(end_of(whole), end_of(train(ckpt_path=saved(tmp_path)[15]))) == []


AT = {
    "the end of validation": ({}, {"save_on_train_epoch_end": False}),
    "validation in mid-epoch": ({"val_check_interval": 0.5}, {"save_on_train_epoch_end": False}),
    "an interval that a pruned epoch does not reach": ({"val_check_interval": 10}, {"save_on_train_epoch_end": False}),
    "the end of an epoch": ({}, {"save_on_train_epoch_end": True}),
    "a limit": ({"limit_train_batches": 0.5}, {"every_n_train_steps": 1}),
    "validation after a limit": ({"limit_train_batches": 0.5}, {"save_on_train_epoch_end": False}),
    "an epoch that drops its last": ({"loader": {"drop_last": True}}, {"save_on_train_epoch_end": False}),
}


@pytest.mark.parametrize("at", AT)
def test_resume_from_a_checkpoint_made_at(tmp_path: Path, at: str) -> None:
    options, checkpoint = AT[at]
    how = {"schedule": "epoch", **options}
    whole = fit(tmp_path, infobatch_of(), ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, **checkpoint), **how)
    expected = end_of(whole)
    last_steps = np.cumsum(whole.seen.lengths())
    for step, path in saved(tmp_path).items():
        if len(saved(tmp_path)) > 2 * EPOCHS and step % 4 and step not in last_steps:
            continue
        net = fit(tmp_path, infobatch_of(), ckpt_path=path, **how)
        assert differences(expected, end_of(net)) == [], path
        assert net.seen.batches == whole.seen.batches[len(whole.seen.batches) - len(net.seen.batches) :]
        assert net.seen.validations == whole.seen.validations[len(whole.seen.validations) - len(net.seen.validations) :]
    with_workers = {**how, "loader": {**how.get("loader", {}), "workers": 2}}
    for path in list(saved(tmp_path).values())[1:2]:
        assert differences(expected, end_of(fit(tmp_path, infobatch_of(), ckpt_path=path, **with_workers))) == []


class Fails(Callback):
    """A run that dies in the middle of an epoch."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == 15:
            raise KeyError("the machine")


@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_objects_go_on_after_an_error(tmp_path: Path, workers: int) -> None:
    """As in a notebook: train_data stands in mid-epoch when the checkpoint is loaded, or when fit starts over."""
    how: dict[str, Any] = {"schedule": "paced", "loader": {"workers": workers}}
    whole = end_of(fit(tmp_path, infobatch_of(), **how))
    train_data = infobatch_of()
    with pytest.raises(KeyError):
        fit(tmp_path, train_data, every_step(tmp_path), Fails(), **how)
    net = fit(tmp_path, train_data, ckpt_path=saved(tmp_path)[14], **how)
    assert differences(whole, end_of(net)) == []
    assert differences(whole, end_of(fit(tmp_path, train_data, **how))) == []


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning")
def test_a_checkpoint_that_is_only_validated_changes_nothing(tmp_path: Path) -> None:
    train_data = infobatch_of()
    net = fit(tmp_path, train_data, every_step(tmp_path))
    before = train_data.state_dict()
    net.trainer.validate(net, DataLoader(TRAIN, BATCH), ckpt_path=saved(tmp_path)[15], verbose=False)
    assert differences(before, train_data.state_dict()) == []
    net.trainer.fit(net, loader_of(train_data))  # nothing is left to train
    assert differences(before["scores"], train_data.state_dict()["scores"]) == []


# -- steps that stay ------------------------------------------------------------------------------------------------

STAY: dict[str, Any] = {"schedule": "step", "loader": {"stay": True}, "max_epochs": -1}
LENGTHS = {
    "all steps": {"max_steps": 60},
    "the last epoch in part": {"max_steps": 55},
    "accumulated": {"max_steps": 30, "accumulate_grad_batches": 2},
    "a short last group": {"max_steps": 15, "accumulate_grad_batches": 5},
    "epochs": {"max_epochs": EPOCHS},
}


@pytest.mark.parametrize("length", LENGTHS)
def test_steps_that_stay_are_those_of_full_data(folder: Path, length: str) -> None:
    """As many in each epoch, with the bare schedule's learning rates, where nothing warns and nothing is refused."""
    how = {**STAY, **LENGTHS[length]}
    full = fit(folder, None, **{**how, "loader": {}})
    net = fit(folder, infobatch_of(), **how)
    assert net.seen.lengths() == full.seen.lengths()
    assert net.seen.totals == full.seen.totals
    assert net.seen.validations == full.seen.validations
    assert net.seen.rates == full.seen.rates
    assert net.trainer.global_step == full.trainer.global_step
    assert net.train_data.stats.saved > 0.1 * SIZE * EPOCHS
    if full.seen.lengths()[-1] == 12:
        check_seen(net.seen, net.train_data)
    sizes = [[len(batch) for e, batch in net.seen.batches if e == epoch] for epoch in range(EPOCHS)]
    assert all(max(of_epoch) - min(of_epoch) <= 1 for of_epoch in sizes)


@pytest.mark.parametrize(
    ("length", "saving"),
    [("all steps", {"save_on_train_epoch_end": False}), ("accumulated", {"every_n_train_steps": 1})],
)
def test_resume_where_steps_stay(tmp_path: Path, length: str, saving: dict[str, Any]) -> None:
    how = {**STAY, **LENGTHS[length]}
    whole = fit(tmp_path, infobatch_of(), ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, **saving), **how)
    paths = list(saved(tmp_path).values())
    for number, path in enumerate(paths if len(paths) <= EPOCHS else paths[3::8]):
        workers = {**how, "loader": {"stay": True, "workers": 2 if number == 1 else 0}}
        net = fit(tmp_path, infobatch_of(), ckpt_path=path, **workers)
        assert differences(end_of(whole), end_of(net)) == [], path
        assert net.seen.batches == whole.seen.batches[len(whole.seen.batches) - len(net.seen.batches) :]
        assert net.seen.validations == whole.seen.validations[len(whole.seen.validations) - len(net.seen.validations) :]


def test_max_steps_must_end_in_the_last_epoch(folder: Path) -> None:
    for options, made in (
        ({"max_steps": 48}, 4),
        ({"max_steps": 61}, 6),
        ({"max_steps": 60, "max_epochs": 3}, 3),
        ({"max_steps": 60, "accumulate_grad_batches": 2}, 10),
    ):
        steps = 6 if "accumulate_grad_batches" in options else 12
        with pytest.raises(ValueError, match=rf"makes {made} epochs of {steps} steps, .* max_steps={5 * steps}"):
            fit(folder, infobatch_of(), **{**STAY, **options})


# -- two processes --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    torchrun(Path(__file__).with_name("lightning_ranks.py"), folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def steps_of(ranks: list[dict[str, Any]], run: str) -> list[dict[str, Any]]:
    return [{"steps": [(e, batch, 0) for e, batch in rank[run]["seen"]["batches"]]} for rank in ranks]


@pytest.mark.slow
@pytest.mark.parametrize("run", ["whole", "fabric", "stay", "fabric stay"])
def test_two_ranks_share_each_plan(ranks: list[dict[str, Any]], run: str) -> None:
    losses = {**ranks[1][run]["seen"]["losses"], **ranks[0][run]["seen"]["losses"]}
    for epoch, total, kept, seen in ranks[0][run]["end"]["epochs"]:
        samples = delivered(steps_of(ranks, run), epoch)
        assert (total, seen, len(samples)) == (SIZE, kept, kept + kept % 2)
        assert len(set(samples)) == kept
        assert ranks[0][run]["seen"]["totals"][epoch] == (12 if "stay" in run else -(-kept // BATCH))
    assert losses.keys() == set(range(SIZE))
    assert differences(ranks[0][run]["end"], ranks[1][run]["end"]) == []


def test_two_ranks_train_as_one_with_the_double_batch(folder: Path, ranks: list[dict[str, Any]]) -> None:
    one = fit(folder, infobatch_of(), schedule="paced", accumulate_grad_batches=2)
    two = ranks[0]["whole"]
    assert two["end"]["epochs"] == end_of(one)["epochs"]
    assert two["seen"]["rates"] == one.seen.rates
    assert two["seen"]["validations"] == one.seen.validations
    torch.testing.assert_close(two["end"]["scores"], end_of(one)["scores"], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(two["end"]["weights"], end_of(one)["weights"], rtol=1e-4, atol=1e-5)
    mean_score = float(two["end"]["scores"].double().mean())
    assert [rank["epoch=2"]["logged"]["infobatch/mean_score"] for rank in ranks] == pytest.approx([mean_score] * 2)


def test_two_ranks_where_steps_stay(folder: Path, ranks: list[dict[str, Any]]) -> None:
    full = fit(folder, None, **{**STAY, **LENGTHS["all steps"], "loader": {}})
    for rank in ranks:
        for run in ("stay", "fabric stay"):
            lengths = [sum(e == epoch for e, _ in rank[run]["seen"]["batches"]) for epoch in range(EPOCHS)]
            assert lengths == full.seen.lengths()
        assert rank["stay"]["seen"]["rates"] == full.seen.rates
        for step in STAYING_STEPS:
            assert differences(rank["stay"]["end"], rank[f"stay {step}"]["end"]) == [], step
        assert differences(rank["fabric stay"]["end"], rank["fabric stay resumed"]["end"]) == []
        assert "Trainer" in rank["replaced"]
        assert "use_distributed_sampler=False" in rank["replaced"]
    seen = [Seen(**rank["stay"]["seen"]) for rank in ranks]
    losses = {i: of_rank.losses[i] for of_rank in seen for i in of_rank.samples(EPOCHS - 1)}
    assert ranks[0]["stay"]["end"]["scores"].tolist() == [losses[i] for i in range(SIZE)]


def test_a_strategy_whose_ranks_share_samples_is_refused(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "TensorParallel wants the data in 1 parts, but train_data.sampler makes 2" in rank["refused"]


def test_one_process_goes_on_for_two(folder: Path, ranks: list[dict[str, Any]]) -> None:
    how: dict[str, Any] = {"schedule": "paced", "accumulate_grad_batches": 2}
    net = fit(folder, infobatch_of(), ckpt_path=folder / "steps/step=8.ckpt", **how)
    whole = ranks[0]["whole"]
    assert end_of(net)["epochs"] == whole["end"]["epochs"]
    assert net.seen.validations == whole["seen"]["validations"][1:]
    assert net.seen.rates == whole["seen"]["rates"][8:]
    torch.testing.assert_close(end_of(net)["weights"], whole["end"]["weights"], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_two_ranks_on_data_made_in_setup(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        whole, made, resumed = (rank[name] for name in ("whole", "made", "made resumed"))
        assert differences(whole["end"], made["end"]) == differences(whole["end"], resumed["end"]) == []
        assert made["seen"]["batches"] == whole["seen"]["batches"]
        rest = resumed["seen"]["batches"]
        assert rest == whole["seen"]["batches"][-len(rest) :]


def test_two_ranks_resume(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        for run in [*(f"step={step}" for step in STEPS), "epoch=2"]:
            assert differences(rank["whole"]["end"], rank[run]["end"]) == [], run
            done = rank[run]["seen"]["validations"]
            assert done == rank["whole"]["seen"]["validations"][EPOCHS - len(done) :]
        assert differences(rank["fabric"]["end"], rank["fabric resumed"]["end"]) == []


# -- Fabric ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return Fabric(accelerator="cpu", devices=1)


@pytest.mark.parametrize(("accumulate", "stay"), [(1, False), (2, False), (2, True)])
def test_fabric_trains_as_the_trainer_does(folder: Path, fabric: Fabric, accumulate: int, stay: bool) -> None:
    train_data, how = infobatch_of(), {"loader": {"stay": stay}}
    seen, end = fabric_fit(fabric, train_data, accumulate=accumulate, **how)
    schedule = "step" if stay else "paced"
    net = fit(folder, infobatch_of(), schedule=schedule, accumulate_grad_batches=accumulate, **how)
    check_seen(seen, train_data)
    assert (seen.batches, seen.totals, seen.rates) == (net.seen.batches, net.seen.totals, net.seen.rates)
    assert differences(end_of(net), end) == []


@pytest.mark.parametrize(("workers", "accumulate", "stay"), [(0, 1, False), (2, 2, False), (0, 2, True)])
def test_fabric_resumes(tmp_path: Path, fabric: Fabric, workers: int, accumulate: int, stay: bool) -> None:
    how: dict[str, Any] = {"accumulate": accumulate, "loader": {"workers": workers, "stay": stay}}
    after = (12, 16) if accumulate > 1 else (5, 12, 16, 38)  # 12: an epoch's last batch
    paths = {done: tmp_path / f"{done}.ckpt" for done in after}
    whole, end = fabric_fit(fabric, infobatch_of(), save_at=paths, **how)
    for done, path in paths.items():
        seen, resumed_end = fabric_fit(fabric, infobatch_of(), resume=path, **how)
        assert differences(end, resumed_end) == []
        assert seen.batches == whole.batches[done:]


def test_fabric_loaders_looked_into(fabric: Fabric) -> None:
    """A look before training is no epoch; one in an epoch would make Fabric count another."""
    train_data = infobatch_of()
    loader = fabric.setup_dataloaders(loader_of(train_data))

    def train() -> None:
        for epoch in epochs(train_data, loader):
            if epoch == 2:
                next(iter(loader))
            for *_, i in loader:
                train_data.update(i.float().requires_grad_())

    next(iter(loader))
    with pytest.raises(RuntimeError, match=r"iterated more than once in epoch 2.*another loader"):
        train()
    assert [e.seen for e in train_data.stats.epochs[:2]] == [e.kept for e in train_data.stats.epochs[:2]]


def test_fabric_epochs_are_of_its_own_loader(fabric: Fabric) -> None:
    train_data = infobatch_of()
    for loader in (loader_of(train_data), fabric.setup_dataloaders(loader_of(TRAIN)), [1, 2]):
        with pytest.raises(ValueError, match=r"loader must be what fabric\.setup_dataloaders\(\) has made"):
            next(epochs(train_data, loader))


# -- the examples ---------------------------------------------------------------------------------------------------


def run_example(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: Lightning takes seconds to import."""
    arguments = ["--epochs", "4", "--samples", "600", "--folder", str(folder)]
    monkeypatch.setattr(sys, "argv", [name, *arguments, *(["--every", "3"] if name == "fabric" else [])])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")


def test_the_example_with_the_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_example("lightning_trainer", tmp_path, monkeypatch)
    shown = capsys.readouterr().out
    assert re.search(r"saved [1-9]\d?\.\d% of full training", shown)
    assert re.search(r"test accuracy [67]\d\.\d% with 1 processes", shown)
    with next(tmp_path.rglob("metrics.csv")).open() as file:
        logged = [row["infobatch/kept_share"] for row in csv.DictReader(file) if row["infobatch/kept_share"]]
    assert len(logged) == 4
    assert next(tmp_path.rglob("*.ckpt"))


def test_the_example_with_fabric_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_example("fabric", tmp_path, monkeypatch)
    whole = capsys.readouterr().out
    assert re.search(r"saved [1-9]\d?\.\d% of full training", whole)
    first = torch.load(tmp_path / "last.ckpt", weights_only=True)
    run_example("fabric", tmp_path, monkeypatch)
    resumed = capsys.readouterr().out
    assert f"goes on after step {first['step']}, in epoch 3" in resumed
    end = r"test accuracy.*|saved.*"
    assert re.findall(end, whole) == re.findall(end, resumed)
