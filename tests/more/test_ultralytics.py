"""Ultralytics trains on fewer images, by its own trainer and criterion."""

from __future__ import annotations

import copy
import csv
import itertools
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ultralytics import YOLO
from ultralytics.data.augment import Mosaic

from infobatch import InfoBatch
from infobatch.integrations import ultralytics as ours
from infobatch.integrations.ultralytics import pruned
from more import yolo

pytestmark = pytest.mark.filterwarnings("ignore")  # Ultralytics' own

EPOCHS = 4
HEADS = [
    ("detect", False, 16),
    ("detect", False, 1),
    ("detect", True, 16),
    ("segment", False, 16),
    ("segment26", False, 16),
    ("segment26", True, 1),
]


# -- the loss ---------------------------------------------------------------------------------------------------------


class Plan:
    def __init__(self, size: int, uniform: bool) -> None:
        self.size = size
        self.by_sample = SimpleNamespace(uniform=uniform)

    def __len__(self) -> int:
        return self.size


class Planned:
    """As much of an InfoBatch as a criterion asks for, with weights that the test chooses."""

    def __init__(self, weights: list[float], size: int, uniform: bool = False) -> None:
        self.weights = torch.tensor(weights, dtype=torch.float64)
        self.size = size
        self.plan = Plan(len(weights), uniform)
        self.losses = torch.zeros(0)

    def __len__(self) -> int:
        return self.size

    def weights_of(self, index: torch.Tensor) -> torch.Tensor:
        return self.weights[index]

    def update(self, loss: torch.Tensor, index: torch.Tensor) -> None:
        self.losses = loss.detach()


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def fitted(tmp_path: Path, head: str, end2end: bool, reg_max: int) -> tuple[Any, dict[str, Any]]:
    """A model that has begun to fit a batch, so that its targets are not all 0, and the batch."""
    torch.manual_seed(0)
    task = "detect" if head == "detect" else "segment"
    model = yolo.model_of(yolo.yaml(tmp_path, head, end2end, reg_max), task)
    batch = yolo.batch_of(4, torch.Generator().manual_seed(1), masks=task == "segment")
    criterion = model.init_criterion()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        criterion(model(batch["img"]), batch)[0].sum().backward()
        optimizer.step()
    model.zero_grad()
    return model, batch


@pytest.mark.parametrize(("head", "end2end", "reg_max"), HEADS)
def test_weighted_images_are_as_repeated_ones(head: str, end2end: bool, reg_max: int, tmp_path: Path) -> None:
    """An image of weight 3 has the gradient of three such images in Ultralytics' own loss; with weights 1, its own."""
    model, batch = fitted(tmp_path, head, end2end, reg_max)
    for times in ([1, 1, 1, 1], [1, 3, 2, 1]):
        model.zero_grad()
        rows = torch.repeat_interleave(torch.arange(4), torch.tensor(times))
        theirs, items = model.init_criterion()(repeated(model(batch["img"]), rows), repeated_batch(batch, rows))
        theirs.sum().backward()
        expected = gradients(model)
        assert len(expected) > 50

        model.zero_grad()
        weights = [each * 4 / sum(times) for each in times]
        planned = Planned(weights, sum(times))
        loss, shown = ours._wrap_criterion(model.init_criterion(), SimpleNamespace(train_data=planned))(
            model(batch["img"]), batch
        )
        loss.sum().backward()
        actual = gradients(model)
        assert actual.keys() == expected.keys()
        for name, gradient in actual.items():
            torch.testing.assert_close(
                gradient, expected[name], rtol=1e-3, atol=1e-5 * float(expected[name].abs().max())
            )
        known = [name for name in items if name not in ("seg_loss", "sem_loss") or max(times) == 1]
        for name in known:
            torch.testing.assert_close(shown[name], items[name], rtol=1e-4, atol=1e-6)
            place = list(items).index(name)
            torch.testing.assert_close(loss[place], theirs[place], rtol=1e-4, atol=1e-6)

        scored = [name for name in items if name not in ("seg_loss", "sem_loss")]
        total = sum(theirs[list(items).index(name)] for name in scored) / sum(times)
        torch.testing.assert_close(
            (torch.tensor(weights) * planned.losses).mean(), total.detach(), rtol=1e-4, atol=1e-6
        )
        assert (planned.losses[:3] > 0).all()


def repeated(preds: Any, rows: torch.Tensor) -> Any:
    if isinstance(preds, dict):
        return {name: repeated(each, rows) for name, each in preds.items()}
    if isinstance(preds, list | tuple):
        return type(preds)(repeated(each, rows) for each in preds)
    return preds[rows]


