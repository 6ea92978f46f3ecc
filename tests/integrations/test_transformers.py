"""Hugging Face's Trainer and TRL's SFTTrainer, pruned: real trainings of tiny models on real sentences and images."""

from __future__ import annotations

import importlib.util
import inspect
import math
import re
import runpy
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from transformers import (
    BertForSequenceClassification,
    DataCollatorForSeq2Seq,
    DataCollatorWithFlattening,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
)
from transformers.optimization import GreedyLR
from trl import SFTConfig, SFTTrainer

from distributed.launch import ROOT, torchrun
from distributed.training import differences
from infobatch import InfoBatch
from infobatch.integrations.transformers import STATE_FILE, InfoBatchMixin, InfoBatchTrainer
from infobatch.schedule import PacedScheduler
from integrations.transformers_run import (
    KEY,
    TEXTS,
    WORDS,
    Plain,
    Pruned,
    Rows,
    Traced,
    arguments,
    causal_model,
    classifier,
    history,
    pictures,
    questions,
    result,
    texts,
    translator,
    two_process_run,
    vision_model,
    weights_of,
)

PAD = DataCollatorForSeq2Seq(WORDS)
N = len(TEXTS)


def of_epoch(trainer: Any, epoch: int) -> list[int]:
    """The samples that were trained on, in order."""
    return [i for e, batch in trainer.trace.samples if e == epoch for i in batch]


# -- full data, and pruned ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two trainings with accumulation, on all data and pruned."""

    def train(pruning: dict[str, Any]) -> Any:
        options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "num_train_epochs": 5}
        each = {"eval_strategy": "epoch", "logging_strategy": "epoch"}
        args = arguments(tmp_path_factory.mktemp("run"), **options, **each, disable_tqdm=False)
        trainer = Pruned(
            causal_model(), args, data_collator=PAD, train_dataset=texts(), eval_dataset=texts(), pruning=pruning
        )
        trainer.plans = {}
        trainer.add_callback(Plans(trainer))
        trainer.train()
        return trainer

    return {"full": train({"method": "full"}), "pruned": train({"ratio": 0.5, "delta": 0.8})}


