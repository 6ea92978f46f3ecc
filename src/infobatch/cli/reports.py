"""The commands that show finished runs: ``infobatch report`` and ``infobatch front``."""

from pathlib import Path
from typing import Annotated

import typer

from ..lab.comparison import margin_of, pictures, read, read_results
from ..report import export, fronts, page
from ..report.results import Results
from .shared import Margin, check_path, tell


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders with runs.")],
    margin: Margin = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write a page here (.html), with the table and the curves (.csv, .png, .svg) beside it."),
    ] = None,
) -> None:
    """Compare the finished runs in some folders: a table and, with --out, a page to look at."""
    if out is not None:
        check_path("--out", out, (".html",))
    try:
        results = read_results(runs, margin)
        if out is not None:
            write_report(results, runs, out)
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="RUNS") from None
    tell(results)
    if out is not None:
        typer.echo(f"Page: {out}")


def write_report(results: Results, folders: list[Path], out: Path) -> None:
    """A page, and beside it the table, the curves and the picture, named after it."""
    page.write(results, out, pictures=pictures(folders))
    export.table(results, out.with_suffix(".csv"))
    export.epochs(results, out.with_name(f"{out.stem}-epochs.csv"))
    for ending in (".png", ".svg"):
        export.figure(results, out.with_suffix(ending))


def front(
    folders: Annotated[list[Path], typer.Argument(help="Folders with the runs of one comparison each.")],
    margin: Margin = None,
    out: Annotated[Path | None, typer.Option(help="Draw the fronts here (.png, .svg).")] = None,
    noise: Annotated[Path | None, typer.Option(help="Draw noise against loss here (.png, .svg).")] = None,
    table: Annotated[Path | None, typer.Option(help="Write the table here too (.md).")] = None,
    titles: Annotated[
        str | None, typer.Option(help="A title per folder, by commas.", show_default="from the recipes")
    ] = None,
) -> None:
    """What methods lose against what they save, in several comparisons: a Markdown table and pictures."""
    for option, path, endings in (
        ("--out", out, fronts.FORMATS),
        ("--noise", noise, fronts.FORMATS),
        ("--table", table, (".md",)),
    ):
        if path is not None:
            check_path(option, path, endings)
    try:
        within, _ = margin_of(folders, margin)
        comparisons = [list(read([folder])) for folder in folders]
        found = fronts.arrange(comparisons, None if titles is None else titles.split(","))
        if out is not None:
            fronts.draw(found, out, within)
        if noise is not None:
            fronts.draw_noise(found, noise)
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    text = fronts.markdown(found, within)
    typer.echo(text, nl=False)
    if table is not None:
        table.write_text(text, encoding="utf-8")
