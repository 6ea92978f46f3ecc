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
from ..report.records import RunRecord
from .coreset import Chosen, Teachers
from .method import MethodSpec
from .recipe import Recipe
from .training import Task, Training, Watch

RECORD, STATE, RECIPE, PICTURES = "record.json", "state.pt", "recipe.json", "pictures.npz"
SCORES, SELECTION, TEACHERS = "scores.npy", "selection.npz", "teachers"
AT_ONCE = 12  # so many models are trained in turn; further methods wait for them


@dataclass(frozen=True)
class Comparison:
    """Runs of ``recipe`` with every method and seed, under ``folder``."""

    recipe: Recipe
    methods: Sequence[MethodSpec]
    seeds: Sequence[int]
    folder: Path

    def run(self, task: Task, watch: Watch = lambda tick: None) -> list[RunRecord]:
        """Train what is missing. The methods of a seed take turns, an epoch each, so that all meet the same machine."""
        self._claim_folder()
        for seed in self.seeds:
            missing = [m for m in self.methods if not m.shortened and not self._done(m, seed)]
            for first in range(0, len(missing), AT_ONCE):
                group = missing[first : first + AT_ONCE]
                chosen = [self._chosen(task, method, seed, watch) for method in group]
                self._train([self._begin(task, *run, seed) for run in zip(group, chosen, strict=True)], watch)
            for method in self.methods:
                if method.shortened and not self._done(method, seed):
                    self._train([self._begin(task, method, None, seed, self._shortened(seed))], watch)
        found = self.records()
        self._keep_pictures(task, found)
        return found

    def records(self) -> list[RunRecord]:
        """Of the runs that are finished, in the order they were asked for."""
        paths = [self._place(method, seed) / RECORD for seed in self.seeds for method in self.methods]
        return [RunRecord.from_json(path.read_text(encoding="utf-8")) for path in paths if path.exists()]

    def scores(self, method: str, seed: int) -> NDArray[np.float32]:
        """The score table with which a finished run ended."""
        found: NDArray[np.float32] = np.load(self._place(MethodSpec.parse(method), seed) / SCORES)
        return found

    def _train(self, runs: list[Training], watch: Watch) -> None:
        for run in runs[:1]:
            run.warm_up()
        while going := [run for run in runs if not run.finished]:
            epoch = min(run.epoch for run in going)
            # Who goes first changes, so that no one always follows the same other through the caches.
            turn = epoch % len(going)
            for run in going[turn:] + going[:turn]:
                if run.epoch == epoch:
                    run.train_epoch(watch)
                    self._keep(run)

    def _keep_pictures(self, task: Task, records: Sequence[RunRecord]) -> None:
        """Of the samples that the records name, so that a report can show them without the data."""
        named = {index for record in records for index, _ in (*record.hardest, *record.most_pruned)}
        indices = sorted(named)
        if indices and hasattr(task, "pictures"):
            images, captions = task.pictures(indices)
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

    def _chosen(self, task: Task, method: MethodSpec, seed: int, watch: Watch) -> Chosen | None:
        """What a static method selects, once."""
        if method.static is None:
            return None
        path = self._place(method, seed) / SELECTION
        if not path.exists():
            chosen = self._teachers.select(task, method, seed, watch)
            path.parent.mkdir(parents=True, exist_ok=True)
            chosen.save(path)
        return Chosen.load(path)

    def _begin(
        self, task: Task, method: MethodSpec, chosen: Chosen | None, seed: int, recipe: Recipe | None = None
    ) -> Training:
        """The run from its start, or from where it was interrupted."""
        recipe = recipe or method.applied_to(self.recipe)
        run = Training(task, recipe, method, seed, chosen)
        if (path := self._place(method, seed) / STATE).exists():
            run.load_state_dict(checkpoint.load(path))
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
        _write(place / RECORD, record.to_json() + "\n")
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
        """Runs of different recipes must not share a folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path, new = self.folder / RECIPE, self.recipe.as_data()
        if not path.exists():
            _write(path, json.dumps(new, indent=1) + "\n")
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


def pictures(folders: Sequence[Path]) -> dict[int, tuple[NDArray[np.uint8], str]]:
    """Samples by their index, as images with a caption, where the runs under these folders have kept them."""
    found: dict[int, tuple[NDArray[np.uint8], str]] = {}
    for path in (path for folder in folders for path in sorted(folder.rglob(PICTURES))):
        with np.load(path) as kept:
            found |= dict(
                zip(kept["indices"].tolist(), zip(kept["images"], kept["captions"].tolist(), strict=True), strict=True)
            )
    return found


def _write(path: Path, text: str) -> None:
    """All of it or nothing."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
