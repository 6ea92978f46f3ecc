"""The picture of a forecast: what each method would save, against the noise it costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from .picture import FAINT, FORMATS, FULL, INK, PRUNED, dress, plain

BUDGET = "infobatch-adaptive"


def draw(rows: Sequence[tuple[str, str, float, float]], path: str | Path) -> None:
    """Draw rows of (label, method, noise factor, saving); a line joins the noise budgets, a dashed line is chance."""
    if Path(path).suffix.lower() not in FORMATS:
        raise ValueError(f"path must end in one of {', '.join(FORMATS)}, which says the format, got {path}")
    picture = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    axes = picture.subplots()
    dress(
        axes,
        "What each method would save, and the noise it costs",
        "noise factor (1.2: as if batches were 1.2 times smaller)",
    )
    axes.grid(color=FAINT)
    most = max([1.1, *(noise for _, _, noise, _ in rows)]) * 1.02
    by_chance = np.linspace(1, most)
    axes.plot(by_chance, 1 - 1 / by_chance, "--", color=FULL, linewidth=1.2)
    middle = 1 + 0.6 * (most - 1)
    axes.annotate("by chance", (middle, 1 - 1 / middle), (6, -12), textcoords="offset points", color=FULL)
    budget = sorted((noise, saving) for _, method, noise, saving in rows if method == BUDGET)
    axes.plot([1.0, *(noise for noise, _ in budget)], [0.0, *(saving for _, saving in budget)], color=PRUNED)
    for label, method, noise, saving in rows:
        ours = method == BUDGET
        axes.plot([noise], [saving], "o", color=PRUNED if ours else INK, markersize=6)
        text = plain(label.removeprefix(f"{BUDGET}:").replace("=", " ") if ours else label)
        # A noise budget's name stands to its left above the line, another's to its right below (at the edge: left).
        left = ours or noise > 1 + 0.7 * (most - 1)
        place = (-6 if left else 6, 5 if ours else -13)
        note = axes.annotate(text, (noise, saving), place, textcoords="offset points", fontsize=8, color=INK)
        note.set_horizontalalignment("right" if left else "left")
    axes.set_ylabel("saved over the whole run", color=INK)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlim(left=1 - 0.16 * (most - 1))  # room for the first label
    axes.set_ylim(bottom=0.0)
    axes.margins(x=0.15)
    picture.savefig(path)
