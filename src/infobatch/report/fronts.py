"""Fronts: what methods lose against what they save, in several comparisons, as pictures and a Markdown table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..records import RunRecord, options
from .numbers import percent
from .outcome import Outcome, outcomes
from .picture import FAINT, INK, dress, plain
from .statistics import digits_of, spearman, spread

FORMATS = (".png", ".svg")
BAND = "#e3efe6"
BETTER = "difference to full data (positive is better)"
# Options that set how much is saved: methods that differ in these only are joined by a line.
DIALS = ("cost", "fraction", "noise", "ratio", "saving")


@dataclass(frozen=True)
class Family:
    """How methods of one kind are named and drawn. Each has its own mark, to be told apart without colours."""

    name: str
    colour: str
    mark: str


# The colours of Okabe and Ito, which the colour-blind can tell apart; darker where they would be faint on white.
FULL = Family("full data, shortened schedule", "#5c5f66", "s")
FAMILIES = {
    "full": FULL,
    "full-shortened": FULL,
    "infobatch": Family("infobatch", "#0072b2", "o"),
    "infobatch-quantile": Family("infobatch-quantile", "#cc79a7", "D"),
    "random": Family("random", "#d08c00", "^"),
    "infobatch-adaptive": Family("infobatch-adaptive", "#b03000", "p"),
}
OTHERS = (("#00785a", "v"), ("#3fa7d6", "P"), ("#5b4bc4", "X"), ("#000000", "<"))


@dataclass(frozen=True)
class Point:
    """A method of a comparison, and the family it is drawn with."""

    outcome: Outcome
    family: Family

    @property
    def steps_stay(self) -> bool:
        """Whether it trains with as many steps as full data."""
        return options(self.outcome.method).get("steps") == "stay"

    @property
    def line(self) -> tuple[str, ...]:
        """Its label without how much it saves: points with the same line are joined."""
        name = "" if self.family is FULL else self.outcome.method.partition(":")[0]
        settings = options(self.outcome.method).items()
        return (name, *sorted(f"{key}={value}" for key, value in settings if key not in DIALS))


@dataclass(frozen=True)
class Front:
    """A comparison: its heading, full data, and all other methods sorted by family, step mode and saving."""

    heading: str
    full: Outcome
    points: tuple[Point, ...]

    @property
    def about(self) -> str:
        """Samples, epochs and seeds: what tells comparisons of one data set and model apart."""
        run = self.full.runs[0]
        about = f"{run.total:,} samples, {len(run.kept)} epochs, {_seeds(self.points)}"
        diverged = [point for point in self.points if point.outcome.diverged]
        return about + (f"\ndiverged, not drawn: {len(diverged)} of {len(self.points)} methods" if diverged else "")

    @property
    def points_to_draw(self) -> list[Point]:
        """The points that have a difference to full data."""
        return [point for point in self.points if point.outcome.difference is not None]


def arrange(comparisons: Sequence[Sequence[RunRecord]], headings: Sequence[str] | None = None) -> list[Front]:
    """Make a front of the records of each comparison; without ``headings``, the recipes give the headings."""
    if headings is not None and len(headings) != len(comparisons):
        raise ValueError(
            f"headings must hold a title for each comparison, got {len(headings)} titles for {len(comparisons)} "
            "comparisons: give as many titles as comparisons, or none"
        )
    kinds = dict.fromkeys(_kind(run.method) for records in comparisons for run in records)
    others = [kind for kind in kinds if kind not in FAMILIES]
    families = {**FAMILIES, **{kind: Family(kind, *OTHERS[n % len(OTHERS)]) for n, kind in enumerate(others)}}
    fronts = []
    for number, records in enumerate(comparisons):
        heading = _heading(records[0]) if headings is None else headings[number]
        try:
            full, *methods = outcomes(records)
        except ValueError as error:
            raise ValueError(f"{heading}: the runs of one folder must be one comparison; {error}") from None
        if full.method != "full" or not any(method.pairs for method in methods):
            raise ValueError(
                f"{heading}: no run shares its seed with a run on full data, so there is no difference to draw: train "
                "the method full with the same seeds"
            )
        points = [Point(method, families[_kind(method.method)]) for method in methods]
        order = list(families.values())
        points.sort(key=lambda point: (order.index(point.family), point.steps_stay, point.line, point.outcome.saved))
        fronts.append(Front(heading, full, tuple(points)))
    return fronts


def _kind(method: str) -> str:
    """The name of a method without its options and without what is added to it by a plus sign.

    >>> _kind("random+rescale+anneal"), _kind("full:cost=0.5,lr=0.2")
    ('random', 'full')
    """
    return method.partition(":")[0].partition("+")[0]


def _heading(run: RunRecord) -> str:
    known = [str(run.recipe[key]) for key in ("dataset", "model", "optimizer") if key in run.recipe]
    return ", ".join(known) or run.metric


def _seeds(points: Sequence[Point]) -> str:
    counts = sorted({len(point.outcome.pairs) for point in points} - {0})
    if counts == [1]:
        return "one seed: no result"
    return f"{' to '.join(str(count) for count in counts[:: len(counts) - 1 or 1])} seeds"


# -- the picture of the fronts -----------------------------------------------------------------------------------------


def draw(fronts: Sequence[Front], path: str | Path, margin: float) -> None:
    """Draw a panel per comparison: the difference to full data with its 95 % interval, against the samples saved.

    The text can be read when the picture is shown 900 pixels wide.
    """
    columns = len(fronts) if len(fronts) < 4 else 2 if len(fronts) == 4 else 3
    rows = -(-len(fronts) // columns)
    figure = Figure(figsize=(9, 0.9 + (3.1 if columns > 1 else 4) * rows), dpi=200, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axes, front in zip(panels, fronts, strict=False):
        _draw_front(axes, front, margin, 96 // columns)
    for axes in panels[len(fronts) :]:
        axes.axis("off")
    figure.supylabel(BETTER, fontsize=10, color=INK)
    _legend(
        figure,
        [point for front in fronts for point in front.points_to_draw],
        [Patch(color=BAND, label=f"margin {margin:g}; bars: 95 % interval")],
    )
    figure.savefig(path)


def _draw_front(axes: Axes, front: Front, margin: float, width: int) -> None:
    _dress(axes, front.heading, front.about, "samples saved", width)
    axes.axhspan(-margin, 0, color=BAND, zorder=0)
    axes.axhline(0, color=INK, linewidth=1)
    ends = [0, -margin]  # values that the axis must cover
    for _, line in groupby(front.points_to_draw, key=lambda point: (point.steps_stay, point.line)):
        points = list(line)
        style = _style(points[0])
        axes.plot([p.outcome.saved for p in points], [_difference(p) for p in points], markersize=5.5, **style)
        for point in points:
            change = point.outcome.difference
            assert change is not None
            ends.append(change.mean)
            if len(change.values) > 1:
                axes.plot([point.outcome.saved] * 2, change.interval, color=point.family.colour, linewidth=1.2)
            if len(change.values) > 2:  # the interval of two seeds is so long that nothing else could be seen
                ends += change.interval
    room = 0.06 * (max(ends) - min(ends)) or 1
    axes.set_ylim(min(ends) - room, max(ends) + room)
    axes.set_xlim(0, 1.07 * max(0.1, *(point.outcome.saved for point in front.points)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: percent(share, 0)))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))


def _difference(point: Point) -> float:
    assert point.outcome.difference is not None
    return point.outcome.difference.mean


# -- the picture of the noise ------------------------------------------------------------------------------------------


def draw_noise(fronts: Sequence[Front], path: str | Path) -> None:
    """Draw every run's difference to full data against its mean noise factor less 1, in a panel for each step mode.

    Large marks are means over the seeds of a method in a comparison; Spearman's rank correlation is that of the means.
    Full data on a shortened schedule is left out: it has no added noise (V = 1).
    """
    points = [
        point
        for front in fronts
        for point in front.points_to_draw
        if point.family is not FULL and point.outcome.noise is not None
    ]
    if not points:
        raise ValueError(
            "no run of a pruning method has a noise factor: records of older versions lack it, so train again"
        )
    figure = Figure(figsize=(9, 4.6), dpi=200, layout="constrained")
    for axes, stay in zip(figure.subplots(1, 2, sharex=True, sharey=True), (True, False), strict=True):
        in_mode = [point for point in points if point.steps_stay == stay]
        diverged = [point for front in fronts for point in front.points if point.outcome.diverged]
        count = sum(point.steps_stay == stay for point in diverged)
        about = _correlation(in_mode) + (f"\ndiverged, not drawn: {count} of the methods" if count else "")
        _dress(axes, "Steps that stay" if stay else "Fewer steps", about, "noise factor V − 1", 48)
        axes.axhline(0, color=INK, linewidth=1)
        for point in in_mode:
            places = list(_noise_and_loss(point))
            axes.plot(*zip(*places, strict=True), **_style(point) | {"linestyle": "", "alpha": 0.35}, markersize=3)
            middle = [mean(values) for values in zip(*places, strict=True)]
            axes.plot(middle[:1], middle[1:], **_style(point) | {"linestyle": ""}, markersize=7, zorder=3)
        axes.tick_params(labelleft=True)
    figure.supylabel(BETTER, fontsize=10, color=INK)
    _legend(figure, points, [])
    figure.savefig(path)


def _noise_and_loss(point: Point) -> Iterator[tuple[float, float]]:
    """The noise factor less 1 and the difference to full data, for each pair."""
    assert point.outcome.difference is not None
    for pair, difference in zip(point.outcome.pairs, point.outcome.difference.values, strict=True):
        if pair.pruned.mean_noise is not None:
            yield pair.pruned.mean_noise - 1, difference


def _correlation(points: Sequence[Point]) -> str:
    values = [point.outcome.noise or 1 for point in points], [_difference(point) for point in points]
    correlation = spearman(*values) if len(points) > 2 else math.nan
    if math.isnan(correlation):
        return "too few methods for a rank correlation"
    return f"Spearman's rank correlation over {len(points)} method means: {correlation:+.2f}".replace("-", "−")


# -- what both pictures share ------------------------------------------------------------------------------------------


def _dress(axes: Axes, heading: str, about: str, below: str, width: int) -> None:
    """Put a bold heading, at most ``width`` letters per line, above the axes, and ``about`` in small letters below."""
    dress(axes, "", below)
    small = about.count("\n") + 1
    lines = "\n".join(wrap(plain(heading), width))
    axes.set_title(lines, loc="left", fontsize=10, fontweight="bold", color=INK, pad=6 + 10 * small)
    above = axes.annotate(plain(about), (0, 1), (0, 4), "axes fraction", "offset points")
    above.set(fontsize=8, color="#5c5f66")
    axes.grid(axis="y", color=FAINT)
    axes.tick_params(labelsize=8.5)
    axes.xaxis.label.set_fontsize(9)


def _style(point: Point) -> dict[str, Any]:
    """How a point is drawn: filled where steps stay, hollow and dashed where there are fewer."""
    colour = point.family.colour
    inside, line = (colour, "-") if point.steps_stay else ("white", (0, (4, 2)))
    marks = {"marker": point.family.mark, "markerfacecolor": inside}
    return {"color": colour, "linestyle": line, "linewidth": 1.2, **marks}


def _legend(figure: Figure, points: Sequence[Point], more: Sequence[Patch]) -> None:
    families = dict.fromkeys(point.family for point in points)
    handles: list[Line2D | Patch] = [
        Line2D([], [], linestyle="", marker=family.mark, markersize=6, color=family.colour, label=plain(family.name))
        for family in families
    ]
    for inside, label in ((INK, "filled: steps that stay"), ("white", "hollow: fewer steps")):
        handles.append(
            Line2D([], [], linestyle="", marker="o", markersize=6, color=INK, markerfacecolor=inside, label=label)
        )
    figure.legend(
        handles=[*handles, *more], loc="outside lower center", ncols=4, frameon=False, fontsize=9, labelcolor=INK
    )


# -- the table ---------------------------------------------------------------------------------------------------------


def markdown(fronts: Sequence[Front], margin: float) -> str:
    """A table per comparison with a row per method. Seeds are counted that the method shares with full data."""
    return "\n\n".join(_table(front, margin) for front in fronts) + "\n"


def _table(front: Front, margin: float) -> str:
    digits, runs = digits_of(margin), front.full.runs
    noisy = any(point.outcome.noise is not None for point in front.points)
    heads = ["method", "seeds", "samples saved", *["noise V"] * noisy, "difference, 95 % interval", "verdict"]
    lines = [
        f"### {front.heading}",
        "",
        f"{runs[0].total:,} samples, {len(runs[0].kept)} epochs; {runs[0].metric} on full data: "
        f"{spread([run.value for run in runs], f'.{digits}f')} ({len(runs)} seeds); margin {margin:g}",
        "",
        _row(heads),
        _row(["---", *["---:"] * (len(heads) - 2), "---"]),
    ]
    for outcome in (point.outcome for point in front.points):
        noise = ["" if outcome.noise is None else f"{outcome.noise:.2f}"] if noisy else []
        change = "" if outcome.difference is None else outcome.difference.describe(f"+.{digits}f")
        verdict = outcome.verdict(margin) if outcome.pairs else "shares no seed with full data"
        cells = [
            f"`{outcome.method}`",
            str(len(outcome.pairs)),
            percent(outcome.saved),
            *noise,
            change,
            verdict,
        ]
        lines.append(_row(cells))
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
