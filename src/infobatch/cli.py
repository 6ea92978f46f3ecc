"""The command ``infobatch``. It needs the extra ``lab``, which is imported only when the command runs."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    from typer import Typer

    from .report import Pair

EXTRA = ("matplotlib", "rich", "typer")
# Epochs of a run whose times per sample differ by more than this factor make its time worth a warning.
UNEVEN = 1.5


def main() -> None:
    """Run the command, or say in one line what to install for it."""
    try:
        app = build()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        sys.exit(f'infobatch: the command needs {missing}, which is missing: pip install "infobatch[lab]"')
    app()


def build() -> "Typer":
    """The application with its commands."""
    import typer
    from rich.console import Console

    from . import __version__
    from .lab import demo as lab
    from .lab import fashion
    from .report.picture import FORMATS, draw
    from .report.progress import shown
    from .report.table import comparison

    app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)

    def version(wanted: bool) -> None:
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

    @app.command()
    def demo(
        method: Annotated[str, typer.Option(help="The method to compare with full data.")] = "infobatch",
        ratio: Annotated[
            float | None,
            typer.Option(help="Share to prune, of the samples that may be pruned.", show_default="the method's own"),
        ] = None,
        epochs: Annotated[int, typer.Option(min=1, help="Epochs of each run.")] = lab.Recipe.epochs,
        data: Annotated[
            Path | None,
            typer.Option(
                help="Folder with the four original Fashion-MNIST files: all 60,000 images.",
                show_default="10,000 images that come with the package",
            ),
        ] = None,
        samples: Annotated[
            int | None, typer.Option(min=1, help="Training images to use, the first ones.", show_default="all")
        ] = None,
        seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
        seeds: Annotated[int, typer.Option(min=1, help="How many seeds to repeat it with.")] = 1,
        out: Annotated[Path, typer.Option(help="Where to put the picture.")] = Path("infobatch-demo.png"),
        json: Annotated[
            Path | None, typer.Option(help="Append each run's record to this file, as a line of JSON.")
        ] = None,
    ) -> None:
        """Train a small CNN on Fashion-MNIST with full data and with a method, and compare the two."""
        if method == "full":
            raise typer.BadParameter("it is what the others are compared with.", param_hint="--method full")
        if out.suffix.lower() not in FORMATS:
            raise typer.BadParameter(f"{out} must end in one of {', '.join(FORMATS)}.", param_hint="--out")
        for option, path in (("--out", out), ("--json", json)):
            if path is not None and (problem := unwritable(path)):
                raise typer.BadParameter(problem, param_hint=option)
        try:
            images = fashion.load() if data is None else fashion.load_original(data)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(str(error), param_hint="--data") from None
        if samples is not None and samples > len(images.train):
            raise typer.BadParameter(f"there are {len(images.train):,} training images.", param_hint="--samples")
        images = fashion.Fashion(images.train.head(samples or len(images.train)), images.test)
        recipe = lab.Recipe(method=method, epochs=epochs, ratio=ratio)
        console = Console()
        pairs: list[Pair] = []
        with shown(console) as watch:
            for number in range(seed, seed + seeds):
                try:
                    runs = lab.prepare(recipe, number, images)
                except (TypeError, ValueError) as error:  # the library checks its arguments and says what is wrong
                    raise typer.BadParameter(str(error)) from None
                pairs.append(lab.train(*runs, watch))
                if json is not None:
                    append(json, pairs[-1])
        draw(pairs, out)
        console.print(comparison(pairs))
        console.print(*remarks(pairs), f"Picture: {out}", sep="\n", highlight=False, soft_wrap=True)

    return app


def unwritable(path: Path) -> str | None:
    """Why a file cannot be written at ``path``; None if it can. Asked before training, not after it."""
    if path.is_dir():
        return f"{path} is a folder; name a file."
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist; create it first."
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return f"{path} cannot be written."
    return None


def append(path: Path, pair: "Pair") -> None:
    """Add both records to the file at once, so that what has been measured survives an interruption."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(run.to_json() + "\n" for run in (pair.full, pair.pruned))


def remarks(pairs: "Sequence[Pair]") -> list[str]:
    """What a reader of the table should know."""
    notes = []
    if len(pairs) == 1:
        notes.append("One seed is a demonstration, not a result: --seeds 5 repeats it and gives paired differences.")
    uneven = max(run.unevenness for pair in pairs for run in (pair.full, pair.pruned))
    if uneven > UNEVEN:
        notes.append(
            f"The machine was busy: per sample, the slowest epoch of a run took {uneven:.1f} times as long as the "
            "fastest. Do not trust the times."
        )
    return notes
