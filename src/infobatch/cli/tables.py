"""The command ``infobatch table``: the paper's figures beside our measured ones."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..core.checks import check_choice
from ..lab.paper.figures import draw as draw_figure
from ..lab.paper.operations import SIZES, measure
from ..lab.paper.tables import TABLES, describe
from ..report.progress import TimeLeft
from ..report.table import compare_with_paper, timings
from .shared import Folder, Out, Preset, Settings, split_methods, train_all

OPERATIONS = "11"  # the table that trains nothing


def table(
    number: Annotated[str, typer.Argument(help=f"One of: {', '.join([*TABLES, OPERATIONS])}.")],
    methods: Annotated[
        str | None,
        typer.Option(help="Train and show only these methods of the table, separated by commas.", show_default="all"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from 0 on.")] = 3,
    preset: Preset = "small",
    settings: Settings = None,
    data: Folder = None,
    out: Out = Path("runs"),
    train: Annotated[bool, typer.Option(help="Train the missing runs, or show only the finished ones.")] = True,
) -> None:
    """Train what a table or figure of the paper compares, and print the paper's numbers beside the measured ones."""
    if number == OPERATIONS:
        rows = [(timing.operation, timing.paper, timing.measured) for timing in measure()]
        Console().print(timings("Table 11: operations on scores, the fastest of 5", list(SIZES), rows))
        return
    try:
        check_choice("table", number, [*TABLES, OPERATIONS])
        chosen = TABLES[number] if methods is None else TABLES[number].only(split_methods(methods))
        comparisons = chosen.comparisons(range(seeds), preset, settings or [], out)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if train:
        left = TimeLeft(sum(comparison.epochs_ahead() for comparison in comparisons))
        for comparison in comparisons:
            train_all(comparison, data, left)
    trained = "; ".join(dict.fromkeys(describe(comparison.recipe) for comparison in comparisons)) or "nothing"
    caption = f"Table {number}" if number[0].isdigit() else number.replace("-", " ").capitalize()
    caption += f": {chosen.caption}\nmeasured: preset {preset}, {trained}; paper: {chosen.paper_setup}"
    Console().print(compare_with_paper(caption, chosen.lines(comparisons, preset, out), chosen.costs))
    picture = draw_figure(number, comparisons, out)
    for line in filter(None, [picture.said, *(f"Written: {path}" for path in picture.paths)]):
        typer.echo(line)
    if seeds == 1:
        typer.echo("One seed is not a result: --seeds 3 or more gives differences with intervals.")
