"""The commands that train a recipe: ``infobatch train`` and ``infobatch compare``."""

from pathlib import Path
from typing import Annotated

import typer

from .shared import Folder, Margin, Out, Preset, Settings, Sweep, run, split_methods, tell


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (infobatch list recipes) or a .json file.")],
    method: Annotated[str, typer.Option(help="NAME or NAME:OPTION=VALUE,…")] = "infobatch",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    preset: Preset = "small",
    settings: Settings = None,
    data: Folder = None,
    out: Out = Path("runs"),
) -> None:
    """Train one model by a recipe; an interrupted run goes on where it was."""
    [record] = run(recipe, preset, settings, Sweep([method], [seed]), data, out, judged=False).records()
    typer.echo(
        f"{record.metric} {record.value:.4g} after {record.samples:,} samples, {record.seconds:.1f} s; "
        f"saved {record.saving:.1%} of full training"
    )


def compare(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (infobatch list recipes) or a .json file.")],
    methods: Annotated[str, typer.Option(help="Methods to compare, by commas.")] = "full,infobatch",
    seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    margin: Margin = None,
    preset: Preset = "small",
    settings: Settings = None,
    data: Folder = None,
    out: Out = Path("runs"),
) -> None:
    """Train a recipe with several methods and the same seeds, in turn, and compare them with full data.

    The margin is fixed with the first run of a folder, so that it is not chosen by what comes out.
    """
    plan = Sweep(split_methods(methods), range(seed, seed + seeds))
    tell(run(recipe, preset, settings, plan, data, out, margin).results())
