"""Tables for the terminal: a comparison's verdicts, its further measures, and the paper's figures beside ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .numbers import percent
from .outcome import Outcome
from .results import Results
from .statistics import spread


def tell(results: Results, console: Console) -> None:
    """Print the table of a comparison, its further measures and its notes."""
    console.print(verdict_table(results))
    if results.further:
        console.print(further_table(results))
    for note in results.notes():
        console.print(note.text, highlight=False, soft_wrap=True)


def verdict_table(results: Results) -> Table:
    """Every method against full data, over the seeds they share: the difference, the saving and the verdict.

    It fits a terminal of 80 columns: the metric stands below the method's name, the measured speed-up below the
    saving; long names wrap. The noise factor has a column where records hold it.
    """
    first, digits = results.runs[0], results.digits
    noisy = any(outcome.noise is not None for outcome in results.methods)
    trained = first.recipe.get("dataset", first.recipe.get("function", ""))
    heading = f"{first.metric}, {trained}, margin {results.margin:g}"
    table = Table(title=heading, box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(f"\n{first.metric} (seeds)", overflow="fold")
    for head in ("difference (95 %)", "saved\nfaster", *["noise"] * noisy):
        table.add_column(head, justify="right", no_wrap=True)
    # Longer differences leave the verdict less room: the name keeps 19 columns, the length of "infobatch-adaptive:".
    table.add_column("verdict", overflow="fold", max_width=max(27 - 3 * digits, 9))
    if noisy:
        table.caption, table.caption_justify = "noise 1.2: as if batches were 1.2 times smaller", "left"
    for outcome in results.methods:
        own = f"{spread(outcome.values, f'.{digits}f')} ({len(outcome.values)})"
        change = "" if outcome.difference is None else outcome.difference.describe(f"+.{digits}f")
        faster = "" if outcome.realised is None else f"\n{outcome.realised:.2f} ×"
        noise = ["" if outcome.noise is None else f"{outcome.noise:.2f}"] if noisy else []
        name = Text.assemble(make_breakable(outcome.name), (f"\n{own}", "dim"))
        saved = Text.assemble(percent(outcome.saved), (faster, "dim"))
        table.add_row(name, change, saved, *noise, outcome.verdict(results.margin))
    return table


def further_table(results: Results) -> Table:
    """The further measures taken after training, with their differences to full data over the shared seeds."""
    table = Table(title="Also measured; a positive difference is better", box=box.SIMPLE_HEAD)
    for number, head in enumerate(("", "", "seeds", "mean ± sd", "difference (95 %)")):
        table.add_column(head, justify="right" if number > 1 else "left", overflow="fold")
    for outcomes in results.further:
        for outcome in outcomes:
            values, change = outcome.values, "" if outcome.difference is None else outcome.difference.describe("+.3g")
            metric = outcome.runs[0].metric
            table.add_row(metric, make_breakable(outcome.name), str(len(values)), spread(values, ".4g"), change)
    return table


class Line(NamedTuple):
    """A row of one of the paper's tables: our runs and the paper's figures; ``note`` says why there are no runs."""

    label: str
    outcome: Outcome | None
    paper: str = ""
    paper_saving: str = ""
    paper_time: str = ""
    paper_overhead: str = ""
    note: str = ""


def compare_with_paper(caption: str, lines: Sequence[Line], costs: bool = False) -> Table:
    """Measured figures beside the paper's; with ``costs`` also the time of training and of the method itself."""
    table = Table(title=caption, box=box.SIMPLE_HEAD)
    heads = ["", "paper", "measured", "to full data (95 %)", "seeds", "saved, paper", "saved, %"]
    reported = any(line.paper_time or line.paper_overhead for line in lines)  # only then the paper has columns
    if costs:
        heads += ["time, paper", "overhead, paper"] if reported else []
        heads += ["time, s", "overhead, s", "of time"]
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    for line in lines:
        cells = _measured_cells(line.outcome, costs) if line.outcome else [line.note or "-", "", "0", *"----"]
        measured, change, seeds, saved, *rest = cells
        row = [line.label, line.paper, measured, change, seeds, line.paper_saving, saved]
        if costs:
            row += [line.paper_time, line.paper_overhead] if reported else []
            row += rest
        table.add_row(*row)
    return table


def timings(caption: str, sizes: Sequence[str], rows: Sequence[tuple[str, Sequence[str], Sequence[float]]]) -> Table:
    """Milliseconds of operations, the paper's beside ours. A row: name, the paper's by size, the measured by size."""
    table = Table(title=caption, box=box.SIMPLE_HEAD)
    table.add_column("ms")
    for size in sizes:
        table.add_column(f"{size}, paper", justify="right")
        table.add_column("measured", justify="right")
    for name, paper, measured in rows:
        pairs = zip(paper, measured, strict=True)
        table.add_row(name, *(cell for theirs, ours in pairs for cell in (theirs, f"{ours:.1f}")))
    return table


def _measured_cells(outcome: Outcome, costs: bool) -> list[str]:
    """The metric, its difference to full data, the seeds, the saving; the time, the overhead, its share of the time.

    The time of a method that did not take turns with full data is left out: it cannot be compared.
    """
    runs, change = outcome.compared, outcome.difference
    difference = change.describe("+.2f") if change is not None and len(change.values) > 1 else ""
    cells = [spread(outcome.values, ".2f"), difference, str(len(runs)), f"{100 * outcome.saved:.1f}"]
    if costs:
        overhead = [run.overhead + run.preparation for run in runs]
        share = sum(overhead) / sum(run.seconds for run in runs)
        time = "-" if outcome.pairs and outcome.realised is None else f"{mean(run.seconds for run in runs):.1f}"
        cells += [time, _format_seconds(mean(overhead)), percent(share)]
    return cells


def _format_seconds(seconds: float) -> str:
    """Seconds with at least two digits.

    >>> _format_seconds(0.0123), _format_seconds(123.4)
    ('0.012', '123')
    """
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def make_breakable(name: str) -> str:
    """Let a method's name wrap after a colon or comma.

    >>> make_breakable("infobatch-adaptive:noise=0.2,steps=stay")
    'infobatch-adaptive: noise=0.2, steps=stay'
    """
    return re.sub(r"[:,](?=\S)", r"\g<0> ", name)
