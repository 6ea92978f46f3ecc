"""The commands that train: ``infobatch train`` (a recipe), ``infobatch compare`` (a recipe or your own function)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..lab.function import OwnFunction
from ..lab.method import MethodSpec
from ..lab.own import OwnComparison
from ..lab.own import train_all as train_own
from .shared import Folder, Margin, Out, Preset, Settings, Sweep, run, split_methods, tell


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (infobatch list recipes) or a .json file.")],
    method: Annotated[str, typer.Option(help="NAME or NAME:OPTION=VALUE,… of the method.")] = "infobatch",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    preset: Preset = "small",
    settings: Settings = None,
    data: Folder = None,
    out: Out = Path("runs"),
) -> None:
    """Train one model by a recipe; an interrupted run continues where it stopped."""
    [record] = run(recipe, preset, settings, Sweep([method], [seed]), data, out, judged=False).records()
    typer.echo(
        f"{record.metric} {record.value:.4g} after {record.samples:,} samples, {record.seconds:.1f} s; "
        f"saved {record.saving:.1%} of full training"
    )


def compare(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe's name (infobatch list recipes), a .json file, or a function of your own: my_train.py:train."
        ),
    ],
    methods: Annotated[str, typer.Option(help="Methods to compare, separated by commas.")] = "full,infobatch",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to train.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    margin: Margin = None,
    metric: Annotated[
        str | None, typer.Option(help="Own function: which of its numbers to judge by, if it returns several.")
    ] = None,
    lower_is_better: Annotated[
        bool,
        typer.Option(
            "--lower-is-better/--higher-is-better", help="Own function: which direction of the metric is better."
        ),
    ] = False,
    lower: Annotated[
        str, typer.Option(help="Own function: the other numbers for which lower is better, separated by commas.")
    ] = "",
    preset: Preset = "small",
    settings: Settings = None,
    data: Folder = None,
    out: Out = Path("runs"),
) -> None:
    """Train a recipe or your own function with several methods and the same seeds, and compare with full data.

    The margin is fixed with the first run of a folder, so that results cannot influence it. The default is 0.5 points
    for a recipe and 0.5 % of the first value on full data for your own function.
    """
    plan = Sweep(split_methods(methods), range(seed, seed + seeds))
    if ":" not in recipe and not recipe.endswith(".py"):
        if metric is not None or lower_is_better or lower:
            raise typer.BadParameter(
                "--metric, --lower-is-better and --lower are for your own function: leave them out for a recipe"
            )
        tell(run(recipe, preset, settings, plan, data, out, margin).results())
        return
    if settings or data is not None or preset != "small":
        raise typer.BadParameter(
            "--set, --data and --preset are for recipes: leave them out, a function has its own settings"
        )
    try:
        function = OwnFunction.parse(recipe)
        specs = [MethodSpec.parse(method) for method in plan.methods]
        others = [name for name in lower.split(",") if name]
        folder = out / function.folder
        _compare_own(OwnComparison(function, specs, plan.seeds, folder, margin, metric, not lower_is_better, others))
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None


def _compare_own(comparison: OwnComparison) -> None:
    console = Console()
    try:
        failures = train_own(comparison, console)
    except KeyboardInterrupt:
        typer.echo("Stopped. Run the same command to continue; the interrupted run starts again.", err=True)
        raise typer.Exit(130) from None
    except RuntimeError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None
    tell(comparison.results())
    console.print(f"Runs: {comparison.folder}", highlight=False, soft_wrap=True)
    if failures:
        lines: Sequence[str] = [f"{len(failures)} runs failed; the same command tries them again:", *map(str, failures)]
        typer.echo("\n  ".join(lines), err=True)
        raise typer.Exit(1)
