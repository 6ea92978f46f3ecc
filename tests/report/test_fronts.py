from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from scipy import stats

from infobatch.records import RunRecord
from infobatch.report import fronts
from report.runs import TOTAL, run


def pruned(method: str, seed: int, kept: float, noise: float, loss: float) -> RunRecord:
    """A run on the share ``kept`` of the data that ends about ``loss`` worse than full data."""
    full = run("full", seed)
    value = full.value - loss + np.random.default_rng([seed, sum(method.encode())]).normal(0, 0.02)
    changes = {"kept": (int(TOTAL * kept),) * 12, "noise": (noise,) * 12, "values": (*full.values[:-1], value)}
    return replace(full, method=method, saving=1 - kept, **changes)


def comparison(seeds: range = range(3), **recipe: object) -> list[RunRecord]:
    """Full data and methods of all families, unsorted."""
    runs = []
    for seed in seeds:
        runs += [
            pruned("infobatch-adaptive:noise=0.4,steps=stay", seed, 0.5, 1.4, 0.3),
            pruned("infobatch-adaptive:noise=0.1,steps=stay", seed, 0.7, 1.1, 0.0),
            pruned("infobatch-adaptive:noise=0.1", seed, 0.69, 1.1, 0.1),
            run("full", seed),
            pruned("infobatch:ratio=0.7", seed, 0.5, 2.0, 0.6),
            pruned("infobatch", seed, 0.65, 1.4, 0.3),
            pruned("infobatch-quantile", seed, 0.6, 1.45, 0.35),
            pruned("random+rescale+anneal", seed, 0.58, 1.8, 0.5),
            pruned("full:cost=0.5", seed, 0.5, 1.0, 0.4),
            pruned("full:cost=0.7", seed, 0.7, 1.0, 0.2),
            pruned("full:cost=0.7,lr=0.1", seed, 0.7, 1.0, 0.25),
            pruned("full-shortened", seed, 0.65, 1.0, 0.3),
            pruned("ucb", seed, 0.7, 1.0, 0.9),
        ]
    return [replace(record, recipe={**record.recipe, **recipe}) for record in runs]


# -- how methods are arranged ------------------------------------------------------------------------------------------


def test_methods_come_by_family_step_mode_and_saving() -> None:
    [front] = fronts.arrange([comparison(optimizer="adamw")])
    assert front.heading == "cifar10, resnet-compact, adamw"
    assert front.about == "10,000 samples, 12 epochs, 3 seeds"
    assert [point.outcome.method for point in front.points] == [
        *("full:cost=0.7", "full-shortened", "full:cost=0.5", "full:cost=0.7,lr=0.1"),
        *("infobatch", "infobatch:ratio=0.7", "infobatch-quantile", "random+rescale+anneal"),
        *("infobatch-adaptive:noise=0.1", "infobatch-adaptive:noise=0.1,steps=stay"),
        *("infobatch-adaptive:noise=0.4,steps=stay", "ucb"),
    ]
    lines = [[point.outcome.method for point in line] for _, line in itertools.groupby(front.points, lambda p: p.line)]
    # Joined are methods that differ in how much they save alone.
    assert lines[:3] == [
        ["full:cost=0.7", "full-shortened", "full:cost=0.5"],
        ["full:cost=0.7,lr=0.1"],
        ["infobatch", "infobatch:ratio=0.7"],
    ]
    assert len({point.family for point in front.points}) == 6
    assert [point.steps_stay for point in front.points[-4:]] == [False, True, True, False]


def test_only_pairs_of_unfinished_sweeps_count() -> None:
    records = [
        record
        for record in comparison()
        if not (record.method == "full" and record.seed == 2)
        and not (record.method == "infobatch" and record.seed == 0)
        and not (record.method == "ucb" and record.seed < 2)
    ]
    [front] = fronts.arrange([records], ["a title"])
    assert (front.heading, front.about) == ("a title", "10,000 samples, 12 epochs, 1 to 2 seeds")
    assert [point.outcome.method for point in front.points if point not in front.points_to_draw] == ["ucb"]
    table = fronts.markdown([front], 0.2)
    assert re.search(r"\| `infobatch` \| 1 \| 35\.0 % \| 1\.40 \| -0\.\d\d \| too few seeds \|", table)
    assert "| `ucb` | 0 | 30.0 % | 1.00 |  | shares no seed with full data |" in table


