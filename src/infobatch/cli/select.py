"""The command ``infobatch select``."""

from pathlib import Path
from typing import Annotated

import typer

from .. import static
from .shared import check_path


def select(
    method: Annotated[str, typer.Argument(help="A static method (infobatch list static).")],
    arrays: Annotated[
        list[Path],
        typer.Argument(help="Arrays from static.collect(...), saved with save(); several runs are averaged."),
    ],
    fraction: Annotated[float, typer.Option(min=0, max=1, help="Share of the samples to select.")] = 0.5,
    balanced: Annotated[bool, typer.Option(help="Select the same share of each class.")] = False,
    validation: Annotated[Path | None, typer.Option(help="Arrays of held-out samples, for some methods.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Write indices and weights to this file.")] = Path("selected.npz"),
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
