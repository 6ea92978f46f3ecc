"""The command ``infobatch list``."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .. import methods, static
from ..core.checks import check_choice
from ..lab import recipes
from ..lab.data import catalogue
from ..lab.data.source import USUAL


def list_(what: Annotated[str, typer.Argument(help="One of: recipes, methods, static, datasets.")]) -> None:
    """List the recipes, methods, static methods or data sets."""
    shelves = {
        "recipes": lambda: [f"{name}: {', '.join(presets)}" for name, presets in recipes.RECIPES.items()],
        "methods": lambda: [f"{name}: {methods.info(name).summary}" for name in methods.list()],
        "static": lambda: [f"{name}: {static.info(name).summary}" for name in static.list()],
    }
    try:
        check_choice("list", what, [*shelves, "datasets"])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if what == "datasets":
        Console().print(data_sets())
    else:
        typer.echo("\n".join(shelves[what]()))


def data_sets() -> Table:
    """Every data set, with the files it needs in a folder and where to get them."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    usual = ", ".join(str(place).replace(str(Path.home()), "~", 1) for place in USUAL)
    table.caption = f"Searched in --data FOLDER or, without it, in {usual}."
    table.caption_justify = "left"
    table.add_column("name", no_wrap=True)
    for head in ("holds", "needs, in the folder", "get it from"):
        table.add_column(head, overflow="fold")
    for entry in catalogue.entries():
        table.add_row(*entry)
    return table
