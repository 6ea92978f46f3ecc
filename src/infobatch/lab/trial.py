"""The argument of a user's training function: a seed, a folder, and the data as a method prunes it."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from .. import methods
from ..core.checks import check_whole, nearest
from ..core.plan import EpochPlan
from ..dataset import InfoBatch
from ..integrations import batching
from .method import MethodSpec
from .scores import count_scores

# Arguments of InfoBatch that only some methods take.
_OF_METHODS = {"ratio", "saving", "rescale", "strata"}
_SET_BY_PRUNE = {"self", "dataset", "num_epochs", "method", "seed", "options"}
_OF_ALL = set(inspect.signature(InfoBatch.__init__).parameters) - _OF_METHODS - _SET_BY_PRUNE


class Trial:
    """One run of a comparison, a method and a seed: the argument of ``train(trial)``.

    ``seed`` is the run's seed: torch, numpy and random were seeded with it before the call. ``method`` is the method's
    label, for a log. ``folder`` belongs to this run alone: a run that was killed starts again with its saved files.

    >>> import tempfile
    >>> trial = Trial(MethodSpec.parse("infobatch:ratio=0.3"), seed=1, folder=Path(tempfile.mkdtemp()))
    >>> trial.prune(range(100), 10, ratio=0.5)  # the comparison's ratio=0.3 wins
    InfoBatch(range of 100, method='infobatch', epoch 0 of 10, kept 100)
    >>> trial.train_data.method.ratio
    0.3
    """

    def __init__(self, method: MethodSpec, seed: int, folder: Path, notes: Notes | None = None) -> None:
        self.seed = seed
        self.method = method.label
        self.folder = folder
        self.train_data: InfoBatch | None = None  # the data that prune() has returned
        self.full_epochs = 0  # the num_epochs given to prune()
        self._spec, self._notes = method, notes

    def prune(self, dataset: Any, num_epochs: int, **defaults: Any) -> InfoBatch:
        """The training data as this run's method prunes it: call this once, and train on the result.

        ``defaults`` are arguments of ``InfoBatch``. Options of the method in the comparison win over them; arguments
        that the method does not have are left out: ``full`` has no ``ratio``. Train for ``train_data.num_epochs``
        epochs, which is less than ``num_epochs`` in a run on a shortened schedule (``full:cost=0.67``).
        """
        if self.train_data is not None:
            raise RuntimeError(
                "trial.prune() must be called once per run, and was called twice: call it for the training data only, "
                "and use validation and test data as they are"
            )
        check_whole("num_epochs", num_epochs, 1, "the number of epochs on full data")
        self.full_epochs = int(num_epochs)
        arguments = {**_select_defaults(self._spec, defaults), **self._spec.options}
        epochs = self._spec.epochs(self.full_epochs)
        self.train_data = InfoBatch(dataset, epochs, method=self._spec.name, seed=self.seed, **arguments)
        if self._notes is not None:
            self._notes.follow(self.train_data)
        return self.train_data

    @property
    def steps_stay(self) -> bool:
        """Whether the method has ``steps=stay``: as many steps as full data, in smaller batches."""
        return self._spec.steps_stay

    def loader(
        self, train_data: InfoBatch, batch_size: int, *, drop_last: bool = False, **options: Any
    ) -> DataLoader[Any]:
        """A torch ``DataLoader`` over ``train_data`` with the steps of the method; ``options`` go to ``DataLoader``."""
        return DataLoader(train_data, **batching(train_data, batch_size, drop_last, self.steps_stay), **options)


def _select_defaults(method: MethodSpec, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that this method takes; an argument that no method takes is an error."""
    own = set(methods.options_of(method.name))
    all_names = _OF_ALL | _OF_METHODS | {option for name in methods.list() for option in methods.options_of(name)}
    for name in defaults:
        if name in ("method", "seed"):
            raise TypeError(
                f"prune() must not be given {name}: the comparison says which method and which seed each run has"
            )
        if name not in all_names:
            raise TypeError(
                f"prune() got {name!r}, which is no argument of InfoBatch{nearest(name, sorted(all_names))}"
            )
    arguments = {name: value for name, value in defaults.items() if name in _OF_ALL or name in own}
    if not method.anneals:
        arguments.pop("delta", None)  # only for methods whose last epochs are on full data
    if {"ratio", "saving"} & set(method.options):  # two ways to set the same thing
        arguments = {name: value for name, value in arguments.items() if name not in ("ratio", "saving")}
    return arguments


