"""The table of a comparison: what a method saved and what it cost, over one or several paired seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean, stdev

from rich import box
from rich.table import Table

from .records import Pair, RunRecord, title


def comparison(pairs: Sequence[Pair]) -> Table:
    """Full data against a method; differences are taken seed by seed, then averaged."""
    method, several = title(pairs[0].pruned.method), len(pairs) > 1
    seeds = f"{len(pairs)} paired seeds, mean ± sd" if several else f"seed {pairs[0].full.seed}"
    table = Table(title=f"{title('full')} and {method} ({seeds})", box=box.SIMPLE_HEAD)
    table.add_column("")
    for head in (title("full"), method, "paired difference" if several else "difference"):
        table.add_column(head, justify="right")

    def both(label: str, value: Callable[[RunRecord], float], form: str) -> None:
        full, pruned = [value(pair.full) for pair in pairs], [value(pair.pruned) for pair in pairs]
        change = [after - before for before, after in zip(full, pruned, strict=True)]
        table.add_row(label, spread(full, form), spread(pruned, form), spread(change, "+" + form))

    def only(label: str, values: Sequence[float], form: str, unit: str = "") -> None:
        table.add_row(label, "", spread(values, form) + unit, "")

    both("Test accuracy, %", lambda run: 100 * run.accuracy, ".2f")
    both("Samples trained on", lambda run: run.samples, ",.0f")
    both("Training time, s", lambda run: run.seconds, ".1f")
    only("Samples saved, %", [100 * pair.pruned.saving for pair in pairs], ".1f")
    only("Ideal speed-up (samples)", [pair.ideal for pair in pairs], ".2f", " ×")
    only("Realised speed-up (time)", [pair.realised for pair in pairs], ".2f", " ×")
    only("Realised ÷ ideal", [pair.efficiency for pair in pairs], ".2f")
    return table


def spread(values: Sequence[float], form: str) -> str:
    """Mean ± sample standard deviation; one value alone has no spread.

    >>> spread([0.25], ".2f"), spread([1.0, 2.0, 3.0], "+.1f")
    ('0.25', '+2.0 ± 1.0')
    """
    text = format(mean(values), form)
    return text if len(values) == 1 else f"{text} ± {format(stdev(values), form.lstrip('+'))}"
