"""Static methods in a comparison: a teacher trains for a few epochs, and its outputs on the data select a subset."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from .. import checkpoint, static
from ..files import write_text, write_whole
from ..static import Collected, Selection
from ..static.selection import count_of
from .method import HELD_OUT, STATIC, MethodSpec
from .recipe import Recipe
from .tasks.device import wait_for
from .tasks.task import Selectable, Task
from .training import Training, Watch

_EPOCHS, _LEAST = 0.2, 3  # a teacher's epochs: this share of the recipe's, and at least this many
_ARRAYS, _DISTANCES, _MODEL, _COST = "arrays.npz", "distances.npy", "model.pt", "seconds.json"


@dataclass(frozen=True)
class ChosenSubset:
    """The samples to train on, and the seconds spent choosing them: teachers, arrays and selection."""

    selection: Selection
    seconds: float

    def save(self, path: Path) -> None:
        """Write it as an ``.npz`` file, all of it or nothing."""
        with write_whole(path) as file:
            np.savez(file, indices=self.selection.indices, weights=self.selection.weights, seconds=self.seconds)

    @classmethod
    def load(cls, path: Path) -> ChosenSubset:
        """Read what ``save`` wrote."""
        with np.load(path) as arrays:
            return cls(Selection(arrays["indices"], arrays["weights"]), float(arrays["seconds"]))


@dataclass(frozen=True)
class Teachers:
    """The teachers of a comparison, under ``folder``: each is trained once, for all methods that need it."""

    recipe: Recipe
    folder: Path

    def select(self, task: Task, method: MethodSpec, seed: int, watch: Watch = lambda tick: None) -> ChosenSubset:
        """Select samples by a static method. Its seconds include its teachers, even if other methods share them."""
        name, options = method.static, dict(method.options)
        assert name is not None
        if not isinstance(task, Selectable):
            raise ValueError(
                f"{STATIC}{name} selects from images with labels, got {type(task).__name__}: choose a recipe for "
                "classification"
            )
        fraction, balanced, count = options.pop("fraction"), options.pop("balanced", False), options.pop("teachers", 1)
        arrays, seconds = [Collected(labels=task.labels)], 0.0
        if needs := static.info(name).needs:
            answers = [self._ask_teacher(task, seed, number, "distances" in needs, watch) for number in range(count)]
            arrays, seconds = [outputs for outputs, _ in answers], sum(cost for _, cost in answers)
        began = time.perf_counter()
        rows = np.arange(len(task.labels))
        size = count_of(fraction, len(rows))
        if "validation" in static.info(name).options:
            shuffled = np.random.default_rng(seed).permutation(rows)
            held_out = max(1, round(HELD_OUT * len(rows)))
            options["validation"], rows = arrays[0].take(np.sort(shuffled[:held_out])), np.sort(shuffled[held_out:])
            arrays, size = [outputs.take(rows) for outputs in arrays], min(size, len(rows))
        data = arrays[0] if len(arrays) == 1 else arrays
        selection = static.select(name, data, size, balanced=balanced, seed=seed, **options)
        selection = replace(selection, indices=rows[selection.indices])
        return ChosenSubset(selection, seconds + time.perf_counter() - began)

    @property
    def epochs(self) -> int:
        """How many epochs a teacher is trained."""
        return min(self.recipe.epochs, max(_LEAST, round(_EPOCHS * self.recipe.epochs)))

    def missing(self, method: MethodSpec, seed: int) -> set[Path]:
        """The folders of the teachers that have yet to be trained for a method."""
        if method.static is None or not static.info(method.static).needs:
            return set()
        places = {self._place(seed, number) for number in range(method.options.get("teachers", 1))}
        return {place for place in places if not (place / _COST).exists()}

    def _ask_teacher(
        self, task: Selectable, seed: int, number: int, with_distances: bool, watch: Watch
    ) -> tuple[Collected, float]:
        """A teacher's outputs on the data, and the seconds spent on training it and collecting them."""
        place = self._place(seed, number)
        if not (place / _COST).exists():
            self._train(task, seed, number, watch)
        cost = json.loads((place / _COST).read_text(encoding="utf-8"))
        arrays = Collected.load(place / _ARRAYS)
        if not with_distances:
            return arrays, cost["arrays"]
        if "distances" not in cost:
            model = task.model(0)
            model.load_state_dict(checkpoint.load(place / _MODEL))
            measured, seconds = _measure_time(
                lambda: static.collect(model, task.plain_batches(), deepfool=True, progress=False)
            )
            np.save(place / _DISTANCES, measured.need("distances", "deepfool"))
            cost["distances"] = seconds
            write_text(place / _COST, json.dumps(cost) + "\n")
        return replace(arrays, distances=np.load(place / _DISTANCES)), cost["arrays"] + cost["distances"]

    def _train(self, task: Selectable, seed: int, number: int, watch: Watch) -> None:
        """Train a teacher from its own seed, and collect its outputs on all samples after each epoch."""
        place = self._place(seed, number)
        own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        teacher = MethodSpec(f"teacher-{number}", "full")
        run = Training(task, replace(self.recipe, epochs=self.epochs), teacher, own, tested=False)
        correct, seconds = [], 0.0
        while not run.finished:
            run.train_epoch(lambda tick: watch(replace(tick, seed=seed)))
            arrays, passed = _measure_time(lambda: static.collect(run.model, task.plain_batches(), progress=False))
            seconds += passed
            logits, labels = arrays.need("logits", "a teacher"), arrays.need("labels", "a teacher")
            correct.append(logits.argmax(1) == labels)
        place.mkdir(parents=True, exist_ok=True)
        replace(arrays, correct=np.stack(correct).astype(np.int8)).save(place / _ARRAYS)
        checkpoint.save(run.model.state_dict(), place / _MODEL)
        cost = {"arrays": seconds + sum(run.history["times"])}
        write_text(
            place / _COST, json.dumps(cost) + "\n"
        )  # written last: where it exists, the other files are complete

    def _place(self, seed: int, number: int) -> Path:
        return self.folder / f"seed-{seed}" / str(number)


def _measure_time(work: Callable[[], Collected]) -> tuple[Collected, float]:
    began = time.perf_counter()
    outputs = work()
    if torch.cuda.is_available():
        wait_for(torch.device("cuda"))
    return outputs, time.perf_counter() - began
