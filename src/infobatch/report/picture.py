"""What all pictures share: colours, formats, and the look of their axes."""

from __future__ import annotations

from matplotlib.axes import Axes

FORMATS = (".png", ".pdf", ".svg")

# One colour per meaning in all panels; they differ in lightness too, for print and for the colour-blind.
FULL, PRUNED, SAVED, INK, FAINT = "#9a9a9a", "#0072b2", "#e6eef4", "#262626", "#e8e8e8"


def dress(axes: Axes, heading: str, below: str) -> None:
    """Put a title at the left and a label below the axis, and remove the frame except for the axes."""
    axes.set_title(heading, loc="left", fontsize=12, color=INK, pad=10)
    axes.set_xlabel(below, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#b5b5b5")
    axes.tick_params(labelcolor=INK, color="#b5b5b5")
    axes.set_axisbelow(True)


def plain(text: str) -> str:
    """Escape the dollar signs, which matplotlib would read as mathematics."""
    return text.replace("$", r"\$")
