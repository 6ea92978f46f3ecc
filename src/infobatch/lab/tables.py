"""The paper's tables as data: which runs a row stands for, and what the paper reports for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import recipes
from .comparison import Comparison
from .method import MethodSpec


@dataclass(frozen=True)
class Row:
    """One row: a recipe with some settings, a method, and the paper's accuracy and, where it has one, saving."""

    label: str
    recipe: str
    method: str
    paper: str = ""
    paper_saving: str = ""
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of the paper. ``paper_setup`` says what the paper trained where ours is something else."""

    caption: str
    paper_setup: str
    rows: tuple[Row, ...]

    def comparisons(self, seeds: Sequence[int], preset: str, changes: Sequence[str], out: Path) -> list[Comparison]:
        """The runs of the table, those with the same recipe together, so that they take turns."""
        groups: dict[tuple[str, tuple[str, ...]], list[Row]] = {}
        for row in self.rows:
            groups.setdefault((row.recipe, row.settings), []).append(row)
        found = []
        for (name, settings), rows in groups.items():
            recipe = recipes.get(name, preset).changed([*settings, *changes])
            methods = [MethodSpec.parse(method) for method in dict.fromkeys(row.method for row in rows)]
            found.append(Comparison(recipe, methods, seeds, out / "-".join([name, *settings])))
        return found


def _components(recipe: str) -> tuple[Row, ...]:
    return (
        Row("Random*", recipe, "random", "77.3 ± 0.2"),
        Row("soft pruning", recipe, "infobatch:rescale=false,anneal=false", "77.5 ± 0.2"),
        Row("soft pruning, rescaled", recipe, "infobatch:anneal=false", "78.1 ± 0.2"),
        Row("soft pruning, annealed", recipe, "infobatch:rescale=false", "77.7 ± 0.2"),
        Row("soft pruning, rescaled and annealed", recipe, "infobatch", "78.2 ± 0.2"),
        Row("full data", recipe, "full", "78.2 ± 0.2"),
    )


def _optimisers() -> tuple[Row, ...]:
    paper = {
        "sgd": ("95.6", "95.6", "41.3", ()),
        "adamw": ("94.3", "94.4", "41.2", ("lr=0.005", "weight_decay=0.05")),
        "lars": ("95.5", "95.5", "41.3", ("lr=2.3",)),
        "lamb": ("95.0", "95.0", "41.2", ("lr=0.01",)),
    }
    rows = []
    for name, (full, pruned, saved, settings) in paper.items():
        setting = (f"optimizer={name}", *settings)
        rows.append(Row(f"{name}, full data", "cifar10", "full", full, "", setting))
        rows.append(Row(f"{name}, InfoBatch", "cifar10", "infobatch-quantile", pruned, saved, setting))
    return tuple(rows)


TABLES: dict[str, PaperTable] = {
    "4": PaperTable(
        "What soft pruning, rescaling and annealing each do", "CIFAR-100, ResNet-18", _components("cifar100")
    ),
    "5": PaperTable(
        "Which samples to prune",
        "CIFAR-100, ResNet-50",
        (
            Row("below the mean", "cifar100", "infobatch", "80.6 ± 0.2", "33"),
            Row("above the mean", "cifar100", "infobatch:condition=above", "80.5 ± 0.2", "16"),
            Row("random, 16 %", "cifar100", "random+rescale+anneal:saving=0.16", "80.5 ± 0.1", "16"),
            Row("random, 33 %", "cifar100", "random+rescale+anneal:saving=0.33", "80.5 ± 0.2", "33"),
            Row("full data", "cifar100", "full", "80.6 ± 0.1"),
        ),
    ),
    "7": PaperTable("Optimisers", "CIFAR-10, ResNet-50, 150 epochs", _optimisers()),
    "12": PaperTable(
        "Full data on a schedule of the same cost",
        "ResNet-50",
        tuple(
            Row(f"{name}, {label}", name, method, paper)
            for name, figures in {"cifar10": ("95.6", "95.2", ""), "cifar100": ("80.6", "79.4", "")}.items()
            for (label, method), paper in zip(
                (("InfoBatch", "infobatch"), ("full data, shortened", "full-shortened"), ("full data", "full")),
                figures,
                strict=True,
            )
        ),
    ),
    "figure-3": PaperTable(
        "The ratio r and the share of pruned epochs δ",
        "CIFAR-100, ResNet-18 and ResNet-50: lossless up to r = 0.5 and δ = 0.875",
        (
            Row("full data", "cifar100", "full"),
            *(Row(f"r = {r}", "cifar100", f"infobatch:ratio={r}") for r in (0.3, 0.4, 0.5, 0.6, 0.7)),
            *(Row(f"δ = {d}", "cifar100", f"infobatch:delta={d}") for d in (0.75, 0.8, 0.85, 0.95)),
        ),
    ),
}
