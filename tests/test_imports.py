"""``import infobatch`` loads torch and numpy and nothing else, and the rooms face one way only."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import infobatch

ROOT = Path(infobatch.__file__).parent
TORCH_ALONE = "import numpy, torch"


def modules_after(code: str) -> set[str]:
    """The modules loaded by ``code`` in a fresh interpreter."""
    code += "\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_torch_and_numpy_and_nothing_else() -> None:
    added = modules_after(f"{TORCH_ALONE}; import infobatch") - modules_after(TORCH_ALONE)
    packages = {name.partition(".")[0] for name in added} - sys.stdlib_module_names
    assert packages - {"numpy", "torch"} == {"infobatch"}
    rooms = {name.split(".")[1] for name in added if name.startswith("infobatch.")}
    assert "dataset" in rooms
    assert not rooms & {"lab", "report", "cli", "integrations", "static"}


def test_public_names_are_there_after_one_import() -> None:
    code = """
import infobatch
names = [infobatch.DriftError, infobatch.PairWeights, infobatch.methods.fixed_size, infobatch.methods.systematic]
assert infobatch.static.list() and infobatch.scoring.classification and infobatch.integrations.logging.log
assert infobatch.integrations.lightning.InfoBatchCallback
assert set(infobatch.__all__) <= set(dir(infobatch))
for module in (infobatch, infobatch.integrations):
    try:
        module.nonsense
    except AttributeError as error:
        assert "nonsense" in str(error)
    else:
        raise SystemExit("no error")
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- which way the rooms face ---------------------------------------------------------------------------------------

# What each room may import: other rooms of ours, and packages beyond the standard library.
CORE = {"numpy", "torch", "core"}
FACADE = CORE | {"methods", "scoring", "distributed", "schedule", "samples", "run", "checkpoint", "files", "forecast"}
FACES: dict[str, set[str]] = {
    "core": CORE,
    "methods": CORE | {"methods"},
    "scoring": {"torch", "scipy", "scoring"},  # scipy for the matching of detectors, when it is asked for
    "static": {"numpy", "torch", "sklearn", "scipy", "rich", "static", "core"},
    "distributed": CORE | {"distributed"},
    "schedule": CORE,
    "samples": set(),
    "files": set(),
    "records": set(),
    "checkpoint": {"torch", "files"},
    "run": CORE | {"distributed"},
    "forecast": CORE | {"methods", "report"},  # the last one when a picture is asked for
    "sample_table": {"numpy", "core", "files", "pyarrow"},  # the last one when a file of it is asked for
    "exhibits": {"numpy", "torch", "PIL"},  # the last one where a picture is shown
    "run_page": {"numpy", "core", "sample_table", "exhibits", "report"},  # the last one when a page is written
    "stream": CORE | {"distributed", "samples", "stream"},
    "dataset": FACADE | {"sample_table", "run_page"},
    "__init__": FACADE | {"dataset", "exhibits", "integrations", "lab", "static", "stream"},  # some when asked for
    "integrations": FACADE
    | {"dataset", "stream", "integrations"},  # and in each file its own framework: see FRAMEWORKS
    "report": {"numpy", "matplotlib", "rich", "PIL", "report", "records"},
    "lab": FACADE
    | {"dataset", "infobatch", "integrations", "lab", "records", "report", "static"}
    | {"datasets", "diffusers", "peft", "PIL", "rich", "scipy", "segmentation_models_pytorch", "timm", "tokenizers"}
    | {"torchmetrics", "transformers"},
    "cli": {"infobatch", "core", "methods", "static", "checkpoint", "forecast", "lab", "report", "typer", "rich"}
    | {"cli", "numpy", "run_page"},
}
# The framework that each file of integrations/ is the only one to import.
FRAMEWORKS: dict[str, set[str]] = {
    "__init__": set(),
    "logging": set(),
    "lightning": {"lightning"},
    "transformers": {"transformers", "accelerate"},
    "streaming": {"transformers"},
    "accelerate": {"accelerate"},
    "timm": {"timm"},
    "ray": {"ray"},
    "ultralytics": {"ultralytics"},
    "fastai": {"fastai"},
    "keras": {"keras"},
}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def names(path: Path) -> Iterator[str]:
    """Every import of a file, wherever it stands, in full: ``infobatch.core.plan.EpochPlan``."""
    package = ["infobatch", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            base += node.module.split(".") if node.module else []
            yield from (".".join([*base, alias.name]) for alias in node.names)


def imports(path: Path) -> Iterator[str]:
    """Every import of a file, as a room of ours or a top-level package."""
    for name in names(path):
        first, *rest = name.split(".")
        if first == "infobatch" and rest and rest[0] in FACES:
            yield rest[0]
        elif first not in sys.stdlib_module_names:
            yield first


SOURCES = sorted(ROOT.rglob("*.py"))


def test_every_source_file_belongs_to_a_room() -> None:
    assert {room_of(path) for path in SOURCES} <= set(FACES)
    assert {"core", "methods", "distributed", "dataset", "schedule"} <= {room_of(path) for path in SOURCES}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_what_it_faces(path: Path) -> None:
    own = FRAMEWORKS[path.stem] if room_of(path) == "integrations" else set()
    wrong = set(imports(path)) - FACES[room_of(path)] - own
    assert not wrong, f"{path.relative_to(ROOT)} must not import {sorted(wrong)}"


# What the rooms of the lab may import of the lab. The files beside them import any room but paper.
LAB = {"data": {"data"}, "tasks": {"data", "tasks", "recipe"}}


@pytest.mark.parametrize("path", sorted((ROOT / "lab").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_rooms_of_the_lab_face_one_way(path: Path) -> None:
    room = path.relative_to(ROOT / "lab").parts[0]
    found = {name.split(".")[2] for name in names(path) if name.startswith("infobatch.lab.")}
    wrong = found - LAB[room] if room in LAB else found & {"paper"} if room != "paper" else set()
    assert not wrong, f"{path.relative_to(ROOT)} must not import {sorted(wrong)}"


def test_the_check_sees_a_wrong_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "core").mkdir()
    bad = tmp_path / "core" / "bad.py"
    bad.write_text("from ..dataset import InfoBatch\nfrom .. import methods\nimport scipy.stats\nfrom . import plan\n")
    assert set(imports(bad)) == {"dataset", "methods", "scipy", "core"}
