"""The command ``infobatch advise``: what each method would save, forecast from a saved state."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .. import checkpoint
from ..forecast import Forecast, forecast_from_state
from ..report.numbers import percent
from ..report.picture import FORMATS
from .shared import check_path

DEPTH = 4  # levels of a checkpoint that are searched for a state


def advise(
    state: Annotated[
        Path, typer.Argument(help="A checkpoint with what train_data.state_dict() returned, after an epoch or two.")
    ],
    epochs: Annotated[int, typer.Option(min=1, help="How many epochs the whole run will have.")],
    samples: Annotated[
        int | None, typer.Option(min=1, help="How many samples your data has: checks that the state is of your data.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Draw the savings against the noise to this file (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Forecast what each method would save over a whole run, and at which noise, from a run's first scores."""
    if out is not None:
        check_path("--out", out, FORMATS)
    try:
        content = _read(state)
        if samples is not None and content["size"] != samples:
            raise ValueError(
                f"{state} is the state of a data set of {content['size']:,} samples, and --samples says {samples:,}: "
                "give the state of a run on this data"
            )
        forecast = forecast_from_state(content, epochs)
    except (OSError, RuntimeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    console = Console()
    console.print(as_table(forecast))
    console.print(forecast.advice, highlight=False, soft_wrap=True)
    if out is not None:
        forecast.draw(out)
        typer.echo(f"Picture: {out}")


def as_table(forecast: Forecast) -> Table:
    """The forecast as a table for the terminal."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method")
    for head in ("left out now", "saved in all", "noise"):
        table.add_column(head, justify="right")
    for row in forecast.rows:
        table.add_row(row.label, percent(row.share), percent(row.saving), f"{row.noise:.2f}")
    table.caption, table.caption_justify = forecast.about, "left"
    return table


def _read(path: Path) -> dict[str, Any]:
    """Read the state of an InfoBatch from a checkpoint; there must be only one."""
    loaded = checkpoint.load(path)
    states = list(_find_states(loaded, DEPTH))
    if len(states) != 1:
        keys = ", ".join(map(repr, list(loaded)[:8])) or "nothing"
        raise ValueError(
            f"{path} must hold one state of an InfoBatch, got {len(states)}; its keys are {keys}: save what "
            "train_data.state_dict() returns, alone or in a checkpoint"
        )
    return states[0]


def _find_states(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    if not isinstance(value, dict):
        return
    if {"version", "size", "scores", "plan"} <= set(value):
        yield value
    elif depth:
        for part in value.values():
            yield from _find_states(part, depth - 1)
