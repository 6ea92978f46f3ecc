import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import infobatch
from infobatch import static
from infobatch.cli import build, remarks
from infobatch.lab import fashion
from infobatch.report import Pair, RunRecord

SMALL = ["--samples", "300", "--epochs", "3"]
BLOCKED = """
import sys
sys.modules["{name}"] = None  # from now on, importing it raises ModuleNotFoundError
from infobatch.cli import main
sys.argv = ["infobatch", "demo"]
main()
"""


def call(*arguments):
    return CliRunner().invoke(build(), [str(argument) for argument in arguments], catch_exceptions=False)


def python(*arguments, cwd):
    environment = os.environ | {
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "error,ignore:in epoch:RuntimeWarning",
    }  # noise: 300 images are few
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def test_the_demo_runs_as_a_command_and_leaves_a_picture(tmp_path):
    done = python("-c", "from infobatch.cli import main; main()", "demo", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    # Not a terminal: one plain line per run and epoch, no control characters.
    assert sum("samples (" in line for line in lines) == 6
    assert "\x1b" not in done.stdout
    assert "Full data and InfoBatch (seed 0)" in done.stdout
    for label in ("Test accuracy, %", "Samples trained on", "Training time, s", "Samples saved, %", "Realised ÷ ideal"):
        assert label in done.stdout
    assert "One seed is a demonstration, not a result" in done.stdout
    assert "Picture: infobatch-demo.png" in done.stdout
    picture = (tmp_path / "infobatch-demo.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(picture) > 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["infobatch-demo.png"]


def test_several_seeds_are_paired_and_their_records_appended(tmp_path):
    records = tmp_path / "records.jsonl"
    records.write_text('{"method": "earlier"}\n')
    options = ("--seed", 5, "--seeds", 2, "--json", records, "--out", tmp_path / "picture.svg")
    done = call("demo", *SMALL, "--method", "random", "--ratio", "0.4", *options)
    assert done.exit_code == 0, done.output
    assert "Full data and Random (2 paired seeds, mean ± sd)" in done.output
    assert "paired difference" in done.output
    assert "One seed" not in done.output
    first, *runs = [json.loads(line) for line in records.read_text().splitlines()]
    assert first == {"method": "earlier"}
    assert [(run["method"], run["seed"]) for run in runs] == [("full", 5), ("random", 5), ("full", 6), ("random", 6)]
    for run in runs:
        assert 0 <= run["values"][-1] <= 100
        assert min(run["times"]) > 0
        assert run["saving"] == pytest.approx(1 - sum(run["kept"]) / 900)
        assert run["environment"]["cpus"] == os.cpu_count()
        assert run["environment"]["torch"].startswith("2.")
    assert runs[1]["kept"][1] == 172  # of 180: its last batch is one that full data has too
    assert (tmp_path / "picture.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "0"], "--epochs"),
        (["--epochs", "many"], "--epochs"),
        (["--samples", "10001"], "--samples"),
        (["--seeds", "0"], "--seeds"),
        (["--method", "inforbatch"], "there is no 'inforbatch'; did you mean 'infobatch'?"),
        (["--method", "full"], "it is what the others are compared with"),
        (["--ratio", "1.5"], "ratio"),
        (["--ratio", "nan"], "ratio"),
        (["--out", "picture.gif"], "picture.gif must end in one of .png, .pdf, .svg"),
        (["--out", "nowhere/picture.png"], "the folder nowhere does not exist; create it first"),
        (["--json", "."], ". is a folder; name a file"),
        (["--json", "nowhere/r.jsonl"], "the folder nowhere does not exist"),
    ],
)
def test_a_bad_option_is_named_before_anything_is_trained(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    done = call("demo", *options)
    assert done.exit_code == 2
    assert message in done.output
    assert "epoch 1/" not in done.output
    assert "Traceback" not in done.output
    assert list(tmp_path.iterdir()) == []


def test_help_and_version():
    assert call("--version").output == f"infobatch {infobatch.__version__}\n"
    assert "demo" in call("--help").output
    assert "--seeds" in call("demo", "--help").output


def test_times_of_a_busy_machine_are_not_to_be_trusted():
    def said(*times):
        run = RunRecord("full", 0, "accuracy", True, 10, (10, 10), (0.9, 0.8), times, (50.0, 50.0), 0.0)
        return "\n".join(remarks([Pair(run, replace(run, method="infobatch"))]))

    assert "busy" not in said(1.0, 1.2)
    assert "the slowest epoch of a run took 2.5 times as long as the fastest" in said(1.0, 2.5)


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
    assert "epoch" not in again.output
    table = again.output.strip()
    assert table == call("report", folder / "runs").output.strip()
    one = call("train", "fashion-mnist", "--method", "full", "--data", folder, "--out", folder / "runs", *EPOCHS)
    assert "after 600 samples" in one.output


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
def test_wrong_arguments_are_told_with_what_is_right(arguments, message, tmp_path, monkeypatch):
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
    assert any(found.startswith(line) for found in call("list", what).output.splitlines())


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
    assert done.output.count("| `infobatch:steps=stay` | 3 | 30.0 % | 1.43 | -0.10 [-0.10, -0.10] | lossless") == 2
    assert files["--out"].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert files["--noise"].read_bytes().startswith(b"<?xml")
    assert "### digits, sgd\n" in call("front", tmp_path / "runs").output
    for wrong, message in (
        (["--titles", "one,two"], "got 2 titles for 1 comparisons"),
        (["--out", tmp_path / "f.gif"], "must end in one of .png, .svg"),
        (["--table", tmp_path / "t.html"], "must end in .md"),
        (["--noise", tmp_path / "nowhere" / "n.png"], "does not exist; create it first"),
        ([tmp_path / "nowhere"], "holds no finished run"),
        ([tmp_path / "runs" / "ucb"], "no run shares its seed with a run on full data"),
    ):
        refused = call("front", tmp_path / "runs", *wrong)
        said = re.sub(r"[│\s]+", "", refused.output)  # the frame breaks lines anywhere
        assert refused.exit_code == 2, wrong
        assert message.replace(" ", "") in said
