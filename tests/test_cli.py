import os
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import infobatch
from infobatch import static
from infobatch.cli.app import app
from infobatch.lab.data import catalogue, fashion
from infobatch.records import RunRecord

SMALL = ["--set", "samples=300", "--set", "epochs=3"]
BLOCKED = """
import sys
sys.modules["{name}"] = None  # from now on, importing it raises ModuleNotFoundError
from infobatch.cli import main
sys.argv = ["infobatch", "demo"]
main()
"""


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def python(*arguments, cwd):
    environment = os.environ | {
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "error,ignore:in epoch:RuntimeWarning",
    }  # noise: 300 images are few
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_demo_runs_as_a_command_and_leaves_a_page(tmp_path):
    arguments = ["demo", "--seeds", "1", *SMALL]
    done = python("-c", "from infobatch.cli import main; main()", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    # Not a terminal: one plain line per run and epoch, no control characters.
    assert sum("samples (" in line for line in lines) == 11
    assert "\x1b" not in done.stdout
    for label in (
        "Full data",
        "full: cost=0.67",
        "InfoBatch",
        "infobatch-adaptive: steps=stay",
        "test accuracy, %, fashion-mnist-10k",
    ):
        assert label in done.stdout
    assert "One seed is a demonstration, not a result" in done.stdout
    assert "Page: infobatch-demo/report.html" in done.stdout
    assert (tmp_path / "infobatch-demo" / "report.html").stat().st_size > 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["infobatch-demo"]
    again = python("-c", "from infobatch.cli import main; main()", *arguments, cwd=tmp_path)
    assert not sum("samples (" in line for line in again.stdout.splitlines())  # what is done is not repeated
    assert again.stdout.splitlines()[-1] == lines[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "epochs=0"], "epochs must be at least 1"),
        (["--set", "epochs=many"], "epochs must be a whole number"),
        (["--seeds", "0"], "--seeds"),
        (["--methods", "full,inforbatch"], "there is no 'inforbatch'; did you mean 'infobatch'?"),
        (["--methods", "full,infobatch:ratio=1.5"], "ratio"),
    ],
)
def test_a_bad_option_is_named_before_anything_is_trained(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    done = call("demo", *options)
    assert done.exit_code == 2
    assert message in done.output
    assert "epoch 1/" not in done.output
    assert "Traceback" not in done.output
    assert not list(tmp_path.rglob("record.json"))


def test_help_and_version():
    assert call("--version").output == f"infobatch {infobatch.__version__}\n"
    assert "demo" in call("--help").output
    assert "--seeds" in call("demo", "--help").output


@pytest.mark.parametrize("missing", ["typer", "rich", "matplotlib"])
def test_without_the_extra_the_command_says_what_to_install(tmp_path, missing):
    done = python("-c", BLOCKED.format(name=missing), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (f'infobatch: the command needs {missing}, which is missing: pip install "infobatch[lab]"\n')


def compare(tmp_path, *options):
    small = ["--set", "epochs=2", "--set", "samples=300", "--data", str(tmp_path), "--out", str(tmp_path / "runs")]
    return call("compare", "fashion-mnist", *small, *options)


@pytest.fixture
def folder(tmp_path):
    data = fashion.load()
    arrays = {}
    for name, split, count in (("train", data.train, 300), ("test", data.test, 100)):
        arrays |= {f"{name}_x": split.images[:count, ..., None], f"{name}_y": split.labels[:count]}
    np.savez(tmp_path / "fashion-mnist.npz", **arrays)
    return tmp_path


def test_a_comparison_as_a_command_its_report_and_going_on(folder):
    done = compare(folder, "--methods", "full,infobatch", "--seeds", 2)
    assert done.exit_code == 0, done.output
    assert done.output.count("epoch   2/2") == 4
    again = compare(folder, "--methods", "full,infobatch", "--seeds", 2)
    assert "epoch   " not in again.output  # a note on a busy machine has other words
    table = again.output.strip()
    assert table == call("report", folder / "runs").output.strip()
    one = call("train", "fashion-mnist", "--method", "full", "--data", folder, "--out", folder / "runs", *EPOCHS)
    assert "after 600 samples" in one.output
    page = folder / "page.html"
    call("report", folder / "runs", "--out", page)
    assert {path.name for path in folder.glob("page*")} == {
        *("page.html", "page.csv", "page-epochs.csv", "page.png", "page.svg")
    }


def test_a_margin_is_fixed_with_the_first_run(folder):
    """Results cannot influence it."""
    assert compare(folder, "--seeds", 1, "--margin", 0.2).exit_code == 0
    for again in (compare(folder, "--seeds", 1), call("report", folder / "runs")):
        assert "margin 0.2" in again.output
        assert "The margin was not fixed" not in again.output
    for changed in (
        compare(folder, "--seeds", 1, "--margin", 1),
        call("report", folder / "runs", "--margin", 1),
        call("front", folder / "runs", "--margin", 1),
    ):
        assert changed.exit_code == 2
        words = " ".join(changed.output.replace("│", " ").split())
        assert "as a margin chosen after the runs proves nothing, got 1: leave --margin out" in words
    (folder / "runs" / "fashion-mnist" / "margin.json").unlink()  # as in folders of an older version
    old = call("report", folder / "runs", "--margin", 1)
    assert "margin 1" in old.output
    assert "The margin was not fixed before the runs" in old.output


EPOCHS = ["--set", "epochs=2", "--set", "samples=300"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "fashion-mnits"], "did you mean 'fashion-mnist'?"),
        (["compare", "cifar10", "--preset", "large"], "there is no 'large'"),
        (["compare", "cifar10", "--set", "lrr=1"], "did you mean 'lr'?"),
        (["compare", "cifar10", "--data", "nowhere"], "none of cifar10.npz, cifar-10-batches-py"),
        (["report", "nowhere"], "holds no finished run"),
        (["list", "method"], "did you mean 'methods'?"),
    ],
)
def test_wrong_arguments_are_named_with_a_remedy(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())


