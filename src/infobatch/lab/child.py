"""The process of one run of the user's own function: loads it, calls it, checks the training, writes the record."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ..core.checks import is_real, nearest
from ..core.stats import Stats
from ..files import write_text
from ..records import Measure, RunRecord, options
from .method import MethodSpec
from .runs import EPOCHS, environment, write_record
from .scores import take_highest
from .trial import Notes, Trial

OWN, FAILURE = "own", "failure.txt"  # in a run's folder: the function's own files, and the reason a run failed
FAILED, NOT_LOADED = 1, 3  # exit codes: this run failed; every run would fail
NOT_AGAIN = (
    "infobatch.compare() was called while this file was loaded for one of its runs, so that runs would start runs "
    'without end: put it below if __name__ == "__main__":'
)

running = False  # whether this process is one run of a comparison


@dataclass(frozen=True)
class Job:
    """One run, as the comparing process passes it on: plain values, written as JSON."""

    file: str | None  # where the function is: in this file, or else in this module
    module: str | None
    function: str
    method: str
    seed: int
    place: str
    cost: float | None  # share of full data's epochs, for a shortened schedule
    metric: str | None
    higher_is_better: bool
    lower: Sequence[str]  # names of the function's other numbers for which lower is better
    recipe: Mapping[str, Any]
    command: str
    path: Sequence[str]  # folders to import modules from

    def to_json(self) -> str:
        """The inverse of ``Job(**json.loads(text))``."""
        return json.dumps(asdict(self))


class RefusedError(Exception):
    """A run that ended but cannot be recorded, with the reason."""


def main(fields: dict[str, Any]) -> None:
    """Do one job, and end the process with an exit code that says whether it worked."""
    global running
    running = True
    _end_with_parent()
    job = Job(**fields)
    place = Path(job.place)
    try:
        function, source = load(job)
    except Exception as error:
        _note_failure(place, error)
        sys.exit(NOT_LOADED)
    try:
        write_record(run(function, job, source), place)
    except Exception as error:
        _note_failure(place, error)
        sys.exit(FAILED)


def load(job: Job) -> tuple[Callable[[Trial], Any], str]:
    """The user's function, and a digest of its file."""
    module = _import_module(job)
    where = job.file or job.module
    file = getattr(module, "__file__", None)
    function = getattr(module, job.function, None)
    if function is None:
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise RefusedError(f"{where} has no function {job.function!r}{nearest(job.function, names)}")
    if not callable(function):
        raise RefusedError(f"{job.function} in {where} must be a function, got a {type(function).__name__}")
    return function, "" if file is None else digest(Path(file))


def digest(file: Path) -> str:
    """A short hash of a file's content, to tell whether the file has changed."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _import_module(job: Job) -> ModuleType:
    if job.file is None:
        assert job.module is not None
        return importlib.import_module(job.module)
    path = Path(job.file)
    name = path.stem
    sys.path.insert(0, str(path.parent))  # as for a script: modules beside it can be imported
    if name in sys.modules:
        raise RefusedError(f"{path.name} has the name of another module, {name}, which is loaded already: rename it")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RefusedError(f"{path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that its classes can be pickled for the workers of a loader
    spec.loader.exec_module(module)
    return module


def run(function: Callable[[Trial], Any], job: Job, source: str) -> RunRecord:
    """Call the function and make a record of its training, or raise an error that says why there is none."""
    place = Path(job.place)
    method = MethodSpec.parse(job.method)
    if job.cost is not None:
        method = replace(method, cost=job.cost)
    notes = Notes(place / EPOCHS)
    (place / OWN).mkdir(parents=True, exist_ok=True)
    trial = Trial(method, job.seed, place / OWN, notes)
    random.seed(job.seed)
    np.random.seed(job.seed % 2**32)  # noqa: NPY002 (the user's function may draw from it; this process is its own)
    torch.manual_seed(job.seed)
    began = time.perf_counter()
    returned = function(trial)
    notes.close()
    seconds = time.perf_counter() - began
    stats = _check_training(trial, notes)
    metric, value, further = read_metric(returned, job.metric, job.lower)
    epochs = len(stats.epochs)
    times = notes.column("seconds", epochs)
    assert trial.train_data is not None
    scores = trial.train_data.scores
    return RunRecord(
        method=job.method,
        seed=job.seed,
        metric=metric,
        higher_is_better=job.higher_is_better,
        total=stats.size,
        kept=tuple(epoch.seen for epoch in stats.epochs),
        losses=notes.column("loss", epochs),
        times=times,
        values=(*(math.nan for _ in range(epochs - 1)), value),
        saving=1 - stats.seen / stats.full,
        overhead=stats.seconds,
        preparation=max(seconds - sum(times), 0.0),
        beside=(),  # filled in when the other methods of this seed are done
        histograms=tuple(map(tuple, notes.column("histogram", epochs))),
        noise=notes.column("noise", epochs),
        hardest=take_highest(np.nan_to_num(scores, nan=-np.inf)),
        most_pruned=() if notes.left_out is None else take_highest(notes.left_out),
        further=further,
        recipe={**job.recipe, "epochs": trial.full_epochs},
        environment={**environment(), "command": job.command, "turns": "a whole run each", "source": source},
        scores=tuple(scores.tolist()),
    )


def _check_training(trial: Trial, notes: Notes) -> Stats:
    """The run's statistics; raises an error if it was not trained as the method says, in all of its epochs."""
    data = trial.train_data
    if data is None:
        raise RefusedError(
            "the function has not called trial.prune(), so that all methods would train alike: add "
            "train_data = trial.prune(train_data, num_epochs), and train on the data it returns"
        )
    stats = data.stats
    if not stats.seen:
        raise RefusedError(
            "the function has never called update() of the data that trial.prune() returned, so that nothing was "
            "scored or pruned: add loss = train_data.update(loss), with one loss per sample"
        )
    trained, num_epochs = [epoch.epoch for epoch in stats.epochs], data.num_epochs
    if trained != list(range(num_epochs)):
        shorter = ""
        if num_epochs != trial.full_epochs:
            shorter = f" (method {trial.method!r} trains {num_epochs} of full data's {trial.full_epochs})"
        raise RefusedError(
            f"the function trained {len(trained)} epochs, and must train {num_epochs}{shorter}: loop over "
            "range(train_data.num_epochs), or pass that number to your trainer. Runs that stop early cannot be "
            "compared: part of their saving would come from stopping"
        )
    if missing := [epoch for epoch in trained if epoch not in notes.by_epoch]:
        raise RefusedError(
            f"epoch {missing[0]} was not trained in this run: the function has loaded another run's state. Keep "
            "checkpoints in trial.folder, which belongs to this run alone"
        )
    steps = options(trial.method).get("steps")
    if steps is not None and (steps == "stay") != notes.keeps_steps:
        loader = "trial.loader(train_data, batch_size)"
        raise RefusedError(
            f"method {trial.method!r} says steps={steps}, but the function's loader "
            f"{'has' if notes.keeps_steps else 'does not have'} as many steps in every epoch as full data: make it "
            f"by {loader}, or leave steps= out to keep the function's own loader"
        )
    return stats


