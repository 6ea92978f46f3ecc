"""A comparison of methods on the user's own training function: every run in a process of its own.

infobatch.compare(train, methods=["full", "infobatch"], seeds=5)
infobatch compare my_train.py:train --methods full,infobatch --seeds 5
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.checks import check_whole
from ..core.method import BatchMethod
from ..dataset import InfoBatch
from ..files import write_text
from ..integrations import needs
from ..records import RunRecord, Tick
from . import child
from .function import OwnFunction
from .method import MethodSpec
from .process import OUTPUT, Failure, Watch, run_job
from .runs import MARGIN, RECORD, Runs, margin_of, write_margin
from .trial import Trial

with needs("rich", "lab"):
    from rich.console import Console

    from ..report.progress import TimeLeft, show_progress
    from ..report.results import Results
    from ..report.table import tell

SHARE = 0.005  # of the value of the first run on full data: the margin if the user sets none


@dataclass(frozen=True)
class OwnComparison(Runs):
    """Runs of a function of the user's own with every method and seed, under ``folder``.

    ``margin`` None is 0.5 % of the value of the first run on full data. ``metric`` names the number to judge by, if the
    function returns several; ``lower`` names the other numbers for which lower is better.
    """

    function: OwnFunction
    methods: Sequence[MethodSpec]
    seeds: Sequence[int]
    folder: Path
    margin: float | None = None
    metric: str | None = None
    higher_is_better: bool = True
    lower: Sequence[str] = ()

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings that all runs of a folder share."""
        file = self.function.file
        return {
            "task": "own function",
            "function": str(self.function),
            "file": None if file is None else Path(os.path.relpath(file, self.folder)).as_posix(),
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "lower": list(self.lower),
        }

    def run(
        self, watch: Watch = lambda tick: None, failed: Callable[[Failure], None] = lambda failure: None
    ) -> list[Failure]:
        """Train the missing runs, and return those that failed.

        The methods of a seed run one after the other; which one is first changes with the seed. Other runs go on after
        a failure, unless all runs of a seed fail.
        """
        check_methods(self.methods)
        if self.margin is not None and not 0 <= self.margin < math.inf:
            raise ValueError(f"margin must be a number from 0 on, in the unit of the metric, got {self.margin}")
        self._claim_folder(self.recipe, {})
        failures: list[Failure] = []
        for seed in self.seeds:
            finished, new_failures = self._train_seed(seed, watch, failed)
            failures += new_failures
            if new_failures and not finished and not self._any_finished(seed):
                break  # the runs of the next seed would fail as well
        return failures

    def changed_since(self) -> list[RunRecord]:
        """The finished runs that were made before the function's file was last changed."""
        if self.function.file is None:
            return []
        now = child.digest(self.function.file)
        return [record for record in self.records() if record.environment.get("source", now) != now]

    def _any_finished(self, seed: int) -> bool:
        return any(self._is_done(method, seed) for method in self.methods)

    def _train_seed(
        self, seed: int, watch: Watch, failed: Callable[[Failure], None]
    ) -> tuple[list[MethodSpec], list[Failure]]:
        """Train the methods of one seed in turn: the methods that finished, and the failures."""
        first = seed % len(self.methods)
        turns = [*self.methods[first:], *self.methods[:first]]
        turns = sorted(
            turns, key=lambda method: method.shortened
        )  # these come last: their length follows from the others
        finished: list[MethodSpec] = []
        failures: list[Failure] = []
        for method in turns:
            if self._is_done(method, seed):
                continue
            failure = self._train(method, seed, watch)
            if failure is None:
                finished.append(method)
                self._settle_margin(method, seed)
            else:
                failures.append(failure)
                failed(failure)
        self._note_turns(finished, seed)
        return finished, failures

    def _train(self, method: MethodSpec, seed: int, watch: Watch) -> Failure | None:
        cost, place = None, self._place(method, seed)
        if method.shortened:
            try:
                cost = 1 - self._saving_to_match(seed)
            except ValueError:
                reason = "the pruning method whose cost this schedule must match has not finished with this seed"
                return Failure(method.label, seed, reason, place / OUTPUT, "")
        return run_job(self._make_job(method, seed, cost), watch)

    def _make_job(self, method: MethodSpec, seed: int, cost: float | None) -> child.Job:
        file = self.function.file
        return child.Job(
            file=None if file is None else str(file),
            module=self.function.module,
            function=self.function.name,
            method=method.label,
            seed=seed,
            place=str(self._place(method, seed).resolve()),
            cost=cost,
            metric=self.metric,
            higher_is_better=self.higher_is_better,
            lower=list(self.lower),
            recipe=self.recipe,
            command=" ".join(["infobatch", *sys.argv[1:]]),
            path=[os.path.abspath(path) for path in sys.path],
        )

    def _settle_margin(self, method: MethodSpec, seed: int) -> None:
        """Write the margin after the first run on full data, if the user has set none."""
        if self.margin is None and method.label == "full" and not (self.folder / MARGIN).exists():
            record = RunRecord.from_json((self._place(method, seed) / RECORD).read_text(encoding="utf-8"))
            if math.isfinite(record.value):
                write_margin(self.folder, float(f"{SHARE * abs(record.value):.2g}"))

    def _note_turns(self, finished: Sequence[MethodSpec], seed: int) -> None:
        """Write into the records which methods ran directly one after the other."""
        labels = tuple(method.label for method in finished)
        for method in finished:
            path = self._place(method, seed) / RECORD
            record = RunRecord.from_json(path.read_text(encoding="utf-8"))
            write_text(path, replace(record, beside=labels).to_json() + "\n")