def test_comparisons_that_cannot_be_drawn_are_refused() -> None:
    lone = [record for record in comparison() if record.method != "full"]
    apart = [*lone, run("full", 7)]
    for records in (lone, apart, [run("full", 0)]):
        with pytest.raises(ValueError, match="cifar10, resnet-compact: no run shares its seed with a run on full data"):
            fronts.arrange([records])
    with pytest.raises(ValueError, match="a title for each comparison, got 1 titles for 2 comparisons: give as many"):
        fronts.arrange([comparison(), comparison()], ["one"])
    with pytest.raises(ValueError, match=r"resnet-compact: the runs of one folder must be one comparison; .* twice"):
        fronts.arrange([comparison() * 2])


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_has_seeds_saving_noise_difference_and_verdict() -> None:
    records = comparison(range(5))
    table = fronts.markdown(fronts.arrange([records, records], ["one", "two | three"]), 0.2)
    one, two = table.split("### ")[1:]
    assert one.splitlines()[0] == "one"
    assert two.splitlines()[0] == "two | three"
    full = [record.value for record in records if record.method == "full"]
    assert (
        f"10,000 samples, 12 epochs; test accuracy, % on full data: {np.mean(full):.2f} ± {np.std(full, ddof=1):.2f} "
        "(5 seeds); margin 0.2" in one
    )
    rows = [line for line in one.splitlines() if line.startswith("|")]
    assert rows[0] == "| method | seeds | samples saved | noise V | difference, 95 % interval | verdict |"
    assert len(rows) == 2 + 12
    own = [record.value for record in records if record.method == "infobatch:ratio=0.7"]
    change = np.subtract(own, full)
    low, high = stats.t.interval(0.95, 4, change.mean(), stats.sem(change))
    row = f"| `infobatch:ratio=0.7` | 5 | 50.0 % | 2.00 | {change.mean():+.2f} [{low:+.2f}, {high:+.2f}] |"
    assert f"{row} worse by more than 0.2 |" in rows
    assert {row.count("|") for row in rows} == {7}


def test_old_records_have_no_column_for_the_noise() -> None:
    table = fronts.markdown(fronts.arrange([[replace(record, noise=()) for record in comparison()]]), 0.2)
    assert "| method | seeds | samples saved | difference, 95 % interval | verdict |" in table
    assert "noise V" not in table


# -- the pictures ------------------------------------------------------------------------------------------------------


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("matplotlib").rcParams, "svg.fonttype", "none")  # text as text


def written(path: Path) -> list[str]:
    """The texts of an SVG."""
    return [text.strip() for text in re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(encoding="utf-8"), re.S)]


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (3, 1), (4, 2), (8, 3)])
def test_a_panel_per_comparison_and_one_legend(tmp_path: Path, words: None, count: int, rows: int) -> None:
    titles = [f"ruler {n}" for n in range(count)]
    fronts.draw(fronts.arrange([comparison()] * count, titles), tmp_path / "fronts.svg", 0.2)
    texts = written(tmp_path / "fronts.svg")
    assert [text for text in texts if text.startswith("ruler")] == titles
    assert texts.count("samples saved") == count
    for family in ("full data, shortened schedule", "infobatch", "infobatch-quantile", "random", "infobatch-adaptive"):
        assert texts.count(family) == 1
    assert texts.count("filled: steps that stay") == texts.count("hollow: fewer steps") == 1
    assert texts.count("margin 0.2; bars: 95 % interval") == 1
    fronts.draw(fronts.arrange([comparison()] * count, titles), tmp_path / "fronts.png", 0.2)
    height, width, _ = matplotlib.image.imread(tmp_path / "fronts.png").shape
    assert width == 1800  # two pixels for each of a page's 900
    assert height / rows == pytest.approx(700, abs=300)


def share(path: Path, colour: str) -> float:
    """How much of a picture has this colour, to within rounding."""
    pixels = 255 * matplotlib.image.imread(path)[..., :3]
    return float((abs(pixels - 255 * np.array(to_rgb(colour))) < 1.5).all(-1).mean())


def test_colours_are_the_families_and_the_band_is_the_margin(tmp_path: Path) -> None:
    path, records = tmp_path / "fronts.png", comparison()
    fronts.draw(fronts.arrange([records]), path, 0.2)
    wide = share(path, fronts.BAND)
    for family in fronts.FAMILIES.values():
        assert share(path, family.colour) > 1e-4
    fronts.draw(fronts.arrange([[r for r in records if not r.method.startswith("random")]]), path, 0.02)
    assert share(path, fronts.FAMILIES["random"].colour) == 0
    assert share(path, fronts.BAND) < wide / 4


