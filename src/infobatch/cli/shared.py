"""The parts that several commands share: options, checks, and how a comparison is run."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from ..lab import recipes
from ..lab.comparison import Comparison
from ..lab.method import MethodSpec
from ..lab.runs import margin_of
from ..report import table
from ..report.progress import TimeLeft, show_progress
from ..report.results import Results

Preset = Annotated[str, typer.Option(help="small (two CPU cores, minutes) or paper (the paper's set-up).")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Change the recipe: KEY=VALUE, as often as needed.")]
Folder = Annotated[Path | None, typer.Option("--data", help="Folder with the data set.", show_default="usual places")]
Out = Annotated[Path, typer.Option(help="Folder for the runs; finished runs there are not repeated.")]
Margin = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="How much worse still counts as lossless, in the unit of the metric.",
        show_default="the margin of the first run, else 0.5",
    ),
]


class Sweep(NamedTuple):
    """The methods and the seeds of a comparison."""

    methods: Sequence[str]
    seeds: Sequence[int]


def run(
    recipe: str,
    preset: str,
    settings: list[str] | None,
    plan: Sweep,
    data: Path | None,
    out: Path,
    margin: float | None = None,
    judged: bool = True,
) -> Comparison:
    """Train the missing runs and show the progress; if the runs are ``judged``, their margin is fixed first."""
    folder = out / Path(recipe).stem
    try:
        margin = margin_of([folder], margin)[0] if judged else None
        chosen = recipes.get(recipe, preset).changed(settings or [])
        specs = [MethodSpec.parse(method) for method in plan.methods]
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    return train_all(Comparison(chosen, specs, plan.seeds, folder, margin), data)


def train_all(comparison: Comparison, data: Path | None, left: TimeLeft | None = None) -> Comparison:
    """Train the missing runs of a comparison, and show how long they will take."""
    try:
        task = comparison.recipe.create_task(data)
        with show_progress(Console(), left or TimeLeft(comparison.epochs_ahead())) as watch:
            comparison.run(task, watch)
    except (FileNotFoundError, TypeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    except KeyboardInterrupt:
        typer.echo("Stopped. Run the same command to continue after the last finished epoch.", err=True)
        raise typer.Exit(130) from None
    return comparison


def tell(results: Results) -> None:
    """Print the table of a comparison, its further measures and its notes."""
    table.tell(results, Console())


def check_path(option: str, path: Path, endings: Sequence[str] = ()) -> None:
    """Make the folder of an output file; a file that cannot be written is refused before the work starts."""
    problem = None
    if endings and path.suffix.lower() not in endings:
        problem = f"{path} must end in {'one of ' * (len(endings) > 1)}{', '.join(endings)}."
    elif path.is_dir():
        problem = f"{path} is a folder; name a file."
    else:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"the folder {path.parent} cannot be made: {error.strerror}."
        else:
            if not os.access(path if path.exists() else path.parent, os.W_OK):
                problem = f"{path} cannot be written."
    if problem:
        raise typer.BadParameter(problem, param_hint=option)


def split_methods(text: str) -> list[str]:
    """Split a list of methods at its commas, but not at those between the options of a method.

    >>> split_methods("full,random:ratio=0.3,rescale=true,infobatch")
    ['full', 'random:ratio=0.3,rescale=true', 'infobatch']
    """
    methods: list[str] = []
    for part in text.split(","):
        if "=" in part and ":" not in part and methods:
            methods[-1] += f",{part}"
        else:
            methods.append(part)
    return methods
