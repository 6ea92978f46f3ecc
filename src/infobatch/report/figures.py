"""The paper's figures, drawn from records: each as a picture (PNG and SVG), with its numbers as CSV beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from csv import writer
from pathlib import Path
from statistics import mean

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from ..records import RunRecord, title
from .picture import FAINT, FULL, INK, PRUNED, SAVED, dress, plain
from .statistics import pair_runs

ENDINGS = (".png", ".svg", ".csv")
_BINS = 60


def savings(groups: Sequence[Sequence[RunRecord]], path: Path) -> list[Path]:
    """Figure 4b: for each group, the training time of full data and of a method, and the time of the method itself."""
    picture = Figure(figsize=(8, 1.2 + 0.9 * len(groups)), dpi=150, layout="constrained")
    axes = picture.subplots()
    dress(axes, "Training time, and the cost of pruning", "seconds")
    rows: list[tuple[object, ...]] = []
    for place, records in enumerate(groups):
        method = next(run.method for run in records if run.method != "full")
        pairs = pair_runs(records, method)
        full, pruned, cost = (
            mean(values)
            for values in zip(*((f.seconds, p.seconds, p.overhead + p.preparation) for f, p in pairs), strict=True)
        )
        epochs = pairs[0][0].recipe["epochs"]
        axes.barh([place - 0.2], [full], 0.36, color=FULL)
        axes.barh([place + 0.2], [pruned], 0.36, color=PRUNED)
        label = f" {title(method)}: {full - pruned:.1f} s saved, cost {cost:.2g} s"
        for end, shift, text in ((full, -0.2, f" {title('full')}"), (pruned, 0.2, label)):
            axes.text(end, place + shift, text, va="center", color=INK)
        rows.append((epochs, method, full, pruned, full - pruned, cost))
    axes.set_yticks(range(len(groups)), [f"{row[0]} epochs" for row in rows])
    axes.invert_yaxis()
    axes.margins(x=0.3)
    return _write(picture, path, ("epochs", "method", "full_seconds", "seconds", "saved_seconds", "cost_seconds"), rows)


def pruned_per_epoch(records: Sequence[RunRecord], path: Path) -> list[Path]:
    """Figure 4d: how many samples each epoch left out, and the metric after the epoch; means over the seeds."""
    first = records[0]
    epochs = range(1, len(first.kept) + 1)
    left_out = [mean(run.total - run.kept[e] for run in records) for e in range(len(first.kept))]
    values = [mean(run.values[e] for run in records) for e in range(len(first.kept))]
    picture = Figure(figsize=(8, 4), dpi=150, layout="constrained")
    axes = picture.subplots()
    dress(axes, f"{title(first.method)}: samples left out, and {first.metric}", "epoch")
    axes.bar(epochs, left_out, width=1, color=SAVED, edgecolor="white")
    axes.set_ylabel("samples left out", color=INK)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    other = axes.twinx()
    other.plot(epochs, values, color=PRUNED, linewidth=2.2)
    other.set_ylabel(plain(first.metric), color=PRUNED)
    other.spines[["top"]].set_visible(False)
    rows = list(zip(epochs, left_out, values, strict=True))
    return _write(picture, path, ("epoch", "left_out", "value"), rows)


def distribution(losses: NDArray[np.floating], weights: NDArray[np.floating], path: Path) -> list[Path]:
    """Figure 6: the losses of all samples, of those that pruning keeps, and of those kept times their weights.

    ``weights`` are 0 for samples that are left out. The dashed line counts a kept sample as often as its weight says:
    a weight in front of a log-likelihood does the same.
    """
    kept = weights > 0
    edges = np.linspace(0, float(np.quantile(losses, 0.995)) * 1.5 or 1.0, _BINS + 1)
    scaled, equivalent = _counts(losses[kept] * weights[kept], edges), _counts(losses[kept], edges, weights[kept])
    panels = (("All losses", _counts(losses, edges)), ("1: soft pruning", _counts(losses[kept], edges)))
    picture = Figure(figsize=(12, 3.6), dpi=150, layout="constrained")
    for axes, (heading, counts) in zip(
        picture.subplots(1, 3, sharey=True), (*panels, ("2: rescaling", scaled)), strict=True
    ):
        dress(axes, heading, "loss")
        axes.grid(axis="y", color=FAINT)
        axes.stairs(panels[0][1], edges, color=FULL)
        axes.stairs(counts, edges, fill=True, color=PRUNED, alpha=0.8)
        if heading.startswith("2"):
            axes.stairs(equivalent, edges, color="#c2500a", linestyle="--", linewidth=1.6, label="kept, by weight")
            axes.legend(frameon=False, labelcolor=INK)
    rows = zip(edges[:-1], edges[1:], panels[0][1], panels[1][1], scaled, equivalent, strict=True)
    return _write(picture, path, ("from", "to", "all", "kept", "rescaled", "kept_by_weight"), rows)


def _counts(
    values: NDArray[np.floating], edges: NDArray[np.floating], weights: NDArray[np.floating] | None = None
) -> NDArray[np.floating]:
    """How many values lie between the edges; those beyond the last edge count in the last bin."""
    counts: NDArray[np.floating] = np.histogram(np.minimum(values, edges[-1]), edges, weights=weights)[0]
    return counts


def _write(figure: Figure, path: Path, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Path]:
    """Write the picture in both formats, and the numbers in full precision."""
    path.parent.mkdir(parents=True, exist_ok=True)
    paths = [path.with_name(path.name + ending) for ending in ENDINGS]
    for picture in paths[:2]:
        figure.savefig(picture)
    with paths[2].open("w", encoding="utf-8", newline="") as file:
        lines = writer(file, lineterminator="\n")
        lines.writerow(heads)
        lines.writerows(rows)
    return paths