# Machado, Oliveira and Fernandes (2009): how the linear colours of a screen are seen without one kind of cone.
CONES = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array([[0.4339, 0.3763, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8729]])  # of white


@pytest.mark.parametrize("cones", CONES)
def test_the_colour_blind_tell_the_families_apart(cones: str) -> None:
    def lab(colour: str) -> np.ndarray:
        channels = np.array(to_rgb(colour))
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        x, y, z = np.cbrt(TO_XYZ @ np.clip(np.array(CONES[cones]) @ linear, 1e-3, 1))
        return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    families = set(fronts.FAMILIES.values())
    for one, other in itertools.combinations(families, 2):
        assert np.linalg.norm(lab(one.colour) - lab(other.colour)) > 12, (one, other)
    assert len({family.mark for family in families}) == len(families)


def test_the_noise_is_drawn_with_its_rank_correlation_for_each_step_mode(tmp_path: Path, words: None) -> None:
    records = comparison()
    fronts.draw_noise(fronts.arrange([records, records]), tmp_path / "noise.svg")
    texts = written(tmp_path / "noise.svg")
    [front] = fronts.arrange([records])
    fewer = [p for p in front.points if not p.steps_stay and not p.outcome.method.startswith("full")]
    assert len(fewer) == 6
    means = [(p.outcome.noise, p.outcome.difference.mean) for p in fewer] * 2
    expected = f"{stats.spearmanr(*zip(*means, strict=True)).statistic:+.2f}".replace("-", "−")
    assert f"Spearman's rank correlation over 12 method means: {expected}" in texts
    assert "Spearman's rank correlation over 4 method means: −1.00" in texts
    assert {"Steps that stay", "Fewer steps"} < set(texts)
    assert "full data, shortened schedule" not in texts  # it has no noise to tell of


def test_few_methods_have_no_correlation_and_old_records_no_noise(tmp_path: Path, words: None) -> None:
    records = [r for r in comparison() if r.method in ("full", "infobatch", "infobatch:ratio=0.7")]
    fronts.draw_noise(fronts.arrange([records]), tmp_path / "noise.svg")
    assert written(tmp_path / "noise.svg").count("too few methods for a rank correlation") == 2
    with pytest.raises(ValueError, match="no run of a pruning method has a noise factor: records of older versions"):
        fronts.draw_noise(fronts.arrange([[replace(r, noise=()) for r in records]]), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_diverged_methods_are_not_drawn_but_counted_in_the_heading(tmp_path: Path, words: None) -> None:
    records = [
        replace(r, values=(*r.values[:-1], math.nan)) if (r.method, r.seed) == ("infobatch", 1) else r
        for r in comparison()
    ]
    arranged = fronts.arrange([records])
    assert "| `infobatch` | 3 | 35.0 % | 1.40 |  | a run diverged |" in fronts.markdown(arranged, 0.2)
    fronts.draw(arranged, tmp_path / "fronts.svg", 0.2)
    assert "diverged, not drawn: 1 of 12 methods" in written(tmp_path / "fronts.svg")
    fronts.draw_noise(arranged, tmp_path / "noise.svg")
    assert written(tmp_path / "noise.svg").count("diverged, not drawn: 1 of the methods") == 1


def test_odd_names_one_seed_and_a_lower_metric_are_drawn_without_a_warning(tmp_path: Path) -> None:
    odd = [pruned('a "b" $x^2$ <c>:d=$', 0, 0.7, 1.2, 0.3), pruned("_b", 0, 0.8, 1.1, 0.2), run("full", 0)]
    odd = [replace(record, higher_is_better=False) for record in odd]
    arranged = fronts.arrange([odd], ["a $title$ that is much too long for a single line of a panel's heading, by far"])
    fronts.draw(arranged, tmp_path / "fronts.png", 0.0)
    fronts.draw_noise(arranged, tmp_path / "noise.png")
    assert min((tmp_path / f"{name}.png").stat().st_size for name in ("fronts", "noise")) > 10_000
    nothing = [run("full", 0), replace(run("full", 0), method="infobatch")]  # saved, and no difference
    fronts.draw(fronts.arrange([nothing]), tmp_path / "fronts.png", 0.0)
