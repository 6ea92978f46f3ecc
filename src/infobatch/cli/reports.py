"""The commands that show finished runs: ``infobatch report`` and ``infobatch front``."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from .. import checkpoint
from ..lab.comparison import margin_of, pictures, read, read_results
from ..report import export, fronts, page
from ..report.numbers import percent
from ..report.results import Results
from ..run_page import find_state, read_table, write_page
from .shared import Margin, check_path, tell


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders with runs, or one file with the state of a run.")],
    margin: Margin = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a page to this file (.html), with the table and the curves (.csv, .png, .svg) beside it."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="For a state: a file with the samples' labels, one per line (.txt) or as an array (.npy)."),
    ] = None,
) -> None:
    """Compare the finished runs in folders: prints a table and, with --out, writes a page.

    For a file with the state of a run: prints what was saved, and writes a page about its samples.
    """
    if any(path.is_file() for path in runs):
        report_state(runs, out, labels)
        return
    if out is not None:
        check_path("--out", out, (".html",))
    if labels is not None:
        raise typer.BadParameter(
            "labels are for the page of one state: give its file instead of folders", param_hint="--labels"
        )
    try:
        results = read_results(runs, margin)
        if out is not None:
            write_report(results, runs, out)
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="RUNS") from None
    tell(results)
    if out is not None:
        typer.echo(f"Page: {out}")


def report_state(files: list[Path], out: Path | None, labels: Path | None) -> None:
    """Print what a run saved, and write its page: to ``out``, or beside the state under the state's name."""
    if len(files) > 1:
        raise typer.BadParameter("give one file with the state of a run, or folders with runs", param_hint="RUNS")
    path = files[0].with_suffix(".html") if out is None else out
    if path.suffix.lower() != ".html":
        raise typer.BadParameter(f"{path} must end in .html.", param_hint="--out")
    try:
        state = find_state(checkpoint.load(files[0]))
        label_values = None if labels is None else read_labels(labels)
        write_page(state, path, labels=label_values, title=f"infobatch: {files[0].stem}")
        table = read_table(state)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="RUNS") from None
    kept, total = (sum(row[k] for row in state["history"]) for k in (2, 1))
    if total:
        typer.echo(f"{len(state['history'])} epochs, saved {percent(1 - kept / total)} of the samples")
    if table.trajectories is None:
        typer.echo("No history was kept: InfoBatch(..., history=True) shows what every sample did.")
    typer.echo(f"Page: {path}")


def read_labels(path: Path) -> NDArray[Any]:
    """Read labels from a file: an array (.npy), or one label per line."""
    if path.suffix == ".npy":
        return np.asarray(np.load(path, allow_pickle=False))
    return np.array(path.read_text(encoding="utf-8").splitlines())


def write_report(results: Results, folders: list[Path], out: Path) -> None:
    """Write a page and, beside it under the same name, the table, the curves and the picture."""
    page.write(results, out, pictures=pictures(folders))
    export.table(results, out.with_suffix(".csv"))
    export.epochs(results, out.with_name(f"{out.stem}-epochs.csv"))
    for ending in (".png", ".svg"):
        export.figure(results, out.with_suffix(ending))


def front(
    folders: Annotated[list[Path], typer.Argument(help="Folders, each with the runs of one comparison.")],
    margin: Margin = None,
    out: Annotated[Path | None, typer.Option(help="Draw the fronts to this file (.png, .svg).")] = None,
    noise: Annotated[
        Path | None, typer.Option(help="Draw the difference to full data against the noise to this file (.png, .svg).")
    ] = None,
    table: Annotated[Path | None, typer.Option(help="Write the table to this file too (.md).")] = None,
    titles: Annotated[
        str | None, typer.Option(help="A title per folder, separated by commas.", show_default="from the recipes")
    ] = None,
) -> None:
    """Show what methods lose against what they save, in several comparisons: a Markdown table and pictures."""
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
        arranged = fronts.arrange(comparisons, None if titles is None else titles.split(","))
        if out is not None:
            fronts.draw(arranged, out, within)
        if noise is not None:
            fronts.draw_noise(arranged, noise)
    except (FileNotFoundError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    text = fronts.markdown(arranged, within)
    typer.echo(text, nl=False)
    if table is not None:
        table.write_text(text, encoding="utf-8")
