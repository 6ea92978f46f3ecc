"""Forecasts after one, two and three scored epochs against what then happened, over all committed runs.

    python results/forecasts/measure.py            # the tables of README.md
    python results/forecasts/measure.py --fit      # and the growth rates of infobatch/forecast.py

How often a method leaves samples out of the first epoch that it prunes is in every record: it is what the method's own
code made of the score table at that moment, and so what a forecast begins with. What a table alone says of a method
that has not run is measured on the records that have histograms of their scores.

Errors are of the saving over the whole run, in points of a hundred. A set-up is a data set with a model; each counts
the same, however many runs it has. For a set-up the growth rates are fitted to all the others.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np

from infobatch.forecast import bounds, forecast, grow_share, growth_rate
from infobatch.lab.method import MethodSpec
from infobatch.records import SCORE_EDGES, RunRecord, options

RESULTS = Path(__file__).parents[1]
METHODS = ("infobatch", "infobatch-quantile", "random", "infobatch-adaptive")
# Comparisons whose runs have histograms, and those of the noise budget on the same recipe.
TABLES = {
    "compare-camvid": "compare-budget/camvid",
    "compare-cifar10": "compare-budget/cifar10",
    "compare-diffusion": "compare-budget/diffusion",
    "compare-masked": "compare-budget/masked",
    "compare-mixed": "compare-budget/mixed",
    "compare-steps-adamw": "compare-steps-adamw",
    "compare-steps-sgd": "compare-steps-sgd",
}


class Case(NamedTuple):
    """A run as a forecast saw it at the beginning of epoch ``now``, and what came of it."""

    setup: str
    method: str
    bounds: tuple[float, float]
    now: int
    pruned: range  # from now on
    epochs: int
    share: float  # left out of epoch `now`
    before: float  # saved before it, in epochs
    saving: float  # over the whole run, as it came

    def predicted(self, rate: float) -> float:
        """The saving over the whole run, if the share beyond chance grows at this rate."""
        ahead = sum(grow_share(self.share, *self.bounds, rate, self.now, epoch) for epoch in self.pruned)
        return (self.before + ahead) / self.epochs

    def error(self, rate: float) -> float:
        """In points."""
        return 100 * abs(self.predicted(rate) - self.saving)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fit", action="store_true", help="print the growth rates that fit all set-ups")
    arguments = parser.parse_args()
    records = [RunRecord.from_json(path.read_text("utf-8")) for path in sorted(RESULTS.rglob("record.json"))]
    print("\n".join(own_plan(records)), "\n", "\n".join(one_table()), "\n", "\n".join(held_noise(records)), sep="\n")
    if arguments.fit:
        for (method, scored), cases in sorted(by_method(records).items()):
            print(f"{method} after {scored}: {fitted(cases):.2f}, in use {growth_rate(method, scored):.2f}")


def own_plan(records: Sequence[RunRecord]) -> Iterable[str]:
    """A table: the error of a forecast that begins with what the method itself plans."""
    yield "| method | scored epochs | runs | set-ups | share held | with growth | with rates of other set-ups |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for (method, scored), cases in sorted(by_method(records).items(), key=lambda item: (item[0][1], item[0][0])):
        rate = growth_rate(method, scored)
        held, grows = (over_setups(cases, lambda case, rate=rate: case.error(rate)) for rate in (0.0, rate))
        setups = {case.setup for case in cases}
        figures = f"{held:.1f} | {grows:.1f} | {held_out(cases):.1f}" if rate else f"{held:.1f} | - | -"
        yield f"| `{method}` | {scored} | {len(cases)} | {len(setups)} | {figures} |"
    for scored in (1, 2, 3):
        cases = [case for (_, after), own in by_method(records).items() if after == scored for case in own]
        held, grows = (
            over_setups(cases, lambda case, grows=grows: case.error(grows * growth_rate(case.method, case.now)))
            for grows in (0, 1)
        )
        yield f"| all | {scored} | {len(cases)} | {len({case.setup for case in cases})} | {held:.1f} | {grows:.1f} | |"


def by_method(records: Sequence[RunRecord], most_scored: int = 3) -> dict[tuple[str, int], list[Case]]:
    """The cases of each method and number of scored epochs."""
    found = defaultdict(list)
    for record in records:
        for scored in range(1, most_scored + 1):
            case = case_of(record, scored)
            if case is not None:
                found[case.method, scored].append(case)
    return found


def case_of(record: RunRecord, scored: int) -> Case | None:
    """The run as it was after so many scored epochs; None for methods and options that no forecast is made for."""
    spec = MethodSpec.parse(record.method)
    wanted = set(spec.options) <= {"ratio", "noise", "floor", "delta", "rescale", "anneal"}
    if spec.name not in METHODS or not wanted or spec.cost is not None or not spec.options.get("rescale", True):
        return None
    if spec.name == "random" and "rescale" not in spec.options:
        return None
    shares = 1 - np.array(record.kept) / record.total
    epochs = np.flatnonzero(shares)
    if not len(epochs) or scored < epochs[0] or scored + 2 > epochs[-1]:
        return None  # not pruned yet, or hardly any more
    return Case(
        setup=f"{record.recipe['dataset']}, {record.recipe['model']}",
        method=spec.name,
        bounds=bounds(spec.name, spec.options),
        now=scored,
        pruned=range(scored, int(epochs[-1]) + 1),
        epochs=len(shares),
        share=float(shares[scored]),
        before=float(shares[:scored].sum()),
        saving=float(shares.mean()),
    )


def over_setups(cases: Iterable[Case], value) -> float:
    """The mean over set-ups of their mean."""
    by_setup = defaultdict(list)
    for case in cases:
        by_setup[case.setup].append(value(case))
    return mean(mean(values) for values in by_setup.values())


def fitted(cases: Sequence[Case]) -> float:
    """The growth rate with the least error over the set-ups."""
    some = [case for setup in {case.setup for case in cases} for case in few([c for c in cases if c.setup == setup])]

    def best(rates: np.ndarray) -> float:
        return float(min(rates, key=lambda rate: over_setups(some, lambda case: case.error(rate))))

    about = best(np.arange(0, 4.01, 0.2))
    return best(np.arange(max(about - 0.2, 0.0), about + 0.21, 0.02))


def few(cases: Sequence[Case], count: int = 8) -> Sequence[Case]:
    """Some of the runs of a set-up, evenly: enough to fit one number to."""
    return cases[:: -(-len(cases) // count)]


def held_out(cases: Sequence[Case]) -> float:
    """The error where the rate is fitted to the other set-ups."""
    setups = sorted({case.setup for case in cases})
    rates = {setup: fitted([case for case in cases if case.setup != setup]) for setup in setups}
    return over_setups(cases, lambda case: case.error(rates[case.setup]))


def one_table() -> Iterable[str]:
    """A table: the error of what a score table alone says of methods that did not run."""
    yield "| from one score table | scored epochs | set-ups | error |"
    yield "| --- | --- | --- | --- |"
    errors = defaultdict(lambda: defaultdict(list))
    for seen, budget in TABLES.items():
        folders = {RESULTS / seen, RESULTS / budget}
        runs = [
            RunRecord.from_json(p.read_text("utf-8")) for f in sorted(folders) for p in sorted(f.rglob("record.json"))
        ]
        for record in runs:
            if record.method == "full" and record.histograms:
                for scored in (1, 2):
                    for label, error in table_errors(record, scored, runs):
                        errors[label, scored][f"{record.recipe['dataset']}, {record.recipe['model']}"].append(error)
    for (label, scored), by_setup in sorted(errors.items(), key=lambda item: (item[0][1], item[0][0])):
        yield f"| `{label}` | {scored} | {len(by_setup)} | {mean(map(mean, by_setup.values())):.1f} |"


def table_errors(full: RunRecord, scored: int, runs: Sequence[RunRecord]) -> Iterable[tuple[str, float]]:
    """(method, error in points) of the runs with the same seed that are among the forecast's methods."""
    rows = {row.label: row.saving for row in forecast(scores_of(full, scored), len(full.kept), scored).rows}
    rows["random+rescale+anneal"] = rows["random, rescaled"]
    for run in runs:
        name = MethodSpec.parse(run.method).name
        label = run.method.replace(",steps=stay", "").replace(":steps=stay", "")
        if name == "infobatch-adaptive" and not set(options(run.method)) - {"noise", "steps"}:
            label = f"{name}:noise={options(run.method).get('noise', '0.1')}"
        if run.seed == full.seed and label in rows and len(run.kept) == len(full.kept):
            yield label, 100 * abs(rows[label] - run.saving)


