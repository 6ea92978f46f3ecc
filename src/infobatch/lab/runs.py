"""Runs of methods × seeds in a folder: where each run is, which are finished, and which recipe owns the folder."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import __version__
from ..files import write_text
from ..records import RunRecord
from ..report.results import Results
from .method import MethodSpec

RECORD, STATE, RECIPE, MARGIN, SCORES = "record.json", "state.pt", "recipe.json", "margin.json", "scores.npy"
EPOCHS = "epochs.jsonl"  # written by a run of the user's own function: a line after each epoch
DEFAULT_MARGIN = 0.5  # points of the metric


class Runs:
    """The files of a comparison, of a recipe or of a user's function."""

    methods: Sequence[MethodSpec]
    seeds: Sequence[int]
    folder: Path
    margin: float | None

    def records(self) -> list[RunRecord]:
        """The records of the finished runs, seed by seed, in the order of the methods."""
        paths = [self._place(method, seed) / RECORD for seed in self.seeds for method in self.methods]
        return [RunRecord.from_json(path.read_text(encoding="utf-8")) for path in paths if path.exists()]

    def results(self) -> Results:
        """Statistics over the finished runs."""
        return Results.of(self.records(), *margin_of([self.folder], self.margin))

    def missing(self) -> list[tuple[MethodSpec, int]]:
        """The runs that are not finished, seed by seed."""
        return [(method, seed) for seed in self.seeds for method in self.methods if not self._is_done(method, seed)]

    def _claim_folder(self, recipe: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        """Refuse a folder with runs of another recipe; write the recipe and the margin before the first run.

        A key that did not exist yet when the folder was made counts with its present default.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        _, fixed = margin_of([self.folder], self.margin)
        if self.margin is not None and not fixed and not has_begun(self.folder):
            write_margin(self.folder, self.margin)
        path = self.folder / RECIPE
        if not path.exists():
            write_text(path, json.dumps(recipe, indent=1) + "\n")
            return
        old = {**defaults, **json.loads(path.read_text(encoding="utf-8"))}
        if old != recipe:
            keys = [key for key in {**recipe, **old} if old.get(key) != recipe.get(key)]
            different = [f"{key}: {old.get(key)!r} there, {recipe.get(key)!r} here" for key in keys]
            raise ValueError(
                f"{self.folder} holds runs of another recipe ({'; '.join(different)}): name another folder with --out, "
                "or give the settings of those runs to go on with them"
            )

    def _saving_to_match(self, seed: int) -> float:
        """The saving of the first pruning method of this seed, which full data on a shortened schedule must match."""
        for method in self.methods:
            if method.name != "full" and method.cost is None and (path := self._place(method, seed) / RECORD).exists():
                return RunRecord.from_json(path.read_text(encoding="utf-8")).saving
        raise ValueError(
            "full-shortened needs a pruning method beside it, whose cost it matches: --methods infobatch,full-shortened"
        )

    def _is_done(self, method: MethodSpec, seed: int) -> bool:
        return (self._place(method, seed) / RECORD).exists()

    def _place(self, method: MethodSpec, seed: int) -> Path:
        return self.folder / method.label.replace(":", "-").replace("/", "-") / f"seed-{seed}"


def write_record(record: RunRecord, place: Path) -> None:
    """Write a finished run: its score table, then the record, which marks the run as finished."""
    np.save(place / SCORES, np.asarray(record.scores, np.float32))
    write_text(place / RECORD, record.to_json() + "\n")


def write_margin(folder: Path, margin: float) -> None:
    """Write the margin of a comparison to its folder."""
    write_text(folder / MARGIN, json.dumps({"margin": margin}) + "\n")


def margin_of(folders: Sequence[Path], margin: float | None = None) -> tuple[float, bool]:
    """The margin of the runs in these folders, and whether it was fixed before the first run.

    A fixed margin cannot be changed: any other ``margin`` raises an error.
    """
    paths = (path for folder in folders for path in folder.rglob(MARGIN) if has_begun(path.parent))
    files = {path: float(json.loads(path.read_text("utf-8"))["margin"]) for path in paths}
    if margin is None:
        margin = next(iter(files.values()), DEFAULT_MARGIN)
    for path, fixed in files.items():
        if fixed != margin:
            raise ValueError(
                f"margin must stay the {fixed:g} that the runs in {path.parent} began with, as a margin chosen after "
                f"the runs proves nothing, got {margin:g}: leave --margin out, or compare again in another folder"
            )
    return margin, bool(files)


def has_begun(folder: Path) -> bool:
    """Whether an epoch of any run in the folder is done."""
    return any(any(folder.rglob(file)) for file in (STATE, EPOCHS, RECORD))


def environment() -> dict[str, Any]:
    """The command, versions and machine of a run."""
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
        paths = sorted(folder.rglob(RECORD)) if folder.is_dir() else []
        if not paths:
            raise FileNotFoundError(f"{folder} holds no finished run (no {RECORD} in it)")
        for path in paths:
            yield RunRecord.from_json(path.read_text(encoding="utf-8"))


def read_results(folders: Sequence[Path], margin: float | None = None) -> Results:
    """Statistics over the runs under these folders."""
    return Results.of(list(read(folders)), *margin_of(folders, margin))