def read_metric(returned: Any, metric: str | None, lower: Sequence[str]) -> tuple[str, float, tuple[Measure, ...]]:
    """The metric's name, its value and the other measures, read from the value that the function returned.

    >>> read_metric({"accuracy": 91.5, "loss": 0.3, "model": "cnn"}, "accuracy", ["loss"])
    ('accuracy', 91.5, (Measure(name='loss', value=0.3, higher_is_better=False),))
    >>> read_metric(torch.tensor(0.5), None, [])
    ('metric', 0.5, ())
    """
    if returned is None:
        raise RefusedError("the function has returned nothing: return the metric, a number, or a dict of numbers")
    if not isinstance(returned, Mapping):
        if (value := _to_number(returned)) is None:
            raise RefusedError(
                f"the function must return the metric, a number, or a dict of numbers, got a "
                f"{type(returned).__name__}: {str(returned)[:80]}"
            )
        return metric or "metric", value, ()
    values = {str(name): number for name, value in returned.items() if (number := _to_number(value)) is not None}
    if metric is None and len(values) == 1:
        metric = next(iter(values))
    if metric is None:
        raise RefusedError(
            f"the function has returned {len(values)} numbers ({', '.join(values) or 'none'}): name the one that is "
            'the metric, --metric NAME or compare(..., metric="NAME")'
        )
    if metric not in values:
        raise RefusedError(f"the function has returned no number named {metric!r}{nearest(metric, values)}")
    further = [Measure(name, value, name not in lower) for name, value in values.items() if name != metric]
    return metric, values[metric], tuple(further)


def _to_number(value: Any) -> float | None:
    """A real number of Python's, numpy's or torch's; None for anything else."""
    if isinstance(value, torch.Tensor | np.ndarray) and math.prod(value.shape) == 1:
        value = value.item()
    return float(value) if is_real(value) else None


def _note_failure(place: Path, error: Exception) -> None:
    """Write the whole error to the output, and its reason in one line to a file."""
    if isinstance(error, RefusedError):
        reason = str(error)
        print(reason, file=sys.stderr)  # noqa: T201 (this process's output is kept for the user)
    else:
        reason = traceback.format_exception_only(error)[-1].strip()
        traceback.print_exc()
    write_text(place / FAILURE, reason + "\n")


def _end_with_parent() -> None:
    """End this process when its parent is gone: the parent's end of the pipe is then closed."""
    pipe = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # the user's function gets an empty standard input
    os.close(nothing)

    def wait() -> None:
        os.read(pipe, 1)
        os._exit(FAILED)

    threading.Thread(target=wait, daemon=True, name="end with parent").start()
