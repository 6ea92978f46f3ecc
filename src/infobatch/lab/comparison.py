"""Many runs of one recipe: methods × seeds, interleaved, each in a folder of its own; what is done is not repeated."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import __version__, checkpoint
from ..files import write_text
from ..records import RunRecord
from ..report.results import Results
from .coreset import Chosen, Teachers
from .method import MethodSpec
from .recipe import Recipe
from .tasks.task import Task
from .training import Training, Watch

RECORD, STATE, RECIPE, MARGIN, PICTURES = "record.json", "state.pt", "recipe.json", "margin.json", "pictures.npz"
SCORES, SELECTION, TEACHERS = "scores.npy", "selection.npz", "teachers"
DEFAULT_MARGIN = 0.5  # points of the metric
AT_ONCE = 12  # so many models are held in memory; where more take turns, each is put away after its own


@dataclass(frozen=True)
class Comparison:
    """Runs of ``recipe`` with every method and seed, under ``folder``.

    ``margin`` is how much worse still counts as lossless; None leaves it open.
    """

    recipe: Recipe
    methods: Sequence[MethodSpec]
    seeds: Sequence[int]
    folder: Path
    margin: float | None = None

    def run(self, task: Task, watch: Watch = lambda tick: None) -> list[RunRecord]:
        """Train what is missing. The methods of a seed take turns, an epoch each, so that all meet the same machine."""
        self._claim_folder()
        for seed in self.seeds:
            missing = [method for method in self.methods if not self._done(method, seed)]
            together = [method for method in missing if not method.shortened]
            for method in together:
                self._select(task, method, seed, watch)
            self._train(task, together, seed, watch)
            for method in missing:
                if method.shortened:  # its length is known only now, so that it takes turns with nobody
                    self._train(task, [method], seed, watch)
        found = self.records()
        self._keep_pictures(task, found)
        return found

    def records(self) -> list[RunRecord]:
        """Of the runs that are finished, in the order they were asked for."""
        paths = [self._place(method, seed) / RECORD for seed in self.seeds for method in self.methods]
        return [RunRecord.from_json(path.read_text(encoding="utf-8")) for path in paths if path.exists()]

    def results(self) -> Results:
        """What the finished runs say."""
        return Results.of(self.records(), *margin_of([self.folder], self.margin))

    def scores(self, method: str, seed: int) -> NDArray[np.float32]:
        """The score table with which a finished run ended."""
        found: NDArray[np.float32] = np.load(self._place(MethodSpec.parse(method), seed) / SCORES)
        return found

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
            if len(by_label) <= AT_ONCE:
                held[label] = run
        for epoch in range(max((epochs.stop for epochs in ahead.values()), default=0)):
            turns = [label for label, epochs in ahead.items() if epoch in epochs]
            # Who goes first changes, so that no one always follows the same other through the caches.
            first = epoch % max(len(turns), 1)
            for label in turns[first:] + turns[:first]:
                run = held.get(label) or self._begin(task, by_label[label], seed)
                run.train_epoch(watch)
                run.beside.update(turns)
                self._keep(run)

    def _keep_pictures(self, task: Task, records: Sequence[RunRecord]) -> None:
        """Of the samples that the records name, so that a report can show them without the data."""
        named = {index for record in records for index, _ in (*record.hardest, *record.most_pruned)}
        indices = sorted(named)
        if indices and (shown := task.pictures(indices)) is not None:
            images, captions = shown
            np.savez_compressed(self.folder / PICTURES, indices=indices, images=images, captions=captions)

    def epochs_ahead(self) -> int:
        """How many epochs have yet to be trained, of all runs and their teachers, as far as can be told."""
        runs = [(method, seed) for seed in self.seeds for method in self.methods if not self._done(method, seed)]
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
        """The run from its start, or from where it was interrupted or put away."""
        place = self._place(method, seed)
        recipe = self._shortened(seed) if method.shortened else method.applied_to(self.recipe)
        chosen = Chosen.load(place / SELECTION) if method.static is not None else None
        run = Training(task, recipe, method, seed, chosen)
        if (place / STATE).exists():
            run.load_state_dict(checkpoint.load(place / STATE))
        return run

    def _keep(self, run: Training) -> None:
        """Save after each epoch; the record, at the end, takes the state's place."""
        place = self._place(run.method, run.seed)
        place.mkdir(parents=True, exist_ok=True)
        if not run.finished:
            checkpoint.save(run.state_dict(), place / STATE)
            return
        record = run.record(environment())
        np.save(place / SCORES, np.asarray(record.scores, np.float32))
        write_text(place / RECORD, record.to_json() + "\n")
        (place / STATE).unlink(missing_ok=True)

    def _shortened(self, seed: int) -> Recipe:
        """The recipe with so many epochs that full data costs what the first pruning method of this seed did."""
        for method in self.methods:
            if method.name != "full" and method.cost is None and (path := self._place(method, seed) / RECORD).exists():
                saving = RunRecord.from_json(path.read_text(encoding="utf-8")).saving
                return replace(self.recipe, epochs=max(1, round(self.recipe.epochs * (1 - saving))))
        raise ValueError(
            "full-shortened needs a pruning method beside it, whose cost it is given: --methods infobatch,…"
        )

    def _claim_folder(self) -> None:
        """Runs of different recipes must not share a folder; the margin is written down before the first of them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _, fixed = margin_of([self.folder], self.margin)
        if self.margin is not None and not fixed and not _has_begun(self.folder):
            write_text(self.folder / MARGIN, json.dumps({"margin": self.margin}) + "\n")
        path, new = self.folder / RECIPE, self.recipe.as_data()
        if not path.exists():
            write_text(path, json.dumps(new, indent=1) + "\n")
            return
        # A key that did not exist yet when the folder was made had the value that is its default now.
        defaults = {field.name: field.default for field in fields(self.recipe) if field.default is not MISSING}
        old = {**defaults, **json.loads(path.read_text(encoding="utf-8"))}
        if old != new:
            keys = [key for key in {**new, **old} if old.get(key) != new.get(key)]
            different = [f"{key}: {old.get(key)!r} there, {new.get(key)!r} here" for key in keys]
            raise ValueError(
                f"{self.folder} holds runs of another recipe ({'; '.join(different)}): name another folder with --out, "
                "or give the settings of those runs to go on with them"
            )

    def _done(self, method: MethodSpec, seed: int) -> bool:
        return (self._place(method, seed) / RECORD).exists()

    def _place(self, method: MethodSpec, seed: int) -> Path:
        return self.folder / method.label.replace(":", "-").replace("/", "-") / f"seed-{seed}"


def margin_of(folders: Sequence[Path], wanted: float | None = None) -> tuple[float, bool]:
    """The margin of the runs in these folders, and whether it was fixed before the first of them.

    One that was fixed is the only one that can be had.
    """
    paths = (path for folder in folders for path in folder.rglob(MARGIN) if _has_begun(path.parent))
    files = {path: float(json.loads(path.read_text("utf-8"))["margin"]) for path in paths}
    margin = wanted if wanted is not None else next(iter(files.values()), DEFAULT_MARGIN)
    for path, fixed in files.items():
        if fixed != margin:
            raise ValueError(
                f"margin: {path.parent} was begun with {fixed:g}, and a margin that is chosen after the runs proves "
                f"nothing, got {margin:g}: leave --margin out, or compare anew in another folder"
            )
    return margin, bool(files)


def _has_begun(folder: Path) -> bool:
    """Whether an epoch of any run in the folder is done."""
    return any(any(folder.rglob(file)) for file in (STATE, RECORD))


def environment() -> dict[str, Any]:
    """Where a run was made."""
    return {
        "command": " ".join(["infobatch", *sys.argv[1:]]),
        "infobatch": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
    }


def read(folders: Sequence[Path]) -> Iterator[RunRecord]:
    """All records under these folders."""
    for folder in folders:
        found = sorted(folder.rglob(RECORD)) if folder.is_dir() else []
        if not found:
            raise FileNotFoundError(f"{folder} holds no finished run (no {RECORD} in it)")
        for path in found:
            yield RunRecord.from_json(path.read_text(encoding="utf-8"))


def read_results(folders: Sequence[Path], margin: float | None = None) -> Results:
    """What the runs under these folders say."""
    return Results.of(list(read(folders)), *margin_of(folders, margin))


def pictures(folders: Sequence[Path]) -> dict[int, tuple[NDArray[np.uint8], str]]:
    """Samples by their index, as images with a caption, where the runs under these folders have kept them."""
    found: dict[int, tuple[NDArray[np.uint8], str]] = {}
    for path in (path for folder in folders for path in sorted(folder.rglob(PICTURES))):
        with np.load(path) as kept:
            found |= dict(
                zip(kept["indices"].tolist(), zip(kept["images"], kept["captions"].tolist(), strict=True), strict=True)
            )
    return found
