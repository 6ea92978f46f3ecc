"""The command ``infobatch``. It needs the extra ``lab``, which is imported only when the command runs."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

if TYPE_CHECKING:
    from typer import Typer

    from .report import Pair, RunRecord

EXTRA = ("matplotlib", "rich", "typer")
OPERATIONS = "11"  # the table that trains nothing
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

    from . import __version__, methods, static
    from .lab import datasets, fashion, recipes, scenes
    from .lab import demo as lab
    from .lab.comparison import Comparison, pictures, read
    from .lab.method import MethodSpec
    from .lab.recipe import check_choice
    from .lab.table_figures import draw as draw_figure
    from .lab.table_operations import SIZES, measure
    from .lab.tables import TABLES, describe
    from .report import export, fronts, page
    from .report.picture import FORMATS, draw
    from .report.progress import TimeLeft, shown
    from .report.table import beside_the_paper, further, timings, verdicts
    from .report.table import comparison as side_by_side

    app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)

    def version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"infobatch {__version__}")
            raise typer.Exit

    def check_path(option: str, path: Path, endings: Sequence[str] = ()) -> None:
        """Say what is wrong with an output file, before the work and not after it."""
        problem = unwritable(path)
        if endings and path.suffix.lower() not in endings:
            problem = f"{path} must end in {'one of ' * (len(endings) > 1)}{', '.join(endings)}."
        if problem:
            raise typer.BadParameter(problem, param_hint=option)

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
        epochs: Annotated[int, typer.Option(min=1, help="Epochs of each run.")] = lab.RECIPE.epochs,
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
        check_path("--out", out, FORMATS)
        if json is not None:
            check_path("--json", json)
        try:
            images = fashion.load() if data is None else fashion.load_original(data)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(str(error), param_hint="--data") from None
        if samples is not None and samples > len(images.train):
            raise typer.BadParameter(f"there are {len(images.train):,} training images.", param_hint="--samples")
        images = fashion.Fashion(images.train.head(samples or len(images.train)), images.test)
        recipe = replace(lab.RECIPE, epochs=epochs)
        console = Console()
        pairs: list[Pair] = []
        with shown(console) as watch:
            for number in range(seed, seed + seeds):
                try:
                    options = {} if ratio is None else {"ratio": ratio}
                    runs = lab.prepare(recipe, MethodSpec(method, method, options), number, images)
                except (TypeError, ValueError) as error:  # the library checks its arguments and says what is wrong
                    raise typer.BadParameter(str(error)) from None
                pairs.append(lab.train(*runs, watch))
                if json is not None:
                    append(json, pairs[-1])
        draw(pairs, out)
        console.print(side_by_side(pairs))
        console.print(*remarks(pairs), f"Picture: {out}", sep="\n", highlight=False, soft_wrap=True)

    Preset = Annotated[str, typer.Option(help="small (two CPU cores, minutes) or paper (the paper's set-up).")]
    Settings = Annotated[
        list[str] | None, typer.Option("--set", help="Change the recipe: KEY=VALUE, as often as needed.")
    ]
    Folder = Annotated[
        Path | None, typer.Option("--data", help="Folder with the data set.", show_default="usual places")
    ]
    Out = Annotated[Path, typer.Option(help="Folder for the runs; what is finished there is not repeated.")]
    Margin = Annotated[float, typer.Option(min=0, help="How much worse counts as lossless, in the metric's points.")]

    def run(
        recipe: str, preset: str, settings: list[str] | None, plan: Sweep, data: Path | None, out: Path
    ) -> Comparison:
        """Train what is missing, and say how far it is."""
        try:
            chosen = recipes.get(recipe, preset).changed(settings or [])
            specs = [MethodSpec.parse(method) for method in plan.methods]
        except (OSError, ValueError) as error:
            raise typer.BadParameter(str(error)) from None
        return train_all(Comparison(chosen, specs, plan.seeds, out / Path(recipe).stem), data)

    def train_all(comparison: Comparison, data: Path | None, left: TimeLeft | None = None) -> Comparison:
        try:
            task = comparison.recipe.create_task(data)
            with shown(Console(), left or TimeLeft(comparison.epochs_ahead())) as watch:
                comparison.run(task, watch)
        except (FileNotFoundError, TypeError, ValueError) as error:
            raise typer.BadParameter(str(error)) from None
        except KeyboardInterrupt:
            typer.echo("Stopped. The same command goes on after the last finished epoch.", err=True)
            raise typer.Exit(130) from None
        return comparison

    def tell(records: "Sequence[RunRecord]", margin: float) -> None:
        Console().print(verdicts(records, margin))
        if any(record.further for record in records):
            Console().print(further(records))

    @app.command()
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
        [record] = run(recipe, preset, settings, Sweep([method], [seed]), data, out).records()
        typer.echo(
            f"{record.metric} {record.value:.4g} after {record.samples:,} samples, {record.seconds:.1f} s; "
            f"saved {record.saving:.1%} of full training"
        )

    @app.command()
    def compare(
        recipe: Annotated[str, typer.Argument(help="A recipe's name (infobatch list recipes) or a .json file.")],
        methods: Annotated[str, typer.Option(help="Methods to compare, by commas.")] = "full,infobatch",
        seeds: Annotated[int, typer.Option(min=1, help="How many.")] = 5,
        seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
        margin: Margin = 0.5,
        preset: Preset = "small",
        settings: Settings = None,
        data: Folder = None,
        out: Out = Path("runs"),
    ) -> None:
        """Train a recipe with several methods and the same seeds, in turn, and compare them with full data."""
        found = run(recipe, preset, settings, Sweep(split_methods(methods), range(seed, seed + seeds)), data, out)
        tell(found.records(), margin)

    @app.command()
    def report(
        runs: Annotated[list[Path], typer.Argument(help="Folders with runs.")],
        margin: Margin = 0.5,
        out: Annotated[
            Path | None,
            typer.Option(help="Write a page here (.html), with the figures (.png, .svg, .csv) beside it."),
        ] = None,
    ) -> None:
        """Compare the finished runs in some folders: a table and, with --out, a page to look at."""
        if out is not None:
            check_path("--out", out, (".html",))
        try:
            records = list(read(runs))
            if out is not None:
                page.write(records, out, margin=margin, pictures=pictures(runs), title=f"infobatch: {runs[0].name}")
                export.csv(records, out.with_suffix(".csv"))
                for ending in (".png", ".svg"):
                    export.figure(records, out.with_suffix(ending))
        except (FileNotFoundError, ValueError) as error:
            raise typer.BadParameter(str(error), param_hint="RUNS") from None
        tell(records, margin)
        if out is not None:
            typer.echo(f"Page: {out}")

    @app.command()
    def front(
        folders: Annotated[list[Path], typer.Argument(help="Folders with the runs of one comparison each.")],
        margin: Margin = 0.5,
        out: Annotated[Path | None, typer.Option(help="Draw the fronts here (.png, .svg).")] = None,
        noise: Annotated[Path | None, typer.Option(help="Draw noise against loss here (.png, .svg).")] = None,
        table: Annotated[Path | None, typer.Option(help="Write the table here too (.md).")] = None,
        titles: Annotated[
            str | None, typer.Option(help="A title per folder, by commas.", show_default="from the recipes")
        ] = None,
    ) -> None:
        """What methods lose against what they save, in several comparisons: a Markdown table and pictures."""
        for option, path, endings in (
            ("--out", out, fronts.FORMATS),
            ("--noise", noise, fronts.FORMATS),
            ("--table", table, (".md",)),
        ):
            if path is not None:
                check_path(option, path, endings)
        try:
            comparisons = [list(read([folder])) for folder in folders]
            found = fronts.arrange(comparisons, None if titles is None else titles.split(","))
            if out is not None:
                fronts.draw(found, out, margin)
            if noise is not None:
                fronts.draw_noise(found, noise)
        except (FileNotFoundError, ValueError) as error:
            raise typer.BadParameter(str(error)) from None
        text = fronts.markdown(found, margin)
        typer.echo(text, nl=False)
        if table is not None:
            table.write_text(text, encoding="utf-8")

    @app.command()
    def table(
        number: Annotated[str, typer.Argument(help=", ".join([*TABLES, OPERATIONS]))],
        methods: Annotated[
            str | None, typer.Option(help="Train and show these of its methods only, by commas.", show_default="all")
        ] = None,
        seeds: Annotated[int, typer.Option(min=1, help="How many, from 0 on.")] = 3,
        preset: Preset = "small",
        settings: Settings = None,
        data: Folder = None,
        out: Out = Path("runs"),
        train: Annotated[bool, typer.Option(help="Train what is missing, or show what there is.")] = True,
    ) -> None:
        """Train what a table or figure of the paper compares, and print its figures beside the measured ones."""
        if number == OPERATIONS:
            rows = [(found.operation, found.paper, found.measured) for found in measure()]
            Console().print(timings("Table 11: operations on scores, the fastest of 5", list(SIZES), rows))
            return
        try:
            check_choice("table", number, [*TABLES, OPERATIONS])
            chosen = TABLES[number] if methods is None else TABLES[number].only(split_methods(methods))
            found = chosen.comparisons(range(seeds), preset, settings or [], out)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if train:
            left = TimeLeft(sum(comparison.epochs_ahead() for comparison in found))
            for comparison in found:
                train_all(comparison, data, left)
        trained = "; ".join(dict.fromkeys(describe(comparison.recipe) for comparison in found)) or "nothing"
        caption = f"Table {number}" if number[0].isdigit() else number.replace("-", " ").capitalize()
        caption += f": {chosen.caption}\nmeasured: preset {preset}, {trained}; paper: {chosen.paper_setup}"
        Console().print(beside_the_paper(caption, chosen.lines(found, preset, out), chosen.costs))
        drawn = draw_figure(number, found, out)
        for line in filter(None, [drawn.said, *(f"Written: {path}" for path in drawn.paths)]):
            typer.echo(line)
        if seeds == 1:
            typer.echo("One seed is not a result: --seeds 3 or more gives differences with intervals.")

    @app.command()
    def select(
        method: Annotated[str, typer.Argument(help="A static method (infobatch list static).")],
        arrays: Annotated[list[Path], typer.Argument(help="Saved by static.collect(...); several runs are averaged.")],
        fraction: Annotated[float, typer.Option(min=0, max=1, help="Share of the samples to select.")] = 0.5,
        balanced: Annotated[bool, typer.Option(help="Select in each class by itself.")] = False,
        validation: Annotated[Path | None, typer.Option(help="Arrays of held-out samples, for some methods.")] = None,
        seed: Annotated[int, typer.Option(min=0)] = 0,
        out: Annotated[Path, typer.Option(help="Where to write indices and weights.")] = Path("selected.npz"),
    ) -> None:
        """Select a subset once, from collected arrays: indices and weights in an .npz file."""
        check_path("--out", out)
        try:
            runs = [static.Collected.load(path) for path in arrays]
            options = {} if validation is None else {"validation": static.Collected.load(validation)}
            data = runs[0] if len(runs) == 1 else runs
            chosen = static.select(method, data, float(fraction), balanced=balanced, seed=seed, **options)
        except (OSError, TypeError, ValueError) as error:
            raise typer.BadParameter(str(error)) from None
        chosen.save(out)
        typer.echo(f"{len(chosen.indices):,} of {len(runs[0]):,} samples: {out}")

    @app.command("list")
    def list_(what: Annotated[str, typer.Argument(help="recipes, methods, static or datasets")]) -> None:
        """List what there is."""
        shelves = {
            "recipes": lambda: [f"{name}: {', '.join(presets)}" for name, presets in recipes.RECIPES.items()],
            "methods": lambda: [f"{name}: {methods.info(name).summary}" for name in methods.list()],
            "static": lambda: [f"{name}: {static.info(name).summary}" for name in static.list()],
            "datasets": lambda: [*datasets.NAMES, *scenes.NAMES],
        }
        try:
            check_choice("list", what, shelves)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        typer.echo("\n".join(shelves[what]()))

    return app


class Sweep(NamedTuple):
    """Which methods, and which seeds."""

    methods: Sequence[str]
    seeds: Sequence[int]


def split_methods(text: str) -> list[str]:
    """The methods of a list by commas, whose options have commas too.

    >>> split_methods("full,random:ratio=0.3,rescale=true,infobatch")
    ['full', 'random:ratio=0.3,rescale=true', 'infobatch']
    """
    found: list[str] = []
    for part in text.split(","):
        if "=" in part and ":" not in part and found:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


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