class Notes:
    """Notes on a run while the user's function trains: a line in a file at the end of each epoch.

    An epoch's seconds run from its first batch to the first batch of the next epoch, or to the end of the call: the
    function's work in between, such as a test, is included. If an epoch has several lines, the last one counts. Lines
    of an interrupted attempt count for the epochs that this attempt does not train again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and not text.endswith("\n"):
            with path.open("a", encoding="utf-8") as file:
                file.write("\n")  # after a line that was cut short
        rows = [row for row in map(read_row, text.splitlines()) if row is not None]
        self.by_epoch: dict[int, dict[str, Any]] = {row["epoch"]: row for row in rows}
        self.left_out: NDArray[np.int32] | None = None  # how often each sample was left out; None if not known
        self.keeps_steps = False  # whether the last epoch had as many steps as full data
        self._train_data: InfoBatch | None = None
        self._counted: set[int] = set()  # epochs counted in left_out
        self._epoch: int | None = None  # the epoch whose clock runs
        self._since = time.perf_counter()
        self._batches = 0  # batches of the epoch trained before its clock started

    def follow(self, train_data: InfoBatch) -> None:
        """Watch the epochs of ``train_data``."""
        self._train_data = train_data
        self.left_out = np.zeros(len(train_data), np.int32)
        train_data.watch(self)

    def begin_epoch(self, epoch: int) -> None:
        """Start the epoch's clock."""
        if self._epoch is None and epoch:
            self.left_out = None  # a resumed run: the samples left out before are not known
        self._epoch, self._since = epoch, time.perf_counter()
        self._batches = 0 if self._train_data is None else self._train_data.batches_done

    def end_epoch(self, plan: EpochPlan, scores: NDArray[np.float32]) -> None:
        """Write the epoch's line."""
        assert self._train_data is not None
        if plan.epoch in self.by_epoch and self._train_data.batches_done == self._batches:
            return  # all of it was trained before the run was interrupted
        seconds = time.perf_counter() - self._since
        if self.left_out is not None and plan.epoch not in self._counted:
            self._counted.add(plan.epoch)
            self.left_out += 1
            self.left_out[plan.indices] -= 1
        self.keeps_steps = self._train_data.keeps_steps
        known = ~np.isnan(scores)
        weight = np.where(known, plan.by_sample.of(np.arange(len(scores))), 0.0)
        row = {
            "epoch": plan.epoch,
            "epochs": self._train_data.num_epochs,
            "kept": len(plan),
            "total": plan.total,
            "loss": float(weight @ np.where(known, scores, 0.0) / max(weight.sum(), 1e-30)),
            "seconds": max(seconds, 1e-9),
            "noise": plan.by_sample.noise(scores),  # the same gradient measure for all methods
            "saving": self._train_data.stats.expected_saving,
            "histogram": count_scores(scores),
        }
        self.by_epoch[plan.epoch] = row
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def close(self) -> None:
        """Write the line of the last epoch."""
        if self._train_data is not None:
            trained = {epoch.epoch for epoch in self._train_data.stats.epochs}
            if self._train_data.epoch in trained and self._epoch is not None:
                self.end_epoch(self._train_data.plan, self._train_data.scores)

    def column(self, name: str, epochs: int) -> tuple[Any, ...]:
        """One value per epoch."""
        return tuple(self.by_epoch[epoch][name] for epoch in range(epochs))


def read_row(line: str | bytes) -> dict[str, Any] | None:
    """Read a line of the file; None for a line that was cut short when the process was killed."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "histogram" in row else None