def test_a_subset_is_selected_from_collected_arrays(tmp_path):
    rng = np.random.default_rng(0)
    arrays, out = tmp_path / "arrays.npz", tmp_path / "chosen.npz"
    data = static.Collected(logits=rng.standard_normal((40, 3)), labels=rng.integers(0, 3, 40))
    data.save(arrays)
    done = call("select", "el2n", arrays, "--fraction", 0.25, "--out", out)
    assert done.exit_code == 0, done.output
    assert "10 of 40 samples" in done.output
    expected = static.select("el2n", data, 0.25)
    assert np.load(out)["indices"].tolist() == expected.indices.tolist()
    wrong = call("select", "el2m", arrays, "--out", out)
    assert wrong.exit_code == 2
    assert "did you mean 'el2n'?" in " ".join(wrong.output.split())
    assert "validation" in call("select", "glister", arrays, "--out", out).output


@pytest.mark.parametrize(
    ("what", "line"), [("recipes", "cifar10: small, paper"), ("methods", "infobatch: "), ("datasets", "cifar100")]
)
def test_lists(what, line):
    assert any(shown.startswith(line) for shown in call("list", what).output.splitlines())


def test_the_list_of_data_sets_says_what_each_needs_and_where_to_get_it():
    shown = call("list", "datasets").output
    text = re.sub(r"\s+", " ", shown)
    names = [line.split()[0] for line in shown.splitlines() if line and not line.startswith(" ")]
    assert [entry.name for entry in catalogue.entries()] == names[2 : 2 + len(catalogue.entries())]
    assert "cifar10.npz" in text
    assert "~/.cache/torchvision" in text


def test_fronts_of_several_comparisons_as_a_command(tmp_path):
    def run(method, seed, value, kept):
        place = tmp_path / "runs" / method.replace(":", "-") / f"seed-{seed}"
        place.mkdir(parents=True)
        noise = {"noise": (10 / kept,), "recipe": {"dataset": "digits", "optimizer": "sgd"}}
        record = RunRecord(
            method, seed, "accuracy", True, 10, (kept,), (0.5,), (1.0,), (value,), 1 - kept / 10, **noise
        )
        (place / "record.json").write_text(record.to_json())

    for seed in range(3):
        run("full", seed, 90.0 + seed, 10)
        run("infobatch:steps=stay", seed, 89.9 + seed, 7)
    run("ucb", 7, 80.0, 5)  # its sweep has not come to the others' seeds yet
    files = {
        option: tmp_path / name for option, name in (("--out", "f.png"), ("--noise", "n.svg"), ("--table", "t.md"))
    }
    options = [part for pair in files.items() for part in pair]
    done = call("front", tmp_path / "runs", tmp_path / "runs", "--margin", 0.2, "--titles", "one,two", *options)
    assert done.exit_code == 0, done.output
    assert done.output == files["--table"].read_text(encoding="utf-8")
    assert (
        done.output.count("| `infobatch:steps=stay` | 3 | 30.0 % | 1.43 | -0.10 [-0.10, -0.10] | within the margin")
        == 2
    )
    assert files["--out"].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert files["--noise"].read_bytes().startswith(b"<?xml")
    assert "### digits, sgd\n" in call("front", tmp_path / "runs").output
    assert call("front", tmp_path / "runs", "--table", tmp_path / "new" / "folder" / "t.md").exit_code == 0
    assert (tmp_path / "new" / "folder" / "t.md").exists()
    (tmp_path / "runs.png").mkdir()
    for wrong, message in (
        (["--titles", "one,two"], "got 2 titles for 1 comparisons"),
        (["--out", tmp_path / "f.gif"], "must end in one of .png, .svg"),
        (["--table", tmp_path / "t.html"], "must end in .md"),
        (["--noise", tmp_path / "f.png" / "n.png"], "f.png cannot be made: File exists"),
        (["--noise", tmp_path / "runs.png"], "is a folder; name a file"),
        ([tmp_path / "nowhere"], "holds no finished run"),
        ([tmp_path / "runs" / "ucb"], "no run shares its seed with a run on full data"),
    ):
        refused = call("front", tmp_path / "runs", *wrong)
        output = re.sub(r"[│\s]+", "", refused.output)  # the frame breaks lines anywhere
        assert refused.exit_code == 2, wrong
        assert message.replace(" ", "") in output
