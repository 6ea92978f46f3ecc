"""The paper's tables and figures as data: the runs behind each row, and the paper's figures for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...core.checks import check_choice
from ...report.outcome import group_by_method
from ...report.table import Line
from .. import recipes
from ..comparison import Comparison
from ..method import MethodSpec
from ..recipe import Recipe

PRESETS = ("small", "paper")


@dataclass(frozen=True)
class Setup:
    """A recipe with some settings."""

    recipe: str
    settings: tuple[str, ...] = ()

    def place(self, out: Path) -> Path:
        """The folder of its runs."""
        return out / "-".join([self.recipe, *self.settings])


@dataclass(frozen=True)
class PaperRow:
    """One row: a method, its set-up in each preset, and the paper's figures for it.

    A row without a set-up in a preset is not trained there, and its ``note`` says so.
    """

    label: str
    method: str
    setups: Mapping[str, Setup]
    paper: str = ""  # the paper's accuracy
    saving: str = ""
    time: str = ""
    overhead: str = ""
    note: str = "paper preset only"
    small: str = ""  # further options of the method in the small preset

    def spec(self, preset: str) -> str:
        """The method as it is trained in a preset."""
        if preset != "small" or not self.small:
            return self.method
        return f"{self.method}{',' if ':' in self.method else ':'}{self.small}"


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of the paper. ``paper_setup`` says what the paper trained, where ours differs.

    ``costs`` shows how long training took, and the method's own share of that time.
    """

    caption: str
    paper_setup: str
    rows: tuple[PaperRow, ...]
    costs: bool = False

    def only(self, names: Sequence[str]) -> PaperTable:
        """The rows of these methods: a method with its options as in the table, or a name for all its rows."""
        exact = [row.method for row in self.rows]
        names_here = list(dict.fromkeys([*exact, *(method.partition(":")[0] for method in exact)]))
        for name in names:
            check_choice("methods of this table", name, names_here)
        loose = set(names) - set(exact)
        rows = [row for row in self.rows if row.method in names or row.method.partition(":")[0] in loose]
        return replace(self, rows=tuple(rows))

    def comparisons(self, seeds: Sequence[int], preset: str, changes: Sequence[str], out: Path) -> list[Comparison]:
        """The runs of the table; methods with the same set-up are in one comparison, so that they take turns."""
        check_choice("preset", preset, PRESETS)
        groups: dict[Setup, list[str]] = {}
        for row in self.rows:
            if setup := row.setups.get(preset):
                groups.setdefault(setup, []).append(row.spec(preset))
        comparisons = []
        for setup, methods in groups.items():
            recipe = recipes.get(setup.recipe, preset).changed([*setup.settings, *changes])
            specs = [MethodSpec.parse(method) for method in dict.fromkeys(methods)]
            comparisons.append(Comparison(recipe, specs, seeds, setup.place(out)))
        return comparisons

    def lines(self, comparisons: Sequence[Comparison], preset: str, out: Path) -> list[Line]:
        """The rows of the table, with the finished runs of these comparisons."""
        outcomes = {
            comparison.folder: {outcome.method: outcome for outcome in group_by_method(comparison.records())}
            for comparison in comparisons
        }
        lines = []
        for row in self.rows:
            setup = row.setups.get(preset)
            outcome = None if setup is None else outcomes[setup.place(out)].get(row.spec(preset))
            note = row.note if setup is None else ""
            lines.append(Line(row.label, outcome, row.paper, row.saving, row.time, row.overhead, note))
        return lines


def describe(recipe: Recipe) -> str:
    """A short description of a recipe.

    >>> describe(recipes.get("cifar10").changed(["samples=10000"]))
    'cifar10 (10,000 samples), conv-mlp, 15 epochs'
    """
    samples = "" if recipe.samples is None else f" ({recipe.samples:,} samples)"
    return f"{recipe.dataset}{samples}, {recipe.model}, {recipe.epochs} epochs"


def _both(recipe: str, *settings: str, paper: tuple[str, ...] = ()) -> dict[str, Setup]:
    """The same set-up in both presets, with further settings in the paper's."""
    return {"small": Setup(recipe, settings), "paper": Setup(recipe, (*settings, *paper))}


def _only_paper(recipe: str, *settings: str) -> dict[str, Setup]:
    return {"paper": Setup(recipe, settings)}


