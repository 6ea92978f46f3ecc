"""The picture of a comparison: the loss over the samples trained on, the share kept, the scores."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from statistics import mean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter, StrMethodFormatter

from .records import Pair, RunRecord, title

FORMATS = (".png", ".pdf", ".svg")

# One colour per meaning in all panels; they differ in lightness too, for print and for the colour-blind.
FULL, PRUNED, SAVED, INK, FAINT = "#9a9a9a", "#0072b2", "#e6eef4", "#262626", "#e8e8e8"
# Scores span many powers of ten; one below this is drawn at it.
LOWEST_SCORE = 1e-7
BINS = 50


def draw(pairs: Sequence[Pair], path: str | Path) -> None:
    """Draw the comparison into ``path``; its ending, one of ``FORMATS``, says in which format."""
    figure = Figure(figsize=(13, 4.5), dpi=150)
    figure.subplots_adjust(left=0.05, right=0.985, top=0.8, bottom=0.13, wspace=0.24)
    figure.text(0.05, 0.93, _headline(pairs), fontsize=14, fontweight="bold", color=INK)
    losses, kept, scores = figure.subplots(1, 3)
    _losses(losses, pairs)
    _kept(kept, [pair.pruned for pair in pairs])
    _scores(scores, [pair.pruned for pair in pairs])
    figure.savefig(path)


def percent(share: float, digits: int = 0) -> str:
    """A share as it is printed.

    >>> percent(0.3146), percent(0.9, 1)
    ('31 %', '90.0 %')
    """
    return f"{100 * share:.{digits}f} %"


def _headline(pairs: Sequence[Pair]) -> str:
    saving = mean(pair.pruned.saving for pair in pairs)
    full, pruned = mean(pair.full.value for pair in pairs), mean(pair.pruned.value for pair in pairs)
    seeds = "one seed" if len(pairs) == 1 else f"mean of {len(pairs)} seeds"
    return (
        f"{title(pairs[0].pruned.method)}: {percent(saving)} fewer samples, "
        f"{pairs[0].full.metric} {pruned:.1f}; full data: {full:.1f} ({seeds})"
    )


def _losses(axes: Axes, pairs: Sequence[Pair]) -> None:
    """A curve per run, each ending where its training ended."""
    dress(axes, "Training loss", "samples trained on, thousands")
    axes.grid(axis="y", color=FAINT)
    for number, pair in enumerate(pairs):
        for run, colour in ((pair.full, FULL), (pair.pruned, PRUNED)):
            seen = [count / 1000 for count in accumulate(run.kept)]
            label = title(run.method) if number == 0 else None
            axes.plot(seen, run.losses, color=colour, linewidth=2.2 if len(pairs) == 1 else 1.2, label=label)
            axes.plot(seen[-1:], run.losses[-1:], "o", color=colour, markersize=6)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, labelcolor=INK)


def _kept(axes: Axes, runs: Sequence[RunRecord]) -> None:
    """A column per epoch: what was trained on, and above it what was saved."""
    shares = [mean(run.kept[e] / run.total for run in runs) for e in range(len(runs[0].kept))]
    epochs = range(1, len(shares) + 1)
    dress(axes, "Share of the data trained on", "epoch")
    axes.bar(epochs, [1] * len(shares), width=1, color=SAVED)
    axes.bar(epochs, shares, width=1, color=PRUNED)
    axes.set_ylim(0, 1)
    axes.set_xlim(0.5, len(shares) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.text((len(shares) + 1) / 2, min(shares) / 2, "trained on", color="white", ha="center", va="center")
    if min(shares) < 0.9:
        axes.text((len(shares) + 1) / 2, (1 + min(shares)) / 2, "saved", color=INK, ha="center", va="center")


def _scores(axes: Axes, runs: Sequence[RunRecord]) -> None:
    """How the scores are spread, and where their mean lies."""
    scores = np.concatenate([np.asarray(run.scores, dtype=np.float64) for run in runs])
    scores = scores[np.isfinite(scores)]
    if not len(scores):
        dress(axes, "Scores: none yet", "score")
        return
    middle, drawn = scores.mean(), np.maximum(scores, LOWEST_SCORE)
    heading = f"Scores: {percent(np.mean(scores < middle))} are below their mean"
    dress(axes, heading, "score: a sample's last loss, logarithmic")
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.hist(drawn, np.geomspace(drawn.min() / 1.001, drawn.max() * 1.001, BINS + 1).tolist(), color=PRUNED)
    axes.margins(y=0.15)
    at, top = max(middle, LOWEST_SCORE), axes.get_xaxis_transform()
    axes.axvline(at, color=INK, linewidth=1.2)
    axes.annotate(f"mean {middle:.2g} ", (at, 1), xycoords=top, color=INK, ha="right", va="top")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda score, _: _power(score)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylabel("samples", color=INK)


def _power(score: float) -> str:
    power = f"$10^{{{np.log10(score):.0f}}}$"
    return power if score > LOWEST_SCORE else f"≤ {power}"


def dress(axes: Axes, heading: str, below: str) -> None:
    """A title that says what is seen, at the left; no frame but the axes."""
    axes.set_title(heading, loc="left", fontsize=12, color=INK, pad=10)
    axes.set_xlabel(below, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#b5b5b5")
    axes.tick_params(labelcolor=INK, color="#b5b5b5")
    axes.set_axisbelow(True)


def plain(text: str) -> str:
    """Without what matplotlib would take for mathematics."""
    return text.replace("$", r"\$")
