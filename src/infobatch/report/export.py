"""A comparison as files for other programs: its table and curves as CSV, its picture as PNG, SVG or PDF."""

from __future__ import annotations

import math
from collections.abc import Sequence
from csv import writer
from itertools import accumulate
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from .outcome import Outcome
from .picture import FAINT, FORMATS, INK, dress, plain
from .results import Results

# The columns of the table: it has a row per method, for the metric and again for each further measure.
ROWS = (
    *("measure", "method", "seeds", "mean", "sd", "difference", "low", "high", "verdict"),
    *("saved", "noise", "samples", "seconds", "ideal_speedup", "realised_speedup"),
)
COLUMNS = ("method", "seed", "epoch", "total", "kept", "samples", "loss", "seconds", "metric", "value")
# As on the page: full data is grey, and methods after the last colour repeat the colours, dashed.
COLOURS = ("#6d7078", "#0072b2", "#c2500a", "#00785a", "#a03c86", "#876300", "#5b4bc4")
METHODS = len(COLOURS) - 1
STYLES = ("-", "--", ":")


def table(results: Results, path: str | Path) -> None:
    """Write the table that the terminal and the page show, with the columns ``ROWS``; unknown cells are empty.

    ``low`` and ``high`` are the ends of the difference's 95 % interval. The margin holds for the metric only, so
    further measures have no verdict.
    """
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        lines = writer(file, lineterminator="\n")
        lines.writerow(ROWS)
        for outcomes in (results.methods, *results.further):
            for outcome in outcomes:
                lines.writerow(_row(outcome, outcome.verdict(results.margin) if outcomes is results.methods else ""))


def _row(outcome: Outcome, verdict: str) -> list[object]:
    values, change = outcome.values, outcome.difference
    several = change is not None and len(change.values) > 1
    return [
        *(outcome.runs[0].metric, outcome.method, len(values), mean(values)),
        stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None,
        None if change is None else change.mean,
        *(change.interval if change is not None and several else (None, None)),
        *(verdict, outcome.saved, outcome.noise),
        *(mean(run.samples for run in outcome.compared), mean(run.seconds_in_all for run in outcome.compared)),
        *(outcome.ideal, outcome.realised),
    ]


def epochs(results: Results, path: str | Path) -> None:
    """Write a line per run and epoch, with the columns ``COLUMNS``; ``samples`` is the sum of ``kept`` so far.

    Epochs count from 1. The noise factor has a column where records hold it. Numbers are written in full precision:
    reading them gives the same numbers.
    """
    columns = (*COLUMNS, "noise") if any(run.noise for run in results.runs) else COLUMNS
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        lines = writer(file, lineterminator="\n")
        lines.writerow(columns)
        for run in results.runs:
            noise = run.noise or [""] * len(run.kept)
            curves = zip(run.kept, accumulate(run.kept), run.losses, run.times, run.values, noise, strict=True)
            for epoch, (kept, samples, loss, seconds, value, factor) in enumerate(curves, 1):
                row = [run.method, run.seed, epoch, run.total, kept, samples, loss, seconds, run.metric, value, factor]
                lines.writerow(row[: len(columns)])


def figure(results: Results, path: str | Path) -> None:
    """Draw the metric against the samples trained on, and each method's difference to full data at the end.

    Means over the seeds with their 95 % intervals. The ending of ``path``, one of ``FORMATS``, is the format.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise ValueError(f"path must end in one of {', '.join(FORMATS)}, which says the format, got {path}")
    outcomes = results.methods
    picture = Figure(figsize=(12, max(4.2, 1.9 + 0.45 * len(outcomes))), dpi=150, layout="constrained")
    curves, differences = picture.subplots(1, 2, width_ratios=(3, 2))
    _draw_curves(curves, outcomes)
    _draw_differences(differences, outcomes)
    picture.savefig(path)


def _draw_curves(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    metric = plain(outcomes[0].runs[0].metric)
    several = any(len(outcome.runs) > 1 for outcome in outcomes)
    how = "mean of the seeds and its 95 % interval" if several else "one seed is no result"
    dress(axes, f"{metric[:1].upper() + metric[1:]}: {how}", "samples trained on")
    axes.grid(axis="y", color=FAINT)
    for outcome in outcomes:
        band, colour = outcome.band(lambda run: run.values), _colour(outcome)
        style = STYLES[max(outcome.number - 1, 0) // METHODS % len(STYLES)]
        measured = np.isfinite(band.mean)  # a recipe may measure the metric after some epochs only
        samples, middle = np.array(outcome.samples)[measured], np.array(band.mean)[measured]
        axes.plot(samples, middle, style, color=colour, linewidth=1.8)
        axes.plot(samples[-1:], middle[-1:], "o", color=colour, markersize=5)
        if band.reach is not None:
            reach = np.array(band.reach)[measured]
            axes.fill_between(samples, middle - reach, middle + reach, color=colour, alpha=0.16, linewidth=0)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))


def _draw_differences(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    """Draw a row per method, with its name in its colour: the legend of both panels. Full data lies at 0."""
    dress(axes, "Difference to full data, paired by seed", "worse ←   difference at the end   → better")
    axes.axvline(0, color=INK, linewidth=1)
    for row, outcome in enumerate(outcomes):
        colour, change = _colour(outcome), outcome.difference
        if outcome.method == "full":
            axes.plot([0], [row], "o", color=colour, markersize=7)
        if change is None:
            continue
        axes.plot(change.values, [row] * len(change.values), "o", color=colour, markersize=4, fillstyle="none")
        axes.plot([change.mean], [row], "o", color=colour, markersize=7)
        if len(change.values) > 1:
            axes.plot(change.interval, [row, row], color=colour, linewidth=2.4)
    axes.set_yticks(range(len(outcomes)), [plain(_label(outcome)) for outcome in outcomes])
    for tick, outcome in zip(axes.get_yticklabels(), outcomes, strict=True):
        tick.set_color(_colour(outcome))
        tick.set_fontweight("bold")
    axes.set_ylim(len(outcomes) - 0.5, -0.5)
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _label(outcome: Outcome) -> str:
    seeds = "one seed" if len(outcome.runs) == 1 else f"{len(outcome.runs)} seeds"
    if outcome.diverged:
        seeds += ", diverged"
    if outcome.noise is not None:
        seeds += f", noise {outcome.noise:.2f}"
    return f"{outcome.name}\n{seeds}"


def _colour(outcome: Outcome) -> str:
    return COLOURS[1 + (outcome.number - 1) % METHODS] if outcome.number else COLOURS[0]
