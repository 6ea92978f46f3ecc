"""The paper's tables as data: every row can be trained or says why not, and finished runs find their rows."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import infobatch
from infobatch import methods, static
from infobatch.cli.app import app
from infobatch.lab import recipes
from infobatch.lab.method import MethodSpec
from infobatch.lab.paper.tables import PRESETS, TABLES, PaperRow, PaperTable, Setup

EVERY = [(number, preset) for number in TABLES for preset in PRESETS]


@pytest.mark.parametrize(("number", "preset"), EVERY)
def test_every_row_is_a_training_that_can_begin(number, preset, tmp_path):
    comparisons = TABLES[number].comparisons([0], preset, [], tmp_path)
    assert len({comparison.folder for comparison in comparisons}) == len(comparisons)
    for comparison in comparisons:
        for method in comparison.methods:
            epochs = method.epochs(comparison.recipe.epochs)
            if method.static:
                assert method.static in static.list()
            else:
                infobatch.InfoBatch(range(10_000), epochs, method=method.name, **method.options)
    labels = {row.spec(preset) for row in TABLES[number].rows if preset in row.setups}
    assert {method.label for comparison in comparisons for method in comparison.methods} == labels


@pytest.mark.parametrize("number", TABLES)
def test_every_row_has_full_data_to_compare_with(number):
    for preset in PRESETS:
        setups = {row.setups[preset] for row in TABLES[number].rows if preset in row.setups}
        for setup in setups:
            methods = [row.method for row in TABLES[number].rows if row.setups.get(preset) == setup]
            assert "full" in methods, (preset, setup)


# What the paper prints, read from it a second time: table 1 by rows, CIFAR-10 then CIFAR-100, 30, 50 and 70 %.
TABLE_1 = """
Random (static)           94.6 93.3 90.2  73.8 72.1 69.7
CD (static)               95.0 94.3 90.8  74.2 72.3 70.3
Herding (static)          92.2 88.0 80.1  73.1 71.8 69.6
K-Center (static)         94.7 93.9 90.9  74.1 72.2 70.2
Least Confidence (static) 95.0 94.5 90.3  74.2 72.3 69.8
Margin (static)           94.9 94.3 90.9  74.0 72.2 70.2
Forgetting (static)       94.7 94.1 91.7  75.3 73.1 69.9
GraNd-4 (static)          95.3 94.6 91.2  74.6 71.4 68.8
DeepFool (static)         95.1 94.1 90.0  74.2 73.2 69.8
Craig (static)            94.8 93.3 88.4  74.4 71.9 69.7
Glister (static)          95.2 94.0 90.9  74.6 73.2 70.4
Influence (static)        93.1 91.3 88.3  74.4 72.0 68.9
EL2N-2 (static)           94.4 93.2 89.8  74.1 71.0 68.5
EL2N-20 (static)          95.3 95.1 91.9  77.2 72.1 -
DP (static)               94.9 93.8 90.8  77.2 73.1 -
Random*                   94.8 94.5 93.0  77.3 75.3 -
ε-greedy                  95.2 94.9 94.1  76.4 74.8 -
UCB                       95.3 94.7 93.9  77.3 75.3 -
InfoBatch                 95.6 †95.1 †94.7  78.2 †78.1 †76.5
"""


def test_table_1_holds_the_papers_figures():
    for line in TABLE_1.strip().splitlines():
        *words, a, b, c, d, e, f = line.split()
        for number, figures in (("1", (a, b, c)), ("1-cifar100", (d, e, f))):
            rows = {row.label: row for row in TABLES[number].rows}
            for ratio, figure in zip((30, 50, 70), figures, strict=True):
                row = rows[f"{' '.join(words)}, {ratio} %"]
                assert (row.paper or "-", row.saving) == (figure, str(ratio))
    assert TABLES["1"].rows[0].paper == "95.6 ± 0.1"


def test_table_1_prunes_what_it_says():
    for row in TABLES["1"].rows:
        if not row.saving:  # full data, and methods that find out by themselves how much to leave out
            continue
        method, ratio = MethodSpec.parse(row.method), int(row.saving) / 100
        options = method.options
        if "ratio" in options:
            assert options["ratio"] == ratio
        elif method.static:
            assert (options["fraction"], options["balanced"]) == (pytest.approx(1 - ratio), True)
        elif method.cost is not None:
            assert method.cost == pytest.approx(1 - ratio)
            assert method.epochs(200) * (1 - options.get("saving", 0)) == pytest.approx(200 * (1 - ratio), abs=0.7)
        elif "saving" in options:
            assert options["saving"] == ratio
        else:
            assert next(iter(options.values())) in (pytest.approx(ratio), pytest.approx(1 - ratio))
    assert {MethodSpec.parse(row.method).static for row in TABLES["1"].rows} == {None, *static.list()}


def test_every_dynamic_method_has_a_row_of_table_1():
    assert {MethodSpec.parse(row.method).name for row in TABLES["1"].rows} >= set(methods.list())


def test_small_runs_are_of_a_ruler_which_tables_share(tmp_path):
    [small] = TABLES["1"].comparisons([0], "small", ["epochs=3"], tmp_path)
    assert small.recipe == replace(recipes.get("fashion-mnist-8k"), epochs=3)
    for number in ("4", "5", "figure-3"):
        [other] = TABLES[number].comparisons([0], "small", [], tmp_path)
        assert other.folder == small.folder
    assert "ucb:ratio=0.3,period=1" in [method.label for method in small.methods]
    [paper] = TABLES["1"].comparisons([0], "paper", [], tmp_path)
    assert paper.recipe == recipes.get("cifar10", "paper")
    assert "ucb:ratio=0.3" in [method.label for method in paper.methods]


def test_rows_are_chosen_by_method(tmp_path):
    chosen = TABLES["1"].only(["full", "static-herding", "ucb:ratio=0.5"])
    assert [row.label for row in chosen.rows] == [
        *("Whole dataset", "UCB, 50 %"),
        *(f"Herding (static), {ratio} %" for ratio in (30, 50, 70)),
    ]
    with pytest.raises(
        ValueError, match=r"of this table: there is no 'static-herdin'; did you mean 'static-herding'\?"
    ):
        TABLES["1"].only(["static-herdin"])


def test_a_preset_must_be_one(tmp_path):
    with pytest.raises(ValueError, match=r"preset: there is no 'papr'; did you mean 'paper'\?"):
        TABLES["4"].comparisons([0], "papr", [], tmp_path)


def test_rows_that_a_preset_does_not_have_say_so(tmp_path):
    table = PaperTable(
        "",
        "",
        (PaperRow("a", "full", {"paper": Setup("cifar10")}, "1"), PaperRow("b", "full", {"small": Setup("cifar10")})),
    )
    comparisons = table.comparisons([0], "small", [], tmp_path)
    assert [line.note for line in table.lines(comparisons, "small", tmp_path)] == ["paper preset only", ""]
    assert [line.paper for line in table.lines(comparisons, "small", tmp_path)] == ["1", ""]


# -- as a command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path):
    """A few images in the form of CIFAR-10 and of Fashion-MNIST."""
    rng = np.random.default_rng(0)
    for dataset, shape in (("cifar10", (32, 32, 3)), ("fashion-mnist", (28, 28, 1))):
        arrays = {}
        for name, count in (("train", 128), ("test", 20)):
            labels = rng.integers(0, 10, count)
            images = rng.integers(0, 60, (count, *shape)) + 20 * labels[:, None, None, None]
            arrays |= {f"{name}_x": images.astype(np.uint8), f"{name}_y": labels}
        np.savez(tmp_path / f"{dataset}.npz", **arrays)
    return tmp_path


def call(folder, *arguments):
    small = ["--data", folder, "--out", folder / "runs", "--set", "epochs=2", "--set", "model=strided-cnn"]
    environment = {"COLUMNS": "250"}
    arguments = [str(argument) for argument in (*arguments, *small)]
    return CliRunner().invoke(app, ["table", *arguments], catch_exceptions=False, env=environment)


def test_a_table_is_trained_in_parts_shown_with_its_costs_and_goes_on(data):
    small = ("--set", "samples=100", "--set", "batch_size=20")
    done = call(data, "1", "--methods", "full,static-margin:fraction=0.7,balanced=true", "--seeds", 2, *small)
    assert done.exit_code == 0, done.output
    assert done.output.count("left\n") == 4 * 2 + 2 * 2  # a line per epoch, with the time left; a teacher each seed
    assert "0 s left" in done.output
    assert "measured: preset small, fashion-mnist (100 samples), strided-cnn, 2 epochs" in done.output
    rows = [line.split() for line in done.output.splitlines() if line.lstrip().startswith(("Whole", "Margin"))]
    assert [row[0] for row in rows] == ["Whole", "Margin"]
    assert rows[1][:6] == ["Margin", "(static),", "30", "%", "94.9", rows[1][5]]
    assert float(rows[1][-2].strip("%")) > 0  # what the teacher took, as a share of the time
    again = call(data, "1", "--methods", "full,infobatch", "--seeds", 1, "--no-train", *small)
    assert "epoch " not in again.output
    assert "Whole dataset" in again.output
    assert "InfoBatch, 50 %" in again.output


def test_a_figure_is_printed_and_drawn(data):
    done = call(data, "figure-6", "--seeds", 1)
    assert done.exit_code == 0, done.output
    assert "Figure 6: The losses before and after pruning and rescaling" in done.output
    assert (data / "runs" / "figure-6.png").exists()
    assert f"Written: {data / 'runs' / 'figure-6.csv'}" in done.output.replace("\n", "")
    assert "One seed is not a result" in done.output


def test_wrong_tables_and_methods_are_told(data):
    for arguments, message in (
        (["13"], "there is no '13'"),
        (["1", "--methods", "infobach"], "did you mean 'infobatch'?"),
    ):
        done = call(data, *arguments)
        assert done.exit_code == 2
        assert message in " ".join(done.output.replace("│", " ").split())