# The small preset's recipe for tables of many methods: a minute a run, and it tells methods apart (results/README.md).
_RULER = Setup("fashion-mnist-8k")
_R50 = ("model=resnet50",)
_CIFAR100_R50 = ("model=resnet50", "optimizer=lars", "lr=5.2", "batch_size=256")  # appendix A

# -- table 1 --------------------------------------------------------------------------------------------------------

RATIOS = (30, 50, 70)  # % pruned
# By method: the paper's accuracy on CIFAR-10, then on CIFAR-100, at each ratio; "-" where the paper has none. {keep}
# and {prune} are shares. Static methods select within each class.
_STATIC = {
    "Random": ("random", "94.6 93.3 90.2 73.8 72.1 69.7"),
    "CD": ("cd", "95.0 94.3 90.8 74.2 72.3 70.3"),
    "Herding": ("herding", "92.2 88.0 80.1 73.1 71.8 69.6"),
    "K-Center": ("k-center", "94.7 93.9 90.9 74.1 72.2 70.2"),
    "Least Confidence": ("least-confidence", "95.0 94.5 90.3 74.2 72.3 69.8"),
    "Margin": ("margin", "94.9 94.3 90.9 74.0 72.2 70.2"),
    "Forgetting": ("forgetting", "94.7 94.1 91.7 75.3 73.1 69.9"),
    "GraNd-4": ("grand,teachers=4", "95.3 94.6 91.2 74.6 71.4 68.8"),
    "DeepFool": ("deepfool", "95.1 94.1 90.0 74.2 73.2 69.8"),
    "Craig": ("craig", "94.8 93.3 88.4 74.4 71.9 69.7"),
    "Glister": ("glister", "95.2 94.0 90.9 74.6 73.2 70.4"),
    "Influence": ("influence", "93.1 91.3 88.3 74.4 72.0 68.9"),
    "EL2N-2": ("el2n,teachers=2", "94.4 93.2 89.8 74.1 71.0 68.5"),
    "EL2N-20": ("el2n,teachers=20", "95.3 95.1 91.9 77.2 72.1 -"),
    "DP": ("dp", "94.9 93.8 90.8 77.2 73.1 -"),
    "GraphCut": ("graph-cut", "- - - - - -"),
    "DQ": ("dq", "- - - - - -"),
}
# † The paper matches forward passes by the number of epochs. {matched}: epochs save 30 %, and there are fewer epochs.
_MATCHED = {30: "saving=0.3", 50: "saving=0.3,cost=0.5", 70: "saving=0.3,cost=0.3"}
_DYNAMIC = {
    "InfoBatch": ("infobatch:{matched}", "95.6 †95.1 †94.7 78.2 †78.1 †76.5"),
    "Random*": ("random:ratio={prune}", "94.8 94.5 93.0 77.3 75.3 -"),
    "ε-greedy": ("epsilon-greedy:ratio={prune}", "95.2 94.9 94.1 76.4 74.8 -"),
    "UCB": ("ucb:ratio={prune}", "95.3 94.7 93.9 77.3 75.3 -"),
    "Dyn-Unc": ("dyn-unc:ratio={prune}", "- - - - - -"),
    "RS2": ("rs2:ratio={prune}", "- - - - - -"),
    "KAKURENBO": ("kakurenbo:fraction={prune}", "- - - - - -"),
    "SeTa": ("seta:random={prune}", "- - - - - -"),  # its window leaves out more
    "Selective backprop": ("selective-backprop:keep={keep}", "- - - - - -"),
    "BLS": ("bls:{matched}", "- - - - - -"),
    "OrderDP": ("orderdp:ratio={prune}", "- - - - - -"),
    "Variance-optimal Bernoulli": ("weighted-bernoulli:ratio={prune}", "- - - - - -"),
    "DivBS": ("divbs:keep={keep}", "- - - - - -"),
    "InfoBatch, noise budget, steps stay": ("infobatch-adaptive:saving={prune},steps=stay", "- - - - - -"),
    "Random, rescaled and annealed": ("random+rescale+anneal:{matched}", "- - - - - -"),
    "Full data, shortened": ("full:cost={keep}", "- - - - - -"),
}
# Methods that decide by themselves how much to leave out.
_BY_THEMSELVES = {
    "InfoBatch, quantiles": "infobatch-quantile",
    "InfoBatch, noise budget 0.1, steps stay": "infobatch-adaptive:steps=stay",
    "RePB": "repb",
    "IES": "ies",
}
# The methods' periods and windows are for 200 epochs: a short training has shorter ones.
_SHORT = {"ε-greedy": "period=1", "UCB": "period=1", "Dyn-Unc": "window=3"}