def check_methods(methods: Sequence[MethodSpec]) -> None:
    """Refuse, before any training, methods that cannot run with a function of the user's own."""
    labels = [method.label for method in methods]
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"methods must name at least one method, and each once, got {labels}")
    for method in methods:
        _check_method(method)
    prunes = any(method.name != "full" and method.cost is None for method in methods)
    if any(method.shortened for method in methods) and not prunes:
        raise ValueError(
            'full-shortened needs a pruning method beside it, whose cost it matches: methods=["infobatch", …]'
        )


def _check_method(method: MethodSpec) -> None:
    if method.static is not None:
        raise ValueError(
            f"method {method.label!r}: static methods select by teachers, which the lab can train for recipes only. "
            "Select once with infobatch.static, and let the function train on that subset"
        )
    if method.lr is not None:
        raise ValueError(
            f"method {method.label!r}: the learning rate is the function's own: leave lr= out, or let the function "
            "set it from trial.method"
        )
    # A large data set and many epochs: an error here means options that no data could satisfy.
    probe = InfoBatch(range(10_000), 1_000, method=method.name, **method.options)
    if probe.method.refreshes:
        raise ValueError(
            f"method {method.label!r} needs new scores of the samples left out, which your function would have to "
            "compute after every epoch: compare this method by a recipe"
        )
    if isinstance(probe.method, BatchMethod) and method.steps_stay:
        raise ValueError(f"method {method.label!r} chooses within batches: leave steps= out")


def compare(
    train: Callable[[Trial], Any] | str,
    *,
    methods: Iterable[str] = ("full", "infobatch"),
    seeds: int | Iterable[int] = 5,
    out: str | os.PathLike[str] = "runs",
    margin: float | None = None,
    metric: str | None = None,
    lower_is_better: bool = False,
    lower: Iterable[str] = (),
    show: bool = True,
) -> Results:
    """Train with several methods and the same seeds, by a function of your own, and compare them with full data.

    ``train(trial)`` is called once per method and seed, each time in a new process, and returns the metric: a number,
    or a dict of numbers. Finished runs are not repeated; interrupted runs start again and keep their folder.

    Args:
        train: a function at the top level of a file, or ``"my_train.py:train"``.
        methods: names, with options if needed: ``"infobatch-adaptive:noise=0.2"``.
        seeds: the number of seeds, counted from 0, or a list of seeds.
        out: the folder for the runs; they go into a subfolder named after the function.
        margin: the largest loss that still counts as lossless; None: 0.5 % of the first value on full data.
        metric: the name of the number in the dict to judge by.
        lower_is_better: whether a lower value of the metric is better.
        lower: the names of the dict's other numbers for which lower is better.
        show: show the progress, and the table at the end.
    """
    if child.running:
        raise RuntimeError(child.NOT_AGAIN)
    if isinstance(methods, str):
        raise TypeError(f"methods must be a list of names, got the string {methods!r}: methods=[{methods!r}]")
    if isinstance(seeds, int):
        check_whole("seeds", seeds, 1, "the number of seeds, or a list of seeds")
        seeds = range(seeds)
    function = OwnFunction.parse(train) if isinstance(train, str) else OwnFunction.of(train)
    comparison = OwnComparison(
        function=function,
        methods=[MethodSpec.parse(method) for method in methods],
        seeds=list(seeds),
        folder=Path(out) / function.folder,
        margin=margin,
        metric=metric,
        higher_is_better=not lower_is_better,
        lower=list(lower),
    )
    console = Console(quiet=not show)
    if console.is_jupyter:  # which cannot redraw lines: a line per epoch, and one text in place of a box per line
        console = Console(quiet=not show, force_jupyter=False, force_terminal=False)
    failures = train_all(comparison, console)
    if failures:
        reasons = "; ".join(map(str, failures))
        warnings.warn(f"{len(failures)} runs failed; the same call tries them again: {reasons}", stacklevel=2)
    results = comparison.results()
    tell(results, console)
    return results


def train_all(comparison: OwnComparison, console: Console) -> list[Failure]:
    """Train the missing runs, show the progress, and return the failures; raises an error if no run finished at all."""
    margin_of([comparison.folder], comparison.margin)
    if changed := comparison.changed_since():
        console.print(
            f"{comparison.function} has changed since {len(changed)} of the finished runs were made. They are not "
            "repeated: to run all of them again, name another folder.",
            highlight=False,
            soft_wrap=True,
        )
    runs, left = len(comparison.missing()), TimeLeft(0)
    with show_progress(console, left) as watch:

        def look(tick: Tick) -> None:
            if not left.epochs:
                left.epochs = runs * tick.epochs  # an estimate, possible only now
            watch(tick)

        failures = comparison.run(look, lambda failure: console.print(_describe(failure), markup=False, soft_wrap=True))
    if failures and not comparison.records():
        raise RuntimeError(f"no run was finished. {failures[0]} (output: {failures[0].output})")
    return failures


def _describe(failure: Failure) -> str:
    lines = (f"    {line}" for line in failure.tail.splitlines())
    return "\n".join([f"FAILED: {failure}", *lines, f"    whole output: {failure.output}"])
