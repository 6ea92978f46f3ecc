"""The application: its commands, in the order of its help."""

from typing import Annotated

import typer

from .. import __version__
from .advise import advise
from .demo import demo
from .lists import list_
from .reports import front, report
from .runs import compare, train
from .select import select
from .tables import table

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"infobatch {__version__}")
        raise typer.Exit


@app.callback()
def infobatch(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Train on fewer samples, reach the same model."""


for command in (demo, train, compare, advise, report, front, table, select):
    app.command()(command)
app.command("list")(list_)
