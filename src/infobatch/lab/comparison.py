"""Many runs of one recipe: methods × seeds, interleaved, each in its own folder; finished runs are not repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .. import checkpoint
from ..records import RunRecord
from .coreset import ChosenSubset, Teachers
from .method import MethodSpec
from .recipe import Recipe
from .runs import RECORD, SCORES, STATE, Runs, environment, margin_of, read, read_results, write_record
from .tasks.task import Task
from .training import Training, Watch

# Includes names of lab/runs.py that readers of comparisons look for here.
__all__ = ["RECORD", "STATE", "Comparison", "margin_of", "pictures", "read", "read_results"]

PICTURES, SELECTION, TEACHERS = "pictures.npz", "selection.npz", "teachers"
MAX_IN_MEMORY = 12  # models; where more methods take turns, each is saved and dropped after its turn


@dataclass(frozen=True)
class Comparison(Runs):
    """Runs of ``recipe`` with every method and seed, under ``folder``.

    ``margin`` is the largest loss of the metric that still counts as lossless; None leaves it open.
    """

    recipe: Recipe
    methods: Sequence[MethodSpec]
    seeds: Sequence[int]
    folder: Path
    margin: float | None = None

    def run(self, task: Task, watch: Watch = lambda tick: None) -> list[RunRecord]:
        """Train the missing runs. The methods of a seed take turns, an epoch each, so that all see the same machine."""
        self._claim()
        for seed in self.seeds:
            missing = [method for method in self.methods if not self._is_done(method, seed)]
            together = [method for method in missing if not method.shortened]
            for method in together:
                self._select(task, method, seed, watch)
            self._train(task, together, seed, watch)
            for method in missing:
                if method.shortened:  # its length is known only now: it runs alone
                    self._train(task, [method], seed, watch)
        records = self.records()
        self._keep_pictures(task, records)
        return records

    def scores(self, method: str, seed: int) -> NDArray[np.float32]:
        """The score table at the end of a finished run."""
        scores: NDArray[np.float32] = np.load(self._place(MethodSpec.parse(method), seed) / SCORES)
        return scores

    def _train(self, task: Task, methods: Sequence[MethodSpec], seed: int, watch: Watch) -> None:
        """Train these methods in turn, an epoch each, from their start or from where they were interrupted."""
        held: dict[str, Training] = {}
        ahead: dict[str, range] = {}
        by_label = {method.label: method for method in methods}
        for label, method in by_label.items():
            run = self._begin(task, method, seed)
            if not ahead:
                run.warm_up()
            ahead[label] = range(run.epoch, run.recipe.epochs)
            if len(by_label) <= MAX_IN_MEMORY:
                held[label] = run
        for epoch in range(max((epochs.stop for epochs in ahead.values()), default=0)):
            turns = [label for label, epochs in ahead.items() if epoch in epochs]
            # The order rotates, so that no method always finds the caches as the same other method left them.
            first = epoch % max(len(turns), 1)
            for label in turns[first:] + turns[:first]:
                run = held.get(label) or self._begin(task, by_label[label], seed)
                run.train_epoch(watch)
                run.beside.update(turns)
                self._keep(run)

    def _keep_pictures(self, task: Task, records: Sequence[RunRecord]) -> None:
        """Keep pictures of the samples that the records name, so that a report can show them without the data."""
        named = {index for record in records for index, _ in (*record.hardest, *record.most_pruned)}
        indices = sorted(named)
        if indices and (shown := task.pictures(indices)) is not None:
            images, captions = shown
            np.savez_compressed(self.folder / PICTURES, indices=indices, images=images, captions=captions)

    def epochs_ahead(self) -> int:
        """How many epochs have yet to be trained, in all runs and their teachers, as far as is known."""
        runs = self.missing()
        teachers = {place for run in runs for place in self._teachers.missing(*run)}
        trained = sum(method.epochs(self.recipe.epochs) for method, _ in runs)
        return trained + len(teachers) * self._teachers.epochs

    @property
    def _teachers(self) -> Teachers:
        return Teachers(self.recipe, self.folder / TEACHERS)

    def _select(self, task: Task, method: MethodSpec, seed: int, watch: Watch) -> None:
        """Let a static method select its samples, once."""
        path = self._place(method, seed) / SELECTION
        if method.static is not None and not path.exists():
            chosen = self._teachers.select(task, method, seed, watch)
            path.parent.mkdir(parents=True, exist_ok=True)
            chosen.save(path)

    def _begin(self, task: Task, method: MethodSpec, seed: int) -> Training:
        """The run at its start, or where it was interrupted or saved after its turn."""
        place = self._place(method, seed)
        recipe = self._shorten_recipe(seed) if method.shortened else method.apply_to(self.recipe)
        chosen = ChosenSubset.load(place / SELECTION) if method.static is not None else None
        run = Training(task, recipe, method, seed, chosen)
        if (place / STATE).exists():
            run.load_state_dict(checkpoint.load(place / STATE))
        return run

    def _keep(self, run: Training) -> None:
        """Save the run after an epoch; after the last one, a record replaces the state."""
        place = self._place(run.method, run.seed)
        place.mkdir(parents=True, exist_ok=True)
        if not run.finished:
            checkpoint.save(run.state_dict(), place / STATE)
            return
        write_record(run.record(environment()), place)
        (place / STATE).unlink(missing_ok=True)

    def _shorten_recipe(self, seed: int) -> Recipe:
        """The recipe shortened until full data costs as much as the first pruning method of this seed did."""
        return replace(self.recipe, epochs=max(1, round(self.recipe.epochs * (1 - self._saving_to_match(seed)))))

    def _claim(self) -> None:
        defaults = {field.name: field.default for field in fields(self.recipe) if field.default is not MISSING}
        self._claim_folder(self.recipe.as_data(), defaults)


def pictures(folders: Sequence[Path]) -> dict[int, tuple[NDArray[np.uint8], str]]:
    """The samples kept by the runs under these folders: by index, an image and its caption."""
    samples: dict[int, tuple[NDArray[np.uint8], str]] = {}
    for path in (path for folder in folders for path in sorted(folder.rglob(PICTURES))):
        with np.load(path) as kept:
            samples |= dict(
                zip(kept["indices"].tolist(), zip(kept["images"], kept["captions"].tolist(), strict=True), strict=True)
            )
    return samples
