"""The table of a comparison: what a method saved and what it cost, over one or several paired seeds."""

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
    """Print the table of a comparison, what else was measured, and what a reader must know."""
    console.print(verdicts(results))
    if results.further:
        console.print(further(results))
    for note in results.notes():
        console.print(note.text, highlight=False, soft_wrap=True)


def verdicts(results: Results) -> Table:
    """Every method against full data, over the seeds they share: what it saved, the difference, and what that says.

    It fits a terminal of 80 columns: the metric stands below the method's name, the measured speed-up below the
    saving; long names go on in the next line. The noise factor has a column where records have it.
    """
    first, digits = results.runs[0], results.digits
    noisy = any(outcome.noise is not None for outcome in results.methods)
    trained = first.recipe.get("dataset", first.recipe.get("function", ""))
    heading = f"{first.metric}, {trained}, margin {results.margin:g}"
    table = Table(title=heading, box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(f"\n{first.metric} (seeds)", overflow="fold")
    for head in ("difference (95 %)", "saved\nfaster", *["noise"] * noisy):
        table.add_column(head, justify="right", no_wrap=True)
    # Longer differences leave the verdict less room: 19 columns stay for a name, as many as infobatch-adaptive: takes.
    table.add_column("verdict", overflow="fold", max_width=max(27 - 3 * digits, 9))
    if noisy:
        table.caption, table.caption_justify = "noise: as if batches were so many times smaller", "left"
    for outcome in results.methods:
        own = f"{spread(outcome.values, f'.{digits}f')} ({len(outcome.values)})"
        change = "" if outcome.difference is None else outcome.difference.told(f"+.{digits}f")
        faster = "" if outcome.realised is None else f"\n{outcome.realised:.2f} ×"
        noise = ["" if outcome.noise is None else f"{outcome.noise:.2f}"] if noisy else []
        name = Text.assemble(breakable(outcome.name), (f"\n{own}", "dim"))
        saved = Text.assemble(percent(outcome.saved), (faster, "dim"))
        table.add_row(name, change, saved, *noise, outcome.verdict(results.margin))
    return table


def further(results: Results) -> Table:
    """What else was measured after training, and its difference to full data, over the seeds that methods share."""
    table = Table(title="Also measured; a positive difference is better", box=box.SIMPLE_HEAD)
    for number, head in enumerate(("", "", "seeds", "mean ± sd", "difference (95 %)")):
        table.add_column(head, justify="right" if number > 1 else "left", overflow="fold")
    for judged in results.further:
        for outcome in judged:
            values, change = outcome.values, "" if outcome.difference is None else outcome.difference.told("+.3g")
            metric = outcome.runs[0].metric
            table.add_row(metric, breakable(outcome.name), str(len(values)), spread(values, ".4g"), change)
    return table


class Line(NamedTuple):
    """A row of a table of the paper: what was measured, and what the paper reports; ``note`` says why nothing was."""

    label: str
    outcome: Outcome | None
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
        found = _measured(line.outcome, costs) if line.outcome else [line.note or "-", "", "0", "-", "-", "-", "-"]
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


def _measured(outcome: Outcome, costs: bool) -> list[str]:
    """The metric, its difference to full data, the seeds, the saving; the time, the overhead, and that as a share.

    The time of a method that did not take turns with full data cannot be compared, and is left out.
    """
    runs, change = outcome.compared, outcome.difference
    told = change.told("+.2f") if change is not None and len(change.values) > 1 else ""
    found = [spread(outcome.values, ".2f"), told, str(len(runs)), f"{100 * outcome.saved:.1f}"]
    if costs:
        overhead = [run.overhead + run.preparation for run in runs]
        share = sum(overhead) / sum(run.seconds for run in runs)
        time = "-" if outcome.pairs and outcome.realised is None else f"{mean(run.seconds for run in runs):.1f}"
        found += [time, _seconds(mean(overhead)), percent(share)]
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