class Plans(TrainerCallback):
    """Keeps the plans of a training."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.trainer.plans[self.trainer.train_data.epoch] = self.trainer.train_data.plan


def test_each_epoch_trains_on_its_plan_and_nothing_else(trained: dict[str, Any]) -> None:
    trainer = trained["pruned"]
    kept = [len(trainer.plans[epoch]) for epoch in range(5)]
    assert kept[0] == kept[4] == N
    assert max(kept[1:4]) < N
    for epoch, plan in trainer.plans.items():
        assert of_epoch(trainer, epoch) == plan.indices.tolist()
    assert trainer.train_data.stats.seen == sum(kept)
    assert [len(of_epoch(trained["full"], epoch)) for epoch in range(5)] == [N] * 5


def test_the_last_group_of_an_epoch_is_stepped(trained: dict[str, Any]) -> None:
    trainer = trained["pruned"]
    steps = Counter(math.ceil(epoch) - 1 for epoch, *_ in trainer.trace.steps)
    groups = {epoch: math.ceil(math.ceil(len(plan) / 2) / 2) for epoch, plan in trainer.plans.items()}
    assert steps == groups
    assert any(math.ceil(len(plan) / 2) % 2 for plan in trainer.plans.values())  # there was a short one
    assert trainer.trace.left_over == [0.0] * 5


def test_the_learning_rate_follows_the_full_datas(trained: dict[str, Any]) -> None:
    full, pruned = trained["full"].trace, trained["pruned"].trace
    rates = [rate for _, rate, _ in full.steps]
    assert rates == pytest.approx([0.01 * (1 - step / 30) for step in range(30)])
    assert len(pruned.steps) < 30
    reached = [0.0, *(epoch for epoch, *_ in pruned.steps[:-1])]
    assert [rate for _, rate, _ in pruned.steps] == pytest.approx([rates[int(6 * epoch + 1e-9)] for epoch in reached])
    assert trained["pruned"].lr_scheduler.get_last_lr()[0] == 0.0


def test_epochs_validation_and_progress_bars(trained: dict[str, Any]) -> None:
    for trainer in trained.values():
        trace = trainer.trace
        assert trace.evaluations == 5
        assert [h["epoch"] for h in trainer.state.log_history if "eval_loss" in h] == [1, 2, 3, 4, 5]
        assert [h["epoch"] for h in trainer.state.log_history if "loss" in h] == [1, 2, 3, 4, 5]
        steps = len(trace.steps)
        assert trace.bars[-1] == (steps, steps)
        assert trainer.state.max_steps == trainer.state.global_step == steps
        totals = [total for _, total in trace.bars]
        assert totals == sorted(totals, reverse=True)
        assert all(done <= total for done, total in trace.bars)
        assert totals[0] == 30


def test_what_is_logged(trained: dict[str, Any]) -> None:
    trainer = trained["pruned"]
    logged = [h for h in trainer.state.log_history if "loss" in h]
    kept = [len(plan) / N for plan in trainer.plans.values()]
    assert [h["infobatch/kept_share"] for h in logged] == pytest.approx(kept)
    assert logged[-1]["infobatch/saving"] == pytest.approx(1 - np.mean(kept))
    assert logged[-1]["infobatch/mean_score"] == pytest.approx(trainer.train_data.scores.mean(), rel=1e-6)
    assert not any(key.startswith("infobatch") for h in trainer.state.log_history if "eval_loss" in h for key in h)
    last = trainer.state.log_history[-1]
    seen = last["train_samples_per_second"] * last["train_runtime"]
    assert seen == pytest.approx(trainer.train_data.stats.seen, rel=0.01)


def row_means(model: Any, data: Rows) -> list[float]:
    """Each sample's loss, by itself, as the model computes it."""
    model.eval()
    with torch.no_grad():
        found = []
        for sample in data.samples:
            batch = {k: torch.as_tensor(v)[None] for k, v in sample.items()}
            batch["labels"] = batch.pop("label", batch.get("labels"))
            found.append(float(model(**batch).loss))
    return found


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Rows], Any, dict[str, Any]]] = {
    "causal": (causal_model, texts, PAD, {"gradient_accumulation_steps": 2}),
    "smoothed": (causal_model, texts, PAD, {"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 2}),
    "end to end": (causal_model, texts, DataCollatorWithFlattening(), {"gradient_accumulation_steps": 2}),
    "classes": (classifier, questions, DataCollatorWithPadding(WORDS), {}),
    "images": (vision_model, pictures, None, {"gradient_accumulation_steps": 2}),
    "seq2seq": (translator, texts, PAD, {}),
    "values": (
        lambda: classifier(num_labels=1),
        lambda: Rows([{**row, "label": float(row["label"])} for row in questions().samples]),
        DataCollatorWithPadding(WORDS),
        {},
    ),
    "many labels": (
        lambda: classifier(num_labels=3, problem_type="multi_label_classification"),
        lambda: Rows([{**row, "label": [1.0, 0.0, float(row["label"])]} for row in questions().samples]),
        DataCollatorWithPadding(WORDS),
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_with_all_weights_one_it_is_trainers_own_training(case: str, tmp_path: Path) -> None:
    """The same orders give the same losses and the same weights, for every kind of model."""
    model, data, collate, options = CASES[case]
    args = arguments(tmp_path, num_train_epochs=2, optim="sgd", learning_rate=0.1, **options)
    ours = Pruned(model(), args, data_collator=collate, train_dataset=data(), pruning={"method": "full"})
    ours.train()
    theirs = Plain(model(), args, data_collator=collate, train_dataset=data())
    theirs.orders = [of_epoch(ours, epoch) for epoch in range(2)]
    theirs.train()

    assert ours.trace.losses == pytest.approx(theirs.trace.losses, rel=1e-5)
    assert [rate for _, rate, _ in ours.trace.steps] == [rate for _, rate, _ in theirs.trace.steps]
    torch.testing.assert_close(weights_of(ours.model), weights_of(theirs.model), rtol=1e-4, atol=1e-6)
    assert ours.trace.losses[0] != ours.trace.losses[-1]


@pytest.mark.parametrize(
    ("case", "keep_steps"), [*((case, False) for case in CASES if case != "smoothed"), ("end to end", True)]
)
def test_scores_are_each_samples_own_mean_loss(case: str, keep_steps: bool, tmp_path: Path) -> None:
    """The model stands still, so that a sample's score is the loss it has by itself."""
    model, data, collate, options = CASES[case]
    args = arguments(tmp_path, num_train_epochs=2, learning_rate=0.0, **options)
    how = {"pruning": {"delta": 1.0}, "keep_steps": keep_steps}
    trainer = Pruned(model(), args, data_collator=collate, train_dataset=data(), **how)
    trainer.train()

    assert len(of_epoch(trainer, 1)) < N
    assert trainer.train_data.scores.tolist() == pytest.approx(row_means(trainer.model, data()), rel=1e-4)


@pytest.mark.parametrize("case", ["causal", "classes", "seq2seq", "values"])
def test_accumulated_batches_are_one_large_batch(case: str, tmp_path: Path) -> None:
    """Pruned, with weights: two batches of 3 give the step of one of 6."""
    model, data, collate, _ = CASES[case]

    def train(size: int, groups: int) -> Any:
        args = arguments(
            tmp_path,
            optim="sgd",
            learning_rate=0.1,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=groups,
        )
        trainer = Pruned(model(), args, data_collator=collate, train_dataset=data(), pruning=pruning)
        trainer.train()
        return trainer

    # 15 of 23 rows: what remains after batches of 3 or 6 is left over in both, or the plans would be cut differently.
    pruning = {"method": "random", "ratio": 0.27, "rescale": True, "delta": 1.0}
    small, large = train(3, 2), train(6, 1)
    assert small.train_data.stats.saved == large.train_data.stats.saved > 0
    torch.testing.assert_close(weights_of(small.model), weights_of(large.model), rtol=1e-4, atol=1e-6)


class DividedByKeptTokens(Pruned):
    """As Trainer itself counts."""

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        return batches, self._get_num_items_in_batch(batches, device)


def test_an_epochs_losses_add_up_to_the_full_epochs(tmp_path: Path) -> None:
    """Short rows are easy and long ones hard; over many plans the expected sum is still that of all data.

    Divided by the tokens of the rows that were kept it would be another.
    """
    generator = torch.Generator().manual_seed(1)
    easy = [[5] * (3 + i % 3) for i in range(24)]
    hard = [torch.randint(6, len(WORDS), (10 + i % 5,), generator=generator).tolist() for i in range(24)]
    data = Rows([{"input_ids": row, "labels": row} for row in easy + hard])
    model = causal_model()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(12):
        model(**PAD(data.samples[:4])).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def epoch_sums(kind: type[Pruned], epochs: int, **pruning: Any) -> tuple[float, float]:
        """Mean over epochs of the sum of the losses, and its standard error."""
        options = {"learning_rate": 0.0, "per_device_train_batch_size": 8, "logging_strategy": "no"}
        args = arguments(tmp_path, num_train_epochs=epochs, **options)
        trainer = kind(model, args, data_collator=PAD, train_dataset=data, pruning=pruning)
        trainer.train()
        sums = np.zeros(epochs)
        for (epoch, batch), loss in zip(trainer.trace.samples, trainer.trace.losses, strict=True):
            sums[epoch] += loss * len(batch)  # so that the short last batch counts for what it is
        return sums[1:].mean(), sums[1:].std() / math.sqrt(epochs - 1)

    full, full_error = epoch_sums(Pruned, 20, method="full")
    pruned, error = epoch_sums(Pruned, 50, delta=1.0, ratio=0.6)
    kept, kept_error = epoch_sums(DividedByKeptTokens, 15, delta=1.0, ratio=0.6)
    assert abs(pruned - full) < 4 * math.hypot(error, full_error)
    assert abs(kept - full) > 8 * math.hypot(kept_error, full_error)


# -- steps that stay ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 28},
        {"max_steps": 12, "gradient_accumulation_steps": 3},
        {"num_train_epochs": 3.5, "gradient_accumulation_steps": 2, "lr_scheduler_type": "cosine", "warmup_steps": 3},
        {"dataloader_drop_last": True, "dataloader_num_workers": 2},
    ],
    ids=str,
)
def test_steps_that_stay_are_trainers_own(options: dict[str, Any], tmp_path: Path) -> None:
    """Their number, the learning rate of each and the progress bar: as with Trainer and all data."""
    args = arguments(tmp_path, disable_tqdm=False, **options)
    data = {"data_collator": DataCollatorWithPadding(WORDS), "train_dataset": questions()}
    theirs = Plain(classifier(), args, **data)
    theirs.orders = [list(range(N))] * 4
    theirs.train()
    ours = Pruned(classifier(), args, **data, pruning={"delta": 1.0}, keep_steps=True)
    ours.train()

    assert [step[1:] for step in ours.trace.steps] == [step[1:] for step in theirs.trace.steps]
    assert ours.trace.bars == theirs.trace.bars
    assert ours.state.global_step == ours.state.max_steps == theirs.state.max_steps
    places = [[epoch for epoch, *_ in trace.steps] for trace in (ours.trace, theirs.trace)]
    assert places[0] == pytest.approx(places[1], abs=0.15)  # of the samples, and of the batches
    assert {1.0, 2.0, 3.0} <= set(places[0])
    assert not isinstance(ours.lr_scheduler, PacedScheduler)
    batches = 7 if "dataloader_drop_last" in options else 8
    stats = ours.train_data.stats.epochs
    assert ours.train_data.stats.saved > 0
    for epoch in range(4):
        sizes = [len(batch) for e, batch in ours.trace.samples if e == epoch]
        whole = len(sizes) == batches
        assert whole or epoch == 3
        assert max(sizes) - min(sizes) <= 1
        assert not whole or sum(sizes) == min(stats[epoch].kept, 3 * batches)


def test_steps_that_stay_are_on_the_scale_of_all_data(tmp_path: Path) -> None:
    """The sum of weighted losses over the rows that a step stands for, all accumulated batches together."""
    options = {"gradient_accumulation_steps": 2, "learning_rate": 0.0, "per_device_train_batch_size": 5}
    trainer = Pruned(
        classifier(),
        arguments(tmp_path, **options),
        data_collator=DataCollatorWithPadding(WORDS),
        train_dataset=questions(),
        pruning={"delta": 1.0, "method": "infobatch-quantile"},
        keep_steps=True,
    )
    trainer.plans = {}
    trainer.add_callback(Plans(trainer))
    trainer.train()
    each = row_means(trainer.model, questions())
    steps: dict[tuple[int, int], list[Any]] = {}  # by epoch and step: of each batch its loss, the weighted sum, rows
    for number, ((epoch, batch), loss) in enumerate(zip(trainer.trace.samples, trainer.trace.losses, strict=True)):
        plan = trainer.plans[epoch]
        weight = dict(zip(plan.indices.tolist(), plan.weights.tolist(), strict=True))
        weighted = sum(weight[i] * each[i] for i in batch) / plan.weights.mean()
        steps.setdefault((epoch, number % 5 // 2), []).append((loss, weighted, len(batch)))
    assert len(steps) == 4 * 3  # of 5 batches each
    for (epoch, _), batches in steps.items():
        losses, weighted, rows = (sum(values) for values in zip(*batches, strict=True))
        assert losses == pytest.approx(weighted / rows, rel=1e-4), epoch
    assert {len(plan) < N for plan in list(trainer.plans.values())[1:]} == {True}


# -- stopping and going on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "accumulate", "when", "keep_steps"),
    [
        ("causal", 1, "steps", False),
        ("causal", 2, "steps", False),
        ("classes", 2, "epoch", False),
        ("classes", 3, "steps", True),
    ],
)
def test_resuming_goes_on_bit_for_bit(case: str, accumulate: int, when: str, keep_steps: bool, tmp_path: Path) -> None:
    """From checkpoints in mid-epoch and at an epoch's end, with dropout and a warm-up; evaluated when it is saved."""
    _, data, collate, _ = CASES[case]
    model = {"causal": lambda: causal_model(dropout=0.2), "classes": lambda: classifier(dropout=0.2)}[case]

    def make() -> Any:
        saved = {"save_strategy": when, "save_steps": 1, "eval_strategy": when, "eval_steps": 1}
        rates = {"warmup_steps": 3, "lr_scheduler_type": "cosine"}
        args = arguments(tmp_path, gradient_accumulation_steps=accumulate, **saved, **rates)
        of_data = {"data_collator": collate, "train_dataset": data(), "eval_dataset": data()}
        return Pruned(model(), args, **of_data, pruning={"delta": 0.75}, keep_steps=keep_steps)

    whole = make()
    whole.train()
    end = result(whole)
    ends = [step for step, (epoch, *_) in enumerate(whole.trace.steps, 1) if epoch == int(epoch)]
    assert len(ends) == 4
    for step in ends[:3:2] if when == "epoch" else [2, ends[1], ends[1] + 2]:
        resumed = make()
        resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert resumed.trace.steps == whole.trace.steps[step:]
        assert resumed.trace.samples == whole.trace.samples[-len(resumed.trace.samples) :]
        assert differences(end, result(resumed)) == []
        assert history(resumed) == history(whole)


class Redacted(Rows):
    """Sentences of which words are left out at random, anew each time they are read."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = self.samples[index]["input_ids"]
        ids = [1 if torch.rand(()) < 0.2 else word for word in ids]
        return {"input_ids": ids, "labels": ids}


class Hides:
    """A collator that hides labels at random, as those of masked language models do."""

    def __call__(self, samples: list[dict[str, Any]]) -> Any:
        batch = PAD(samples)
        batch["labels"][torch.rand(batch["labels"].shape) < 0.2] = -100
        return batch


@pytest.mark.parametrize("workers", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_resuming_with_random_augmentation(workers: int, tmp_path: Path) -> None:
    """With dropout as well; workers that stay hold the data set of the first epoch."""

    def make(seeded: bool = True) -> Any:
        many = {"dataloader_num_workers": workers, "dataloader_persistent_workers": workers > 0}
        args = arguments(tmp_path, save_strategy="steps", save_steps=10, num_train_epochs=3, **many)
        data = {"data_collator": Hides(), "train_dataset": Redacted(texts().samples)}
        return Pruned(causal_model(dropout=0.2), args, **data, pruning={"seed_samples": seeded})

    whole = make()
    whole.train()
    resumed = make()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert differences(result(whole), result(resumed)) == []
    if workers:
        unseeded = make(seeded=False)
        unseeded.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
        assert differences(result(whole), result(unseeded)) != []


def test_the_plans_seed_is_trainers(tmp_path: Path) -> None:
    def train(resume: str | None = None, pruning: dict[str, Any] | None = None, own: Any = None, **seeds: int) -> Any:
        args = arguments(tmp_path, num_train_epochs=3, save_strategy="steps", save_steps=10, **seeds)
        data = {"data_collator": DataCollatorWithPadding(WORDS), "train_dataset": own or questions()}
        trainer = Pruned(classifier(), args, **data, pruning=pruning)
        trainer.train(resume_from_checkpoint=resume)
        return trainer.trace.samples

    runs = [train(seed=seed) for seed in (1, 2, 3)]
    assert len({str(run) for run in runs}) == 3
    assert runs[2] == train(seed=3) == train(seed=1, data_seed=3) == train(seed=1, pruning={"seed": 3})
    own = InfoBatch(questions(), 3, index_key=KEY)
    assert train(seed=3, own=own) == runs[2]
    assert train(seed=2, own=own) == runs[1]  # over again
    checkpoint = str(tmp_path / "checkpoint-10")  # of seed 2
    assert train(resume=checkpoint, seed=1) == runs[1][10:]
    with pytest.raises(ValueError, match="seed: 2 in the state, 4 here"):
        train(resume=checkpoint, pruning={"seed": 4})


def test_resuming_needs_our_state(tmp_path: Path) -> None:
    args = arguments(tmp_path, num_train_epochs=1, save_strategy="steps", save_steps=3)
    make = lambda: Pruned(classifier(), args, DataCollatorWithPadding(WORDS), questions())  # noqa: E731
    make().train()
    (tmp_path / "checkpoint-3" / STATE_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=r"holds no infobatch\.pt"):
        make().train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))


# -- many processes -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    """One process with the double batch trains the same; and each of two goes on bit for bit."""
    torchrun(Path(__file__).with_name("transformers_run.py"), tmp_path)
    ranks = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(2)]
    alone = two_process_run(tmp_path / "alone", 1)
    alone.train()

    for rank in ranks:
        assert differences(rank["whole"], rank["resumed"]) == []
        assert rank["same place"]
        assert rank["evaluations"] == 4
        assert "average_tokens_across_devices=False with several processes" in rank["refused"]
        assert differences(rank["whole"]["weights"], ranks[0]["whole"]["weights"]) == []
        assert rank["steps"] == alone.trace.steps
        torch.testing.assert_close(rank["whole"]["weights"], weights_of(alone.model), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(rank["whole"]["scores"], result(alone)["scores"], rtol=1e-4, atol=1e-6)
        assert rank["whole"]["epochs"] == result(alone)["epochs"]
    for epoch in range(4):
        both = Counter(i for rank in ranks for e, batch in rank["samples"] if e == epoch for i in batch)
        assert set(both) == set(of_epoch(alone, epoch))
        assert both.total() == len(both) + len(both) % 2  # the one that fills up
    assert any(kept % 2 for _, kept, _ in ranks[0]["whole"]["epochs"][1:3])

    for rank in ranks:
        stay = rank["stay"]
        assert differences(stay["whole"], stay["resumed"]) == []
        assert stay["same place"]
        assert differences(stay["whole"], ranks[0]["stay"]["whole"]) == []
        assert [step[1:] for step in stay["steps"]] == [(pytest.approx(0.1 * (1 - k / 12)), 12) for k in range(12)]
        still = row_means(two_process_run(tmp_path / "still", 1).model, texts())
        assert stay["scores of a model that stands still"] == pytest.approx(still, rel=1e-4)
    for epoch, kept, seen in ranks[0]["stay"]["whole"]["epochs"]:
        both = Counter(i for rank in ranks for e, batch in rank["stay"]["samples"] if e == epoch for i in batch)
        assert kept == seen == len(both)
        assert both.total() == kept + kept % 2
        assert {sum(e == epoch for e, _ in rank["stay"]["samples"]) for rank in ranks} == {6}

    resumed = two_process_run(tmp_path, 1)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{ranks[0]['step']}"))
    torch.testing.assert_close(weights_of(resumed.model), weights_of(alone.model), rtol=1e-4, atol=1e-6)


# -- TRL ------------------------------------------------------------------------------------------------------------


class PrunedSFT(Traced, InfoBatchMixin, SFTTrainer):
    """Ours."""


class PlainSFT(Plain, SFTTrainer):
    """Theirs, with the orders of ours."""


SENTENCES = datasets.Dataset.from_dict({"text": TEXTS})
MANNERS: dict[str, dict[str, Any]] = {
    "padded": {},
    "end to end": {"padding_free": True, "max_length": None},
    "packed": {"packing": True, "max_length": 32, "per_device_train_batch_size": 2},
}


def sft(
    kind: Any, folder: Path, pruning: dict[str, Any] | None = None, keep_steps: bool = False, **options: Any
) -> Any:
    usual = arguments(folder, gradient_accumulation_steps=2, optim="sgd", learning_rate=0.1)
    names = ("optim", "learning_rate", "max_grad_norm", "logging_steps", "report_to", "use_cpu", "disable_tqdm")
    names += ("dataloader_pin_memory", "gradient_accumulation_steps", "per_device_train_batch_size", "num_train_epochs")
    config = {name: getattr(usual, name) for name in names}
    config |= {"save_strategy": "no", "bf16": False, "gradient_checkpointing": False, "max_length": 64}
    args = SFTConfig(str(folder), **{**config, **options})
    more = {} if pruning is None else {"pruning": pruning, "keep_steps": keep_steps}
    return kind(causal_model(), args, train_dataset=SENTENCES, processing_class=WORDS, **more)


@pytest.mark.parametrize("manner", MANNERS)
def test_sft_with_all_weights_one_is_their_own_training(manner: str, tmp_path: Path) -> None:
    ours = sft(PrunedSFT, tmp_path, {"method": "full"}, num_train_epochs=2, **MANNERS[manner])
    ours.train()
    theirs = sft(PlainSFT, tmp_path, num_train_epochs=2, **MANNERS[manner])
    theirs.orders = [of_epoch(ours, epoch) for epoch in range(2)]
    theirs.train()
    assert differences(weights_of(ours.model), weights_of(theirs.model)) == []
    assert ours.trace.losses == theirs.trace.losses
    of_trl = ("mean_token_accuracy", "entropy", "num_tokens", "loss", "learning_rate")
    for mine, other in zip(ours.state.log_history[:-1], theirs.state.log_history[:-1], strict=True):
        assert {k: mine[k] for k in of_trl} == {k: other[k] for k in of_trl}


def test_sft_rows_end_to_end_are_weighed_and_scored_as_padded_ones(tmp_path: Path) -> None:
    """The model stands still, so that each row has the loss it has by itself, and each batch the same weighted loss."""
    padded = sft(PrunedSFT, tmp_path, {"delta": 1.0}, learning_rate=0.0)
    padded.train()
    means = row_means(
        padded.model, Rows([{"input_ids": r["input_ids"], "labels": r["input_ids"]} for r in padded.train_data.dataset])
    )
    assert padded.train_data.scores.tolist() == pytest.approx(means, rel=1e-4)
    assert padded.train_data.stats.saved > 0
    end_to_end = sft(PrunedSFT, tmp_path, {"delta": 1.0}, learning_rate=0.0, **MANNERS["end to end"])
    end_to_end.train()
    assert end_to_end.train_data.scores.tolist() == pytest.approx(means, rel=1e-4)
    assert end_to_end.trace.losses == pytest.approx(padded.trace.losses, rel=1e-4)


@pytest.mark.parametrize("keep_steps", [False, True])
def test_sft_trains_as_trainer_does_on_the_same_rows(keep_steps: bool, tmp_path: Path) -> None:
    """Weighed by TRL's log-probabilities, and by the logits: the same pruned training."""
    ours = sft(PrunedSFT, tmp_path, {"delta": 1.0}, keep_steps)
    ours.train()
    rows = Rows([{"input_ids": r["input_ids"], "labels": r["labels"]} for r in ours.train_data.dataset])
    args = arguments(tmp_path, gradient_accumulation_steps=2, optim="sgd", learning_rate=0.1)
    how = {"pruning": {"delta": 1.0}, "keep_steps": keep_steps}
    other = Pruned(causal_model(), args, data_collator=PAD, train_dataset=rows, **how)
    other.train()
    assert ours.trace.samples == other.trace.samples
    assert ours.train_data.stats.saved > 0
    assert ours.trace.losses == pytest.approx(other.trace.losses, rel=1e-5)
    torch.testing.assert_close(weights_of(ours.model), weights_of(other.model), rtol=1e-4, atol=1e-6)


def test_sft_packed_rows_are_pruned_and_resumed(tmp_path: Path) -> None:
    saved = {"save_strategy": "steps", "save_steps": 1, **MANNERS["packed"]}
    whole = sft(PrunedSFT, tmp_path, {"delta": 1.0}, **saved)
    whole.train()
    assert whole.train_data.stats.saved > 0
    assert len(whole.train_data) < N
    step = 1 + next(i for i, (epoch, *_) in enumerate(whole.trace.steps, 1) if epoch == 2.0)
    resumed = sft(PrunedSFT, tmp_path, {"delta": 1.0}, **saved)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    assert differences(result(whole), result(resumed)) == []


def test_sft_refuses_what_it_would_unpack_or_weigh_itself(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='loss_type="dft"'):
        sft(PrunedSFT, tmp_path, {}, loss_type="dft")
    args = SFTConfig(str(tmp_path), report_to="none", use_cpu=True, bf16=False)
    with pytest.raises(TypeError, match="must be a `Dataset`"):  # TRL's own words
        PrunedSFT(causal_model(), args, train_dataset=InfoBatch(SENTENCES, 4, index_key=KEY), processing_class=WORDS)


class Prepares(Trainer):
    """Makes other data of what it is given."""

    def __init__(self, *args: Any, train_dataset: Any, **kwargs: Any) -> None:
        super().__init__(*args, train_dataset=Rows(list(train_dataset)), **kwargs)


class PrunedPrepares(InfoBatchMixin, Prepares):
    """Whose data is wrapped when it is ready."""


def test_a_trainer_that_prepares_its_data_takes_it_plain(tmp_path: Path) -> None:
    trainer = PrunedPrepares(classifier(), arguments(tmp_path), train_dataset=questions())
    assert isinstance(trainer.train_data.dataset, Rows)
    with pytest.raises(TypeError, match="has unpacked the InfoBatch given as train_dataset: pass the plain data"):
        PrunedPrepares(classifier(), arguments(tmp_path), train_dataset=InfoBatch(questions(), 4, index_key=KEY))


# -- lengths of training --------------------------------------------------------------------------------------------


def run(folder: Path, kind: type[Any] = Pruned, pruning: Any = None, model: Any = None, **options: Any) -> Any:
    """A small training of the classifier."""
    trainer = kind(
        model or classifier(),
        arguments(folder, **options),
        DataCollatorWithPadding(WORDS),
        questions(),
        pruning=pruning,
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("options", [{"num_train_epochs": 3.5}, {"max_steps": 28}])
def test_training_that_ends_in_mid_epoch_ends_at_the_same_share(options: dict[str, Any], tmp_path: Path) -> None:
    """28 steps of 8 per epoch are 3.5 epochs of all data, and of pruned data."""
    trainer = run(tmp_path, pruning={"delta": 1.0}, **options)
    batches = math.ceil(trainer.train_data.stats.epochs[3].kept / 3)
    last = len([epoch for epoch, _ in trainer.trace.samples if epoch == 3])
    assert trainer.train_data.num_epochs == 4
    assert batches < 8
    assert last == math.ceil(batches / 2)
    assert trainer.state.global_step == trainer.state.max_steps == len(trainer.trace.steps) < 28


def test_the_last_batch_can_be_dropped(tmp_path: Path) -> None:
    trainer = run(tmp_path, dataloader_drop_last=True, pruning={"delta": 1.0})
    for epoch in trainer.train_data.stats.epochs:
        assert len(of_epoch(trainer, epoch.epoch)) == epoch.seen == epoch.kept // 3 * 3
    assert trainer.trace.steps[-1][0] == 4.0
    assert trainer.lr_scheduler.get_last_lr()[0] == 0.0


def test_workers(tmp_path: Path) -> None:
    plain = run(tmp_path, num_train_epochs=3, pruning={"delta": 1.0})
    workers = run(
        tmp_path,
        num_train_epochs=3,
        pruning={"delta": 1.0},
        dataloader_num_workers=2,
        dataloader_persistent_workers=True,
    )
    assert differences(result(plain), result(workers)) == []


class Greedy(BertForSequenceClassification):
    """Runs out of memory with more than four rows."""

    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None, **kwargs: Any) -> Any:
        if self.training and len(input_ids) > 4:
            raise RuntimeError("CUDA out of memory. Or so it would be")
        return super().forward(input_ids, attention_mask, labels=labels, **kwargs)


@pytest.mark.slow
def test_a_batch_size_that_is_found(tmp_path: Path) -> None:
    model = Greedy(classifier().config)
    trainer = run(
        tmp_path, model=model, auto_find_batch_size=True, per_device_train_batch_size=5, pruning={"delta": 1.0}
    )
    assert trainer._train_batch_size == 4
    assert [e.seen for e in trainer.train_data.stats.epochs] == [e.kept for e in trainer.train_data.stats.epochs]
    assert [len(of_epoch(trainer, epoch)) for epoch in (1, 2, 3)] == [
        e.kept for e in trainer.train_data.stats.epochs[1:]
    ]
    assert trainer.lr_scheduler.get_last_lr()[0] == 0.0


def test_training_twice_starts_over(tmp_path: Path) -> None:
    trainer = run(tmp_path)
    steps = len(trainer.trace.steps)
    trainer.train()
    assert trainer.trace.steps[steps][:2] == (3 / 23, 0.01)
    assert Counter(of_epoch(trainer, 0)) == dict.fromkeys(range(N), 2)
    assert trainer.lr_scheduler.get_last_lr()[0] == 0.0


def test_a_schedule_of_ones_own_is_paced_and_one_on_a_metric_is_not(tmp_path: Path) -> None:
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8 * 4 + 1)
    args = arguments(tmp_path)
    data = {"data_collator": DataCollatorWithPadding(WORDS), "train_dataset": questions()}
    trainer = Pruned(model, args, **data, optimizers=(optimizer, schedule))
    trainer.train()
    assert trainer.state.global_step < 32
    assert schedule.last_epoch == 32

    args = arguments(tmp_path, lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="epoch")
    trainer = Pruned(classifier(), args, **data, eval_dataset=questions())
    trainer.train()
    assert isinstance(trainer.lr_scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
    assert hasattr(GreedyLR(optimizer), "num_bad_epochs")  # by which it is known


# -- losses of ones own ---------------------------------------------------------------------------------------------


def per_sample(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs.logits, labels, reduction="none")


def test_a_loss_function_of_ones_own_returns_one_loss_per_sample(tmp_path: Path) -> None:
    data = {"data_collator": DataCollatorWithPadding(WORDS), "train_dataset": questions()}
    args = arguments(tmp_path, gradient_accumulation_steps=2)
    own = Pruned(classifier(), args, **data, compute_loss_func=per_sample)
    own.train()
    usual = Pruned(classifier(), args, **data)
    usual.train()
    torch.testing.assert_close(weights_of(own.model), weights_of(usual.model))

    mean = lambda *given, **named: per_sample(*given, **named).mean()  # noqa: E731
    with pytest.raises(ValueError, match="the result of compute_loss_func is a scalar"):
        Pruned(classifier(), args, **data, compute_loss_func=mean).train()


class WeighsClasses(InfoBatchTrainer):
    """The usual way to override."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        inputs = {k: v for k, v in inputs.items() if k != KEY}
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        return torch.nn.functional.cross_entropy(outputs.logits, labels, torch.tensor([1.0, 2.0]))


class Regularized(BertForSequenceClassification):
    """Adds to its loss."""

    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None, **kwargs: Any) -> Any:
        outputs = super().forward(input_ids, attention_mask, labels=labels, **kwargs)
        if outputs.loss is not None:
            outputs.loss = outputs.loss + 0.01 * self.classifier.weight.norm()
        return outputs


def test_a_loss_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="compute_loss of WeighsClasses makes its own loss"):
        run(tmp_path, WeighsClasses)
    with pytest.raises(ValueError, match=r"Regularized computes its loss in a way that is not known \(its own loss is"):
        run(tmp_path, model=Regularized(classifier().config))


# -- what does not fit ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_sampling_strategy": "group_by_length"}, 'train_sampling_strategy="group_by_length"'),
        ({"enable_jit_checkpoint": True}, "enable_jit_checkpoint"),
        ({"accelerator_config": {"split_batches": True}}, "split_batches"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        InfoBatchTrainer(classifier(), arguments(tmp_path, **options), train_dataset=questions())


def test_several_gpus_in_one_process(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    args._n_gpu = 2
    with pytest.raises(ValueError, match="DataParallel"):
        InfoBatchTrainer(classifier(), args, train_dataset=questions())


def test_data_that_does_not_fit(tmp_path: Path) -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            return iter(questions().samples)

    args = arguments(tmp_path, max_steps=3)
    with pytest.raises(TypeError, match="dataset must be map-style"):
        InfoBatchTrainer(classifier(), args, train_dataset=Stream())
    args = arguments(tmp_path)
    for given, pruning, error in [
        (InfoBatch(questions(), 4), None, "made without index_key"),
        (InfoBatch(questions(), 4, index_key=KEY), {"ratio": 0.3}, "leave out pruning"),
        (questions(), {"num_epochs": 3}, "pruning must not hold num_epochs"),
    ]:
        with pytest.raises((TypeError, ValueError), match=error):
            InfoBatchTrainer(classifier(), args, train_dataset=given, pruning=pruning)
    trainer = InfoBatchTrainer(classifier(), args, train_dataset=InfoBatch(questions(), 3, index_key=KEY))
    with pytest.raises(ValueError, match=r"num_epochs=3, but the training arguments make 4 epochs"):
        trainer.train()


def test_an_infobatch_of_ones_own(tmp_path: Path) -> None:
    data = InfoBatch(questions(), 4, delta=1.0, index_key="number")
    args = arguments(tmp_path)
    trainer = InfoBatchTrainer(classifier(), args, DataCollatorWithPadding(WORDS), data, eval_dataset=questions())
    trainer.train()
    assert trainer.train_data is data
    assert data.stats.saved > 0
    assert trainer.evaluate()["eval_loss"] == pytest.approx(np.mean(row_means(trainer.model, questions())), rel=0.1)


def test_a_trainer_without_training_data_is_trainers_own(tmp_path: Path) -> None:
    trainer = InfoBatchTrainer(
        classifier(), arguments(tmp_path), DataCollatorWithPadding(WORDS), eval_dataset=questions()
    )
    assert trainer.evaluate()["eval_loss"] > 0


# -- the examples ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "printed"),
    [
        ("hf_trainer", ["--epochs", "4", "--samples", "800"], r"accuracy on \d+ held-out lines: [3-9]\d\.\d%"),
        ("sft", ["--epochs", "4", "--texts", "60"], r"60 texts in \d+ packed rows, mean token loss \d\.\d\d"),
    ],
)
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator")
def test_examples(
    name: str, options: list[str], printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, *options])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert re.search(r"saved \d\d?\.\d% of full training", out)
    assert not re.search(r"saved 0\.0% of", out)
    assert re.search(printed, out)


def test_without_transformers_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec("infobatch.integrations.transformers")
    assert found is not None
    assert found.loader is not None
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r'needs transformers, .*pip install "infobatch\[transformers\]"'):
        found.loader.exec_module(importlib.util.module_from_spec(found))


# -- names that are Trainer's own -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_run_epoch", {"epoch", "train_dataloader", "steps_in_epoch", "num_update_steps_per_epoch"}),
        ("_init_training_state", {"max_steps", "num_update_steps_per_epoch", "num_train_epochs", "trial"}),
        ("_finalize_training", {"trial", "num_train_samples", "start_time"}),
        ("_save_optimizer_and_scheduler", {"output_dir"}),
        ("_get_collator_with_removed_columns", {"data_collator", "description"}),
        ("set_initial_training_values", {"args", "dataloader"}),
        ("get_batch_samples", {"epoch_iterator", "num_batches", "device"}),
        ("create_scheduler", {"num_training_steps", "optimizer"}),
        ("training_step", {"model", "inputs", "num_items_in_batch"}),
        ("compute_loss", {"model", "inputs", "return_outputs", "num_items_in_batch"}),
    ],
)
def test_the_names_we_stand_on(name: str, parameters: set[str]) -> None:
    """A release that moves one of them must be looked at."""
    assert parameters <= set(inspect.signature(getattr(Trainer, name)).parameters)
    source = inspect.getsource(Trainer)
    assert f"self.{name}(" in source or f"self.{name}," in source  # and Trainer still calls it
    for attribute in ("self._train_batch_size", "self._loss_shifts_labels", "self.loss_is_scaled_for_ga"):
        assert attribute in source