def _table_1(setups: Mapping[str, Setup], full: str, column: int) -> tuple[PaperRow, ...]:
    """Every method at every ratio; ``column`` is where the data set's figures begin."""
    rows = [PaperRow("Whole dataset", "full", setups, full)]
    rows += [PaperRow(label, method, setups) for label, method in _BY_THEMSELVES.items()]
    for label, method, figures in _each_method():
        papers = figures.split()[column : column + len(RATIOS)]
        for ratio, paper in zip(RATIOS, papers, strict=True):
            text = method.format(keep=(100 - ratio) / 100, prune=ratio / 100, matched=_MATCHED[ratio])
            paper = paper.replace("-", "")
            rows.append(PaperRow(f"{label}, {ratio} %", text, setups, paper, str(ratio), small=_SHORT.get(label, "")))
    return tuple(rows)


def _each_method() -> Iterator[tuple[str, str, str]]:
    """Label, method and figures, the dynamic methods first."""
    for label, (method, figures) in _DYNAMIC.items():
        yield label, method, figures
    for label, (method, figures) in _STATIC.items():
        name, comma, teachers = method.partition(",")
        yield f"{label} (static)", f"static-{name}:fraction={{keep}},balanced=true{comma}{teachers}", figures


# -- the other tables -----------------------------------------------------------------------------------------------


def _overhead() -> tuple[PaperRow, ...]:
    setups = {"small": _RULER, "paper": Setup("imagenet")}
    return (
        PaperRow("GC", "static-graph-cut:fraction=0.6,balanced=true", setups, "73.6 ± 0.4", "40", "10.5 h", "> 24 h"),
        PaperRow(
            "EL2N-20", "static-el2n:fraction=0.6,balanced=true,teachers=20", setups, "", "40", "10.5 h", "> 17.5 h"
        ),
        PaperRow("UCB", "ucb:ratio=0.4", setups, "75.8 ± 0.3", "40", "10.5 h", "0.03 h", small=_SHORT["UCB"]),
        PaperRow("InfoBatch", "infobatch-quantile", setups, "76.5 ± 0.2", "40", "10.5 h", "0.0028 h"),
        PaperRow("full data", "full", setups, "76.4 ± 0.2", "", "17.5 h", "0"),
    )


_AUGMENTED = ("label_smoothing=0.1", "random_erase=0.25", "mixup=0.2", "cutmix=1.0", "ema=0.99")


def _imagenet_models() -> tuple[PaperRow, ...]:
    """The small preset has CIFAR-10 in place of ImageNet, with and without timm's options."""
    paper = {
        "R-50, PyTorch": (_compact(), "imagenet", "infobatch-quantile", "76.4", "76.5", "40.5"),
        "R-50, timm": (_compact(*_AUGMENTED), "imagenet-timm", "infobatch", "78.4", "78.3", "20.3"),
        "Swin-T": ({}, "imagenet-swin", "infobatch", "81.5", "81.4", "19.0"),
    }
    rows = []
    for label, (small, recipe, method, full, pruned, saved) in paper.items():
        setups = {**small, **_only_paper(recipe)}
        rows.append(PaperRow(f"{label}, full data", "full", setups, full))
        rows.append(PaperRow(f"{label}, InfoBatch", method, setups, pruned, saved))
    note = "pre-trained: the task masked"  # the paper's figures are after fine-tuning, ours would not be
    rows.append(PaperRow("ViT-B (MAE), full data", "full", {}, "82.8", note=note))
    rows.append(PaperRow("ViT-B (MAE), InfoBatch", "infobatch", {}, "82.9", "24.8", note=note))
    return tuple(rows)


def _compact(*settings: str) -> dict[str, Setup]:
    return {"small": Setup("cifar10", settings)}