def repeated_batch(batch: dict[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    of_image = [batch["batch_idx"] == image for image in rows.tolist()]
    again = {name: torch.cat([batch[name][mine] for mine in of_image]) for name in ("cls", "bboxes")}
    again["batch_idx"] = torch.repeat_interleave(
        torch.arange(len(rows)), torch.tensor([int(m.sum()) for m in of_image])
    )
    return {**again, "img": batch["img"][rows], **{name: batch[name][rows] for name in batch if "masks" in name}}


def test_full_epochs_have_the_loss_of_ultralytics_bit_for_bit(tmp_path: Path) -> None:
    model, batch = fitted(tmp_path, "detect", False, 16)
    theirs, items = model.init_criterion()(model(batch["img"]), batch)
    theirs.sum().backward()
    expected = gradients(model)
    model.zero_grad()
    planned = Planned([1.0] * 4, 4, uniform=True)
    loss, shown = ours._wrap_criterion(model.init_criterion(), SimpleNamespace(train_data=planned))(
        model(batch["img"]), batch
    )
    loss.sum().backward()
    assert torch.equal(loss, theirs)
    assert shown == items
    assert all(torch.equal(gradient, expected[name]) for name, gradient in gradients(model).items())


FAMILIES = [
    "yolov8n",
    "yolov9t",
    "yolov10n",
    "yolo11n",
    "yolo12n",
    "yolo26n",
    "yolov8n-seg",
    "yolo11n-seg",
    "yolo26n-seg",
]


@pytest.mark.parametrize("name", FAMILIES)
def test_models_of_every_family(name: str) -> None:
    torch.manual_seed(0)
    task = "segment" if "seg" in name else "detect"
    model = yolo.model_of(f"{name}.yaml", task)
    batch = yolo.batch_of(3, torch.Generator().manual_seed(1), masks=task == "segment")
    batch["cls"] *= 20
    theirs, items = model.init_criterion()(model(batch["img"]), batch)
    planned = Planned([1.0] * 3, 3)
    loss, shown = ours._wrap_criterion(model.init_criterion(), SimpleNamespace(train_data=planned))(
        model(batch["img"]), batch
    )
    torch.testing.assert_close(loss, theirs, rtol=1e-3, atol=1e-4)
    assert shown.keys() == items.keys()
    assert (planned.losses > 0).all()


@pytest.mark.parametrize("end2end", [False, True])
def test_mixed_precision(end2end: bool, tmp_path: Path) -> None:
    model, batch = fitted(tmp_path, "detect", end2end, 16)
    losses = []
    for planned in (None, Planned([1.0] * 4, 4)):
        criterion = model.init_criterion()
        if planned is not None:
            criterion = ours._wrap_criterion(criterion, SimpleNamespace(train_data=planned))
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = criterion(model(batch["img"]), batch)
        loss.sum().backward()
        losses.append((loss.detach(), gradients(model)))
        model.zero_grad()
    (theirs, expected), (mine, actual) = losses
    torch.testing.assert_close(mine, theirs, rtol=0.02, atol=1e-3)
    for name, gradient in actual.items():
        assert torch.equal(gradient, expected[name])


def test_class_weights_are_in_the_losses(tmp_path: Path) -> None:
    model, batch = fitted(tmp_path, "detect", False, 16)
    model.class_weights = torch.tensor([0.5, 1.0, 1.5])
    planned = Planned([1.0] * 4, 4)
    loss, _ = ours._wrap_criterion(model.init_criterion(), SimpleNamespace(train_data=planned))(
        model(batch["img"]), batch
    )
    torch.testing.assert_close(planned.losses.sum(), loss.detach().sum(), rtol=1e-4, atol=1e-6)


def test_a_loss_that_does_not_add_up_is_refused(tmp_path: Path) -> None:
    model, batch = fitted(tmp_path, "detect", False, 16)
    criterion = model.init_criterion()
    weighted = ours._wrap_criterion(criterion, SimpleNamespace(train_data=Planned([1.0] * 4, 4)))
    criterion.hyp = SimpleNamespace(box=9 * criterion.hyp.box, cls=criterion.hyp.cls, dfl=criterion.hyp.dfl)
    with pytest.raises(RuntimeError, match="computes box_loss in a way that is not known"):
        weighted(model(batch["img"]), batch)


def test_a_copy_of_the_model_has_a_criterion_of_its_own(tmp_path: Path) -> None:
    model, _ = fitted(tmp_path, "detect", False, 16)
    model.criterion = ours._wrap_criterion(model.init_criterion(), SimpleNamespace(train_data=None))
    assert copy.deepcopy(model).criterion is None


# -- mosaic -----------------------------------------------------------------------------------------------------------


def test_a_mosaic_of_a_kept_image_with_any_others_is_unbiased() -> None:
    """All plans and all partners of four images: the weighted sum has full data's expectation, for any loss."""
    rng = np.random.default_rng(0)
    loss = rng.normal(size=(4, 4, 4, 4))  # of the mosaic of an image with three others, in each place
    loss += 0.3 * (np.indices(loss.shape)[1:] == 3).sum(0)  # partners that are hard make a mosaic harder
    full = loss.mean((1, 2, 3)).sum()
    low, high = [0, 1, 2], [3]  # two of the three low ones are kept, with weight 3 / 2
    weights = {0: 1.5, 1: 1.5, 2: 1.5, 3: 1.0}
    plans = [[*kept, *high] for kept in itertools.combinations(low, 2)]

    from_all = [sum(weights[i] * loss[i].mean() for i in plan) for plan in plans]
    assert np.mean(from_all) == pytest.approx(full, abs=1e-12)

    from_kept = [sum(weights[i] * loss[i][np.ix_(plan, plan, plan)].mean() for i in plan) for plan in plans]
    assert abs(np.mean(from_kept) - full) > 0.01  # what Ultralytics' buffer of images read lately would come to


def test_partners_come_from_all_images_also_after_pruning(data: str, tmp_path: Path) -> None:
    partners: list[set[int]] = []

    def look(trainer: Any) -> None:
        random.seed(0)
        mosaics = [
            each for each in ours._transforms(trainer.train_loader.dataset.transforms) if isinstance(each, Mosaic)
        ]
        partners.append({index for mosaic in mosaics for _ in range(200) for index in mosaic.get_indexes()})

    options = {"mixup": 0.5, "copy_paste": 0.5, "epochs": 2, "close_mosaic": 0}
    trainer = yolo.train(
        yolo.TINY, data, tmp_path, trainer=pruned(delta=1.0), callbacks={"on_train_batch_end": look}, **options
    )
    assert len(trainer.train_data.plan) < len(trainer.train_data)
    assert partners[-1] == set(range(len(trainer.train_data)))


# -- training ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return yolo.scenes(tmp_path_factory.mktemp("scenes"))


class Diary:
    """What happens in a training."""

    def __init__(self, stop_after: int | None = None, workers: int | None = None) -> None:
        self.stop_after = stop_after
        self.workers = workers
        self.lrs: list[tuple[float, ...]] = []
        self.batches: list[int] = []
        self.plans: dict[int, list[int]] = {}

    def callbacks(self) -> dict[str, Any]:
        return {
            "on_pretrain_routine_start": self.start,
            "on_train_epoch_start": self.epoch,
            "on_train_batch_end": self.batch,
            "on_model_save": self.saved,
        }

    def start(self, trainer: Any) -> None:
        if self.workers is not None:
            trainer.args.workers = self.workers  # Ultralytics uses none without a GPU

    def epoch(self, trainer: Any) -> None:
        self.batches.append(0)

    def batch(self, trainer: Any) -> None:
        self.batches[-1] += 1
        self.lrs.append(tuple(group["lr"] for group in trainer.optimizer.param_groups))
        if hasattr(trainer, "train_data"):
            self.plans[trainer.epoch] = sorted(trainer.train_data.plan.indices.tolist())
            assert trainer.train_data.epoch == trainer.epoch

    def saved(self, trainer: Any) -> None:
        if trainer.epoch == self.stop_after:
            raise KeyboardInterrupt


def rows(trainer: Any) -> list[dict[str, str]]:
    with open(trainer.csv) as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def own(data: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Diary]:
    """Ultralytics' own trainer."""
    diary = Diary()
    return yolo.train(
        yolo.TINY, data, tmp_path_factory.mktemp("own"), epochs=EPOCHS, callbacks=diary.callbacks()
    ), diary


@pytest.fixture(scope="module")
def whole(data: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Diary]:
    """A pruned training without interruption."""
    diary, folder = Diary(), tmp_path_factory.mktemp("whole")
    trainer = yolo.train(
        yolo.TINY, data, folder, epochs=EPOCHS, trainer=pruned(delta=0.75), callbacks=diary.callbacks()
    )
    return trainer, diary


def test_fewer_samples_in_the_same_steps_at_the_same_learning_rates(own: Any, whole: Any) -> None:
    _, of_own = own
    trainer, diary = whole
    assert diary.batches == of_own.batches == [6] * EPOCHS
    assert diary.lrs == of_own.lrs
    sizes = [len(diary.plans[epoch]) for epoch in range(EPOCHS)]
    assert sizes[0] == sizes[-1] == 21
    assert max(sizes[1:-1]) < 21
    stats = trainer.train_data.stats
    assert [epoch.seen for epoch in stats.epochs] == sizes
    assert stats.saving == pytest.approx(1 - sum(sizes) / (21 * EPOCHS))
    assert np.isfinite(trainer.train_data.scores).all()
    assert len(set(trainer.train_data.scores.tolist())) == 21


def test_every_epoch_is_validated_and_told(own: Any, whole: Any) -> None:
    trainer, _ = whole
    table = rows(trainer)
    assert len(table) == EPOCHS
    assert set(table[0]) == set(rows(own[0])[0]) | {"infobatch/kept_share", "infobatch/saving"}
    assert [float(row["infobatch/kept_share"]) < 1 for row in table] == [False, True, True, False]
    for row in table:
        assert all(np.isfinite(float(value)) for value in row.values())
        assert float(row["train/cls_loss"]) > 0
    assert trainer.ema.updates == 6 * EPOCHS


def test_mosaic_is_closed_when_ultralytics_says_so(whole: Any) -> None:
    trainer, _ = whole
    mosaics = [each for each in ours._transforms(trainer.train_loader.dataset.transforms) if isinstance(each, Mosaic)]
    assert {mosaic.p for mosaic in mosaics} == {0.0}


def test_a_training_that_was_stopped_goes_on_with_its_plans(whole: Any, data: str, tmp_path: Path) -> None:
    _, expected = whole
    first = Diary(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        yolo.train(yolo.TINY, data, tmp_path, epochs=EPOCHS, trainer=pruned(delta=0.75), callbacks=first.callbacks())
    second, last = Diary(), tmp_path / "run" / "weights" / "last.pt"
    trainer = yolo.train(last, data, tmp_path, resume=True, trainer=pruned(delta=0.75), callbacks=second.callbacks())
    assert {**first.plans, **second.plans}[2] == expected.plans[2]
    assert len(second.plans[2]) < 21
    assert first.batches + second.batches == [6] * EPOCHS
    assert first.lrs + second.lrs == expected.lrs
    assert len(trainer.train_data.stats.epochs) == EPOCHS

    stripped = torch.load(last, weights_only=False)
    assert stripped["scaler"] is None or "infobatch" not in stripped["scaler"]  # a finished model carries no scores


def test_other_options_than_those_of_the_checkpoint_are_refused(data: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        yolo.train(yolo.TINY, data, tmp_path, epochs=3, trainer=pruned(), callbacks=Diary(stop_after=0).callbacks())
    last = tmp_path / "run" / "weights" / "last.pt"
    with pytest.raises(ValueError, match="seed"):
        yolo.train(last, data, tmp_path, resume=True, trainer=pruned(seed=7))


def test_a_checkpoint_of_ultralytics_goes_on_with_a_full_epoch(data: str, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        yolo.train(yolo.TINY, data, tmp_path, epochs=EPOCHS, callbacks=Diary(stop_after=0).callbacks())
    diary, last = Diary(), tmp_path / "run" / "weights" / "last.pt"
    trainer = yolo.train(last, data, tmp_path, resume=True, trainer=pruned(delta=1.0), callbacks=diary.callbacks())
    sizes = [len(diary.plans[epoch]) for epoch in (1, 2, 3)]
    assert sizes[0] == 21
    assert max(sizes[1:]) < 21
    table = rows(trainer)
    assert len(table) == EPOCHS
    assert "infobatch/saving" not in table[0]  # the table that Ultralytics has begun
    assert all(None not in row and None not in row.values() for row in table)


def test_an_epoch_whose_loss_is_not_finite_is_done_again(data: str, tmp_path: Path) -> None:
    """Ultralytics goes back to its last checkpoint, and so does the plan."""
    plans, seen = [], []

    def spoil(trainer: Any) -> None:
        plans.append((trainer.epoch, sorted(trainer.train_data.plan.indices.tolist())))
        seen.append(trainer.train_data.position)
        if len(plans) == 2:
            trainer.loss = torch.tensor(torch.nan)

    trainer = yolo.train(
        yolo.TINY, data, tmp_path, epochs=3, trainer=pruned(delta=1.0), callbacks={"on_train_epoch_end": spoil}
    )
    assert [epoch for epoch, _ in plans] == [0, 1, 1, 2]
    assert plans[1] == plans[2]
    assert all(done == total for done, total in seen)
    assert [epoch.epoch for epoch in trainer.train_data.stats.epochs] == [0, 1, 2]


def test_smaller_batches_when_memory_runs_out(data: str, tmp_path: Path) -> None:
    def fail_once(trainer: Any) -> None:
        prepare, calls = trainer.preprocess_batch, []

        def preprocess_batch(batch: Any) -> Any:
            calls.append(batch)
            if len(calls) == 3:
                raise RuntimeError("out of memory")
            return prepare(batch)

        trainer.preprocess_batch = preprocess_batch

    diary = Diary()
    callbacks = {**diary.callbacks(), "on_train_start": fail_once}
    trainer = yolo.train(yolo.TINY, data, tmp_path, epochs=3, trainer=pruned(delta=1.0), callbacks=callbacks)
    assert diary.batches == [2, 11, 11, 11]
    assert len(diary.plans[0]) == 21
    assert len(diary.plans[2]) < 21
    assert np.isfinite(trainer.train_data.scores).all()


def test_workers(data: str, tmp_path: Path) -> None:
    diary = Diary(workers=2)
    trainer = yolo.train(yolo.TINY, data, tmp_path, epochs=3, trainer=pruned(delta=1.0), callbacks=diary.callbacks())
    assert trainer.train_loader.num_workers == 2
    assert diary.batches == [6] * 3
    assert len(diary.plans[2]) < 21
    assert np.isfinite(trainer.train_data.scores).all()


def test_segmentation(tmp_path: Path) -> None:
    trainer = yolo.train(
        yolo.yaml(tmp_path, "segment"),
        yolo.scenes(tmp_path / "scenes", train=12, task="segment"),
        tmp_path,
        task="segment",
        epochs=3,
        trainer=pruned(delta=1.0),
    )
    assert trainer.train_data.stats.saving > 0.05
    assert float(rows(trainer)[-1]["train/seg_loss"]) > 0


def test_end_to_end_models_change_the_gains_of_their_heads(data: str, tmp_path: Path) -> None:
    gains = []
    trainer = yolo.train(
        yolo.yaml(tmp_path, "detect", end2end=True, reg_max=1),
        data,
        tmp_path,
        epochs=3,
        trainer=pruned(delta=1.0),
        callbacks={"on_train_epoch_start": lambda trainer: gains.append(trainer.model.criterion.o2m)},
    )
    assert gains == pytest.approx([0.8, 0.45, 0.1])
    assert trainer.train_data.stats.saving > 0.05


def test_classification(tmp_path: Path) -> None:
    diary = Diary()
    trainer = yolo.train(
        yolo.yaml(tmp_path, "classify"),
        yolo.colours(tmp_path / "colours"),
        tmp_path,
        task="classify",
        epochs=EPOCHS,
        trainer=pruned(delta=1.0),
        callbacks=diary.callbacks(),
    )
    assert diary.batches == [8] * EPOCHS
    assert trainer.train_data.stats.saving > 0.1
    assert float(rows(trainer)[-1]["train/loss"]) < float(rows(trainer)[0]["train/loss"])


def test_the_seed_of_training_is_the_seed_of_the_plans(data: str, tmp_path: Path) -> None:
    made = [
        pruned(**options)(overrides={"model": str(yolo.TINY), "data": data, "seed": 3, "project": str(tmp_path)})
        for options in ({}, {"seed": 5})
    ]
    for trainer in made:
        trainer.model = YOLO(yolo.TINY, verbose=False).model
        trainer.get_dataloader(trainer.data["train"], 4, -1, "train")
    assert [trainer.train_data.sampler.seed for trainer in made] == [3, 5]
    assert all(isinstance(trainer.train_data, InfoBatch) for trainer in made)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rect": True}, "rect=True does not go with pruned"),
        ({"time": 0.1}, "time=0.1 does not go with pruned"),
        ({"compile": True}, "compile=.* does not go with pruned"),
    ],
)
def test_settings_that_do_not_go(options: dict[str, Any], message: str, data: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        yolo.train(yolo.TINY, data, tmp_path, epochs=2, trainer=pruned(), **options)


def test_several_processes_are_refused(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "RANK", 0)
    with pytest.raises(ValueError, match="one process"):
        yolo.train(yolo.TINY, data, tmp_path, epochs=2, trainer=pruned())


def test_other_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="task='pose' has a loss that is not known by image"):
        pruned()(overrides={"task": "pose"})
