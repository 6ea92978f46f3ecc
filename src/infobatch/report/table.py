"""The table of a comparison: what a method saved and what it cost, over one or several paired seeds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from .outcome import by_method
from .records import Pair, RunRecord, by_further_measures, title
from .statistics import Difference, digits_of, paired, spread


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

    metric = pairs[0].full.metric
    both(metric[:1].upper() + metric[1:], lambda run: run.value, ".2f")
    both("Samples trained on", lambda run: run.samples, ",.0f")
    both("Training time, s", lambda run: run.seconds, ".1f")
    only("Samples saved, %", [100 * pair.pruned.saving for pair in pairs], ".1f")
    noise = [pair.pruned.mean_noise for pair in pairs]
    if None not in noise:
        only("Noise: batches as if smaller", [value for value in noise if value is not None], ".2f", " ×")
    only("Ideal speed-up (samples)", [pair.ideal for pair in pairs], ".2f", " ×")
    only("Realised speed-up (time)", [pair.realised for pair in pairs], ".2f", " ×")
    only("Realised ÷ ideal", [pair.efficiency for pair in pairs], ".2f")
    return table


def verdicts(records: Sequence[RunRecord], margin: float) -> Table:
    """Every method against full data, over the seeds they share: what it saved, the difference, and what that says.

    It fits a terminal of 80 columns: the metric stands below the method's name, the measured speed-up below the
    saving; long names go on in the next line. The noise factor has a column where records have it.
    """
    first, digits, found = records[0], digits_of(margin), by_method(records)
    noisy = any(outcome.noise is not None for outcome in found)
    heading = f"{first.metric}, {first.recipe.get('dataset', '')}, margin {margin:g}"
    table = Table(title=heading, box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(f"\n{first.metric} (seeds)", overflow="fold")
    for head in ("difference (95 %)", "saved\nfaster", *["noise"] * noisy):
        table.add_column(head, justify="right", no_wrap=True)
    # Longer differences leave the verdict less room: 19 columns stay for a name, as many as infobatch-adaptive: takes.
    table.add_column("verdict", overflow="fold", max_width=max(27 - 3 * digits, 9))
    if noisy:
        table.caption, table.caption_justify = "noise: as if batches were so many times smaller", "left"
    for outcome in found:
        runs, pairs = len(outcome.runs), len(outcome.pairs)
        seeds = f"{runs}, {pairs} paired" if 0 < pairs < runs else f"{runs}"
        own = f"{spread([run.value for run in outcome.runs], f'.{digits}f')} ({seeds})"
        change = "" if outcome.difference is None else outcome.difference.told(f"+.{digits}f")
        faster = f"\n{median(pair.realised for pair in outcome.pairs):.2f} ×" if outcome.pairs else ""
        noise = ["" if outcome.noise is None else f"{outcome.noise:.2f}"] if noisy else []
        name = Text.assemble(breakable(outcome.name), (f"\n{own}", "dim"))
        saved = Text.assemble(percent(outcome.saved), (faster, "dim"))
        table.add_row(name, change, saved, *noise, outcome.verdict(margin))
    return table


def further(records: Sequence[RunRecord]) -> Table:
    """What else was measured after training, and its difference to full data, over the seeds that methods share."""
    table = Table(title="Also measured; a positive difference is better", box=box.SIMPLE_HEAD)
    for number, head in enumerate(("", "", "seeds", "mean ± sd", "difference (95 %)")):
        table.add_column(head, justify="right" if number > 1 else "left", overflow="fold")
    for runs in by_further_measures(records):
        for outcome in by_method(runs):
            values = [run.value for run in outcome.runs]
            change = "" if outcome.difference is None else outcome.difference.told("+.3g")
            table.add_row(runs[0].metric, breakable(outcome.name), str(len(values)), spread(values, ".4g"), change)
    return table


class Line(NamedTuple):
    """A row of a table of the paper: its runs, full data's runs, and what the paper reports; ``note`` says why none."""

    label: str
    runs: Sequence[RunRecord]
    full: Sequence[RunRecord]
    paper: str = ""
    paper_saving: str = ""
    paper_time: str = ""
    paper_overhead: str = ""
    note: str = ""


def beside_the_paper(caption: str, lines: Sequence[Line], costs: bool = False) -> Table:
    """Measured figures beside the paper's; with ``costs`` also how long training took, and what the method cost."""
    table = Table(title=caption, box=box.SIMPLE_HEAD)
    heads = ["", "paper", "measured", "to full data (95 %)", "seeds", "saved, paper", "saved, %"]
    reported = any(line.paper_time or line.paper_overhead for line in lines)  # by the paper: else there is no column
    if costs:
        heads += ["time, paper", "overhead, paper"] if reported else []
        heads += ["time, s", "overhead, s", "of time"]
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    for line in lines:
        found = _measured(line, costs) if line.runs else [line.note or "-", "", "0", "-", "-", "-", "-"]
        measured, change, seeds, saved, *rest = found
        row = [line.label, line.paper, measured, change, seeds, line.paper_saving, saved]
        if costs:
            row += [line.paper_time, line.paper_overhead] if reported else []
            row += rest
        table.add_row(*row)
    return table


def timings(caption: str, sizes: Sequence[str], rows: Sequence[tuple[str, Sequence[str], Sequence[float]]]) -> Table:
    """Milliseconds of operations, the paper's beside the measured ones. A row: name, paper's and measured by size."""
    table = Table(title=caption, box=box.SIMPLE_HEAD)
    table.add_column("ms")
    for size in sizes:
        table.add_column(f"{size}, paper", justify="right")
        table.add_column("measured", justify="right")
    for name, paper, measured in rows:
        pairs = zip(paper, measured, strict=True)
        table.add_row(name, *(cell for theirs, ours in pairs for cell in (theirs, f"{ours:.1f}")))
    return table


def _measured(line: Line, costs: bool) -> list[str]:
    """The metric, its difference to full data, the seeds, the saving; the time, the overhead, and that as a share."""
    runs, full = line.runs, line.full
    pairs = paired([*full, *runs], runs[0].method) if full and runs[0].method != "full" else []
    change = ""
    if len(pairs) > 1:
        difference = Difference.of([f.value for f, _ in pairs], [r.value for _, r in pairs], runs[0].higher_is_better)
        change = difference.told("+.2f")
    saved = [1 - run.samples / (run.total * run.recipe["epochs"]) for run in runs]
    if pairs:
        saved = [1 - run.samples / whole.samples for whole, run in pairs]
    found = [spread([run.value for run in runs], ".2f"), change, str(len(runs)), f"{100 * mean(saved):.1f}"]
    if costs:
        overhead = [run.overhead + run.preparation for run in runs]
        share = sum(overhead) / sum(run.seconds for run in runs)
        found += [f"{mean(run.seconds for run in runs):.1f}", _seconds(mean(overhead)), percent(share)]
    return found


def _seconds(seconds: float) -> str:
    """To two digits at least.

    >>> _seconds(0.0123), _seconds(123.4)
    ('0.012', '123')
    """
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def breakable(name: str) -> str:
    """A method's name that can go on in the next line after a colon or comma.

    >>> breakable("infobatch-adaptive:noise=0.2,steps=stay")
    'infobatch-adaptive: noise=0.2, steps=stay'
    """
    return re.sub(r"[:,](?=\S)", r"\g<0> ", name)


def percent(share: float) -> str:
    """A share as it is printed.

    >>> percent(0.3146)
    '31.5 %'
    """
    return f"{100 * share:.1f} %"