def scores_of(record: RunRecord, scored: int) -> np.ndarray:
    """A score table with the histogram that the record has: the scores of a bin are spread over it."""
    bins = zip(SCORE_EDGES, SCORE_EDGES[1:], record.histograms[scored - 1], strict=False)
    return np.concatenate([np.geomspace(low, high, count, endpoint=False) for low, high, count in bins]).astype("f4")


def held_noise(records: Sequence[RunRecord]) -> Iterable[str]:
    """A table: how far a run's mean noise factor is from what the first pruned epoch's would make of it."""
    yield "| noise factor of the first pruned epoch, held | runs | set-ups | error |"
    yield "| --- | --- | --- | --- |"
    errors = defaultdict(lambda: defaultdict(list))
    for record in records:
        case = case_of(record, 2)
        if case is None or not record.noise:
            continue
        pruned = [epoch for epoch, kept in enumerate(record.kept) if kept < record.total]
        held = 1 + (record.noise[pruned[0]] - 1) * len(pruned) / len(record.kept)
        errors[case.method][case.setup].append(abs(held - mean(record.noise)))
    for method, by_setup in sorted(errors.items()):
        error = mean(map(mean, by_setup.values()))
        yield f"| `{method}` | {sum(map(len, by_setup.values()))} | {len(by_setup)} | {error:.2f} |"


if __name__ == "__main__":
    main()
