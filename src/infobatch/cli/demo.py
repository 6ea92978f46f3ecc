"""The command ``infobatch demo``."""

from pathlib import Path
from typing import Annotated

import typer

from .reports import write_report
from .shared import Out, Settings, Sweep, run, split_methods, tell

METHODS = "full,full:cost=0.67,infobatch,infobatch-adaptive:steps=stay"


def demo(
    methods: Annotated[str, typer.Option(help="Methods to compare, by commas.")] = METHODS,
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 5,
    settings: Settings = None,
    out: Out = Path("infobatch-demo"),
) -> None:
    """Compare methods on pictures that come with the package: a table, and a page to look at."""
    comparison = run("demo", "small", settings, Sweep(split_methods(methods), range(seeds)), None, out, margin=0.5)
    results = comparison.results()
    write_report(results, [comparison.folder], out / "report.html")
    tell(results)
    typer.echo(f"Page: {out / 'report.html'}")
