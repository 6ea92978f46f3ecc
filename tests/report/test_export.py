from __future__ import annotations

import csv
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from infobatch.records import Measure, RunRecord
from infobatch.report import export
from infobatch.report.picture import FORMATS
from infobatch.report.results import Results
from report.runs import run, runs

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF-", ".svg": b"<?xml"}
ODD = 'a "b", <c>\nd $x^2$'


def test_csv_gives_every_number_back(tmp_path: Path) -> None:
    records = [*runs(["full", "infobatch"], [0, 1]), run(ODD, 1)]
    export.epochs(Results.of(records, 0.5), tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == (*export.COLUMNS, "noise")
    groups = [list(group) for _, group in groupby(rows, lambda row: (row["method"], row["seed"]))]
    for record, epochs in zip(Results.of(records, 0.5).runs, groups, strict=True):
        assert {(row["method"], row["seed"], row["metric"]) for row in epochs} == {
            (record.method, str(record.seed), record.metric)
        }
        for name, kind, values in [
            ("epoch", int, range(1, 13)),
            ("kept", int, record.kept),
            ("samples", int, np.cumsum(record.kept)),
            ("loss", float, record.losses),
            ("seconds", float, record.times),
            ("value", float, record.values),
            ("noise", float, record.noise),
        ]:
            assert [kind(row[name]) for row in epochs] == list(values)


def test_csv_has_a_column_for_the_noise_factor_only_where_a_record_has_it(tmp_path: Path) -> None:
    def rows(*records: RunRecord) -> list[dict[str, str]]:
        export.epochs(Results.of(records, 0.5), tmp_path / "runs.csv")
        with (tmp_path / "runs.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    old, new = run("full", 0, noise=()), run("infobatch", 0)
    assert tuple(rows(old)[0]) == export.COLUMNS
    assert [row["noise"] for row in rows(old, new)] == [""] * 12 + [str(value) for value in new.noise]


@pytest.mark.parametrize("ending", FORMATS)
def test_the_ending_says_the_format(tmp_path: Path, ending: str) -> None:
    export.figure(Results.of(runs(seeds=range(2)), 0.5), tmp_path / f"figure{ending}")
    assert (tmp_path / f"figure{ending}").read_bytes().startswith(MAGIC[ending])


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path must end in one of \.png, \.pdf, \.svg, .* got .*figure\.gif"):
        export.figure(Results.of(runs(), 0.5), tmp_path / "figure.gif")


def share(path: Path, colour: str | tuple[float, ...]) -> float:
    """How much of the picture has this colour, to within rounding."""
    pixels = 255 * matplotlib.image.imread(path)[..., :3]
    return float((abs(pixels - 255 * np.array(to_rgb(colour))) < 1.5).all(-1).mean())


def test_the_figure_shows_each_method_in_its_colour_and_intervals_with_several_seeds_only(tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    export.figure(Results.of(runs(["full", "infobatch"], range(5)), 0.5), path)
    grey, blue, orange = (share(path, colour) for colour in export.COLOURS[:3])
    assert min(grey, blue) > 1e-3
    assert orange == 0
    shade = tuple(1 - 0.16 * (1 - channel) for channel in to_rgb(export.COLOURS[1]))
    assert share(path, shade) > 1e-3
    export.figure(Results.of(runs(["full", "infobatch"], [0]), 0.5), path)
    assert share(path, export.COLOURS[1]) > 1e-3
    assert share(path, shade) < 1e-4  # edges of letters


def test_curves_are_drawn_where_not_every_epoch_was_judged(tmp_path: Path) -> None:
    def seldom(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(value if epoch % 3 == 2 else float("nan") for epoch, value in enumerate(values))

    records, path = [replace(r, values=seldom(r.values)) for r in runs(["full", "infobatch"])], tmp_path / "figure.png"
    export.figure(Results.of(records, 0.5), path)
    drawn = share(path, export.COLOURS[1])
    export.figure(Results.of([replace(r, values=(float("nan"),) * 11 + r.values[-1:]) for r in records], 0.5), path)
    assert drawn > 1.2 * share(path, export.COLOURS[1])  # of the first picture some is the curve


def test_the_svg_says_how_many_seeds_and_calls_one_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("matplotlib").rcParams, "svg.fonttype", "none")  # text as text
    export.figure(Results.of(runs(["full", "infobatch"], [0, 1, 2]), 0.5), tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "mean of the seeds and its 95 % interval" in text
    assert text.count("3 seeds, noise 1.") == 2
    export.figure(Results.of(runs(["full", "infobatch"], [0]), 0.5), tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "one seed is no result" in text
    assert "95 %" not in text


def test_odd_names_diverged_runs_and_many_methods_are_drawn_without_a_warning(tmp_path: Path) -> None:
    many = [run(f"_method {n}", seed) for n in range(9) for seed in (0, 1)]
    bad = replace(run(ODD, 0), values=(float("nan"),) * 12)
    export.figure(Results.of([run("full", 0), run("full", 1), *many, bad], 0.5), tmp_path / "figure.png")
    export.figure(Results.of([run("infobatch", 0, epochs=1)], 0.5), tmp_path / "single.png")
    assert matplotlib.image.imread(tmp_path / "figure.png").shape[:2] > (630, 1799)


def test_the_table_has_the_rows_of_the_terminal(tmp_path: Path) -> None:
    measured = [replace(r, further=(Measure("loss", r.losses[-1], False),)) for r in runs(seeds=range(3))]
    results = Results.of(measured, 0.5)
    export.table(results, tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == export.ROWS
    metric = measured[0].metric
    assert [(row["measure"], row["method"]) for row in rows] == [
        (measure, outcome.method) for measure in (metric, "loss") for outcome in results.methods
    ]
    full, pruned = rows[0], rows[1]
    assert (full["difference"], full["verdict"], full["realised_speedup"]) == ("", "", "")
    outcome = results.methods[1]
    assert outcome.difference is not None
    assert float(pruned["difference"]) == outcome.difference.mean
    assert (float(pruned["low"]), float(pruned["high"])) == outcome.difference.interval
    assert pruned["verdict"] == outcome.verdict(0.5)
    assert float(pruned["realised_speedup"]) == outcome.realised
    assert {row["verdict"] for row in rows if row["measure"] == "loss"} == {""}