def _components() -> tuple[PaperRow, ...]:
    steps = {
        "Random*": ("random", "77.3 ± 0.2", "79.7 ± 0.2"),
        "soft pruning": ("infobatch:rescale=false,anneal=false", "77.5 ± 0.2", "79.9 ± 0.2"),
        "soft pruning, rescaled": ("infobatch:anneal=false", "78.1 ± 0.2", "80.3 ± 0.3"),
        "soft pruning, annealed": ("infobatch:rescale=false", "77.7 ± 0.2", "80.0 ± 0.2"),
        "soft pruning, rescaled and annealed": ("infobatch", "78.2 ± 0.2", "80.6 ± 0.2"),
        "full data": ("full", "78.2 ± 0.2", "80.6 ± 0.1"),
    }
    setups = {"small": _RULER, "paper": Setup("cifar100")}
    first = [PaperRow(label, method, setups, paper) for label, (method, paper, _) in steps.items()]
    large = _only_paper("cifar100", *_CIFAR100_R50)
    return (*first, *(PaperRow(f"R-50: {label}", method, large, paper) for label, (method, _, paper) in steps.items()))


def _conditions() -> tuple[PaperRow, ...]:
    setups = {"small": _RULER, "paper": Setup("cifar100", _CIFAR100_R50)}
    return (
        PaperRow("below the mean", "infobatch", setups, "80.6 ± 0.2", "33"),
        PaperRow("above the mean", "infobatch:condition=above", setups, "80.5 ± 0.2", "16"),
        PaperRow("random, 16 %", "random+rescale+anneal:saving=0.16", setups, "80.5 ± 0.1", "16"),
        PaperRow("random, 33 %", "random+rescale+anneal:saving=0.33", setups, "80.5 ± 0.2", "33"),
        PaperRow("full data", "full", setups, "80.6 ± 0.1"),
    )


def _architectures() -> tuple[PaperRow, ...]:
    """A smaller and a larger network each: in the small preset the small CNN and the compact ResNet."""
    smaller, larger = ("model=small-cnn", "model=resnet18"), ("model=resnet-compact", "model=resnet50")
    paper = {
        ("cifar10", "R-18", smaller): ("infobatch-quantile", "95.6", "95.5", "41.3"),
        ("cifar10", "R-50", larger): ("infobatch-quantile", "95.6", "95.6", "41.3"),
        ("cifar100", "R-18", smaller): ("infobatch", "78.2", "78.2", "33.8"),
        ("cifar100", "R-50", larger): ("infobatch-quantile", "80.6", "80.6", "41.3"),
        ("imagenet", "R-18", smaller): ("infobatch", "70.5", "70.4", "26.1"),
        ("imagenet", "R-50", larger): ("infobatch-quantile", "76.4", "76.5", "40.9"),
    }
    rows = []
    for (recipe, label, (small, large)), (method, full, pruned, saved) in paper.items():
        setups = _only_paper(recipe, large)
        if recipe != "imagenet":
            setups["small"] = Setup(recipe, (small,))
        rows.append(PaperRow(f"{recipe}, {label}, full data", "full", setups, full))
        rows.append(PaperRow(f"{recipe}, {label}, InfoBatch", method, setups, pruned, saved))
    return tuple(rows)


def _optimisers() -> tuple[PaperRow, ...]:
    """The paper's figures, our settings in the small preset, and the learning rates of appendix A in the paper's."""
    paper: dict[str, tuple[str, str, str, tuple[str, ...], tuple[str, ...]]] = {
        "sgd": ("95.6", "95.6", "41.3", (), ("lr=0.2",)),
        "adamw": ("94.3", "94.4", "41.2", ("lr=0.004",), ("lr=0.0006",)),
        "lars": ("95.5", "95.5", "41.3", ("lr=2.3",), ("lr=2.3",)),
        "lamb": ("95.0", "95.0", "41.2", ("lr=0.01",), ("lr=0.01",)),
    }
    rows = []
    for name, (full, pruned, saved, small, large) in paper.items():
        setups = {
            "small": Setup(_RULER.recipe, (f"optimizer={name}", *small)),
            "paper": Setup("cifar10", (f"optimizer={name}", *large, *_R50, "epochs=150")),
        }
        rows.append(PaperRow(f"{name}, full data", "full", setups, full))
        rows.append(PaperRow(f"{name}, InfoBatch", "infobatch-quantile", setups, pruned, saved))
    return tuple(rows)


