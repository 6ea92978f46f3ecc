"""The command ``infobatch advise``: from a saved state, what each method would save."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .. import checkpoint
from ..forecast import Forecast, of_state
from ..report.numbers import percent
from ..report.picture import FORMATS
from .shared import check_path

DEPTH = 4  # of a checkpoint, in which a state is looked for


def advise(
    state: Annotated[
        Path, typer.Argument(help="A checkpoint with what train_data.state_dict() returned, after an epoch or two.")
    ],
    epochs: Annotated[int, typer.Option(min=1, help="How many epochs the whole run will have.")],
    samples: Annotated[
        int | None, typer.Option(min=1, help="How many samples your data has, to be sure that the state is of it.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Draw the savings over the noise here (.png, .svg, .pdf).")] = None,
) -> None:
    """Say what each method would save over a whole run, and at which noise, by a run's first scores."""
    if out is not None:
        check_path("--out", out, FORMATS)
    try:
        found = _read(state)
        if samples is not None and found["size"] != samples:
            raise ValueError(
                f"{state} is the state of a data set of {found['size']:,} samples, and --samples says {samples:,}: "
                "give the state of a run on this data"
            )
        forecast = of_state(found, epochs)
    except (OSError, RuntimeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    console = Console()
    console.print(as_table(forecast))
    console.print(forecast.advice, highlight=False, soft_wrap=True)
    if out is not None:
        forecast.draw(out)
        typer.echo(f"Picture: {out}")


def as_table(forecast: Forecast) -> Table:
    """The forecast for a terminal."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method")
    for head in ("left out now", "saved in all", "noise"):
        table.add_column(head, justify="right")
    for row in forecast.rows:
        table.add_row(row.label, percent(row.share), percent(row.saving), f"{row.noise:.2f}")
    table.caption, table.caption_justify = forecast.about, "left"
    return table


def _read(path: Path) -> dict[str, Any]:
    """The one state of an InfoBatch in a checkpoint."""
    loaded = checkpoint.load(path)
    states = list(_states(loaded, DEPTH))
    if len(states) != 1:
        keys = ", ".join(map(repr, list(loaded)[:8])) or "nothing"
        raise ValueError(
            f"{path} must hold one state of an InfoBatch, as train_data.state_dict() returns it, alone or in a "
            f"checkpoint, got {len(states)} of them: it has {keys}"
        )
    return states[0]


def _states(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    if not isinstance(value, dict):
        return
    if {"version", "size", "scores", "plan"} <= set(value):
        yield value
    elif depth:
        for part in value.values():
            yield from _states(part, depth - 1)