def _same_cost() -> tuple[PaperRow, ...]:
    rows = []
    for name, settings, figures in (("cifar10", _R50, ("95.6", "95.2")), ("cifar100", _CIFAR100_R50, ("80.6", "79.4"))):
        setups = _both(name, paper=settings)
        rows.append(PaperRow(f"{name}, InfoBatch", "infobatch", setups, figures[0]))
        rows.append(PaperRow(f"{name}, full data, shortened", "full-shortened", setups, figures[1]))
        rows.append(PaperRow(f"{name}, full data", "full", setups))
    return tuple(rows)


def _sweeps() -> tuple[PaperRow, ...]:
    setups = {"small": _RULER, "paper": Setup("cifar100")}
    return (
        PaperRow("full data", "full", setups),
        *(PaperRow(f"r = {r}", f"infobatch:ratio={r}", setups) for r in (0.3, 0.4, 0.5, 0.6, 0.7)),
        *(PaperRow(f"δ = {d}", f"infobatch:delta={d}", setups) for d in (0.75, 0.8, 0.85, 0.95)),
    )


def _savings() -> tuple[PaperRow, ...]:
    """Two lengths of training, the longer about twice the shorter."""
    rows = []
    for small, large, time, cost in ((7, 90, "7.0 h less", "10 s"), (15, 200, "15.7 h less", "22 s")):
        setups = {"small": Setup("cifar10", (f"epochs={small}",)), "paper": Setup("imagenet", (f"epochs={large}",))}
        length = f"{large} epochs"
        rows.append(PaperRow(f"{length}, full data", "full", setups))
        rows.append(PaperRow(f"{length}, InfoBatch", "infobatch-quantile", setups, "", "40", time, cost))
    return tuple(rows)


def _two_runs(setups: Mapping[str, Setup]) -> tuple[PaperRow, ...]:
    return PaperRow("full data", "full", setups), PaperRow("InfoBatch", "infobatch", setups)


TABLES: dict[str, PaperTable] = {
    "1": PaperTable(
        "Methods and ratios, CIFAR-10",
        "CIFAR-10, ResNet-18, 200 epochs",
        _table_1({"small": _RULER, "paper": Setup("cifar10")}, "95.6 ± 0.1", 0),
        costs=True,
    ),
    "1-cifar100": PaperTable(
        "Methods and ratios, CIFAR-100",
        "CIFAR-100, ResNet-18, 200 epochs",
        _table_1(_only_paper("cifar100"), "78.2 ± 0.1", 3),
        costs=True,
    ),
    "2": PaperTable("Cost of the methods", "ImageNet-1K, ResNet-50, 90 epochs, 8 A100", _overhead(), costs=True),
    "3": PaperTable("Models and training recipes", "ImageNet-1K", _imagenet_models()),
    "4": PaperTable("What soft pruning, rescaling and annealing each do", "CIFAR-100, ResNet-18", _components()),
    "5": PaperTable("Which samples to prune", "CIFAR-100, ResNet-50", _conditions()),
    "6": PaperTable("Architectures", "CIFAR-10, CIFAR-100 and ImageNet-1K, ResNet-18 and ResNet-50", _architectures()),
    "7": PaperTable("Optimisers", "CIFAR-10, ResNet-50, 150 epochs", _optimisers()),
    "10": PaperTable(
        "Tiny-ImageNet",
        "ResNet-50",
        (
            PaperRow("full data", "full", _only_paper("tiny-imagenet"), "63.5"),
            PaperRow("InfoBatch", "infobatch-quantile", _only_paper("tiny-imagenet"), "63.4", "41.3"),
        ),
    ),
    "12": PaperTable("Full data on a schedule of the same cost", "ResNet-50", _same_cost()),
    "figure-3": PaperTable(
        "The ratio r and the share of pruned epochs δ",
        "CIFAR-100, ResNet-18 and ResNet-50: lossless up to r = 0.5 and δ = 0.875",
        _sweeps(),
    ),
    "figure-4b": PaperTable("What is saved, and what it costs", "ImageNet-1K, ResNet-50", _savings(), costs=True),
    "figure-4d": PaperTable(
        "Samples left out per epoch",
        "ImageNet-1K (of the first version): more and more in the early epochs, then as many each epoch",
        _two_runs({"small": Setup("cifar10"), "paper": Setup("imagenet")}),
    ),
    "figure-6": PaperTable(
        "The losses before and after pruning and rescaling",
        "CIFAR-10, ResNet-50",
        _two_runs(_both("cifar10", paper=_R50)),
    ),
}
