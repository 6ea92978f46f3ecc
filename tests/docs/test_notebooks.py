"""The notebooks: they run from top to bottom, and what is committed shows such a run."""

import csv
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "docs/notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SMALL = {
    "quick-start.ipynb": "SAMPLES, EPOCHS, BATCH, SEEDS = 400, 4, 50, 1",
    "fine-tuning.ipynb": "SAMPLES, EPOCHS, BATCH = 96, 4, 16",
}
QUESTIONS = {
    "card_lost": "where is my card I think I lost it",
    "card_late": "my new card is late and has not arrived",
    "pin_wrong": "the machine says that my pin is wrong",
}


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(cells):
    return "".join(output.get("text", "") for cell in cells for output in cell.outputs)


@pytest.fixture
def questions(tmp_path):
    """Files like Banking77's, with three intents."""
    folder = tmp_path / "data/banking77"
    folder.mkdir(parents=True)
    for name, count in (("train.csv", 40), ("test.csv", 8)):
        with (folder / name).open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("text", "category"))
            rows.writerows(
                (f"{'please ' * (i % 4)}{text}", label) for i in range(count) for label, text in QUESTIONS.items()
            )


def test_there_are_two():
    assert [path.name for path in NOTEBOOKS] == sorted(SMALL)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_committed_outputs_are_of_one_whole_run(path):
    cells = code_cells(nbformat.read(path, as_version=4))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert re.search(r"saved \d+\.\d% of full training", printed(cells))
    assert "\x1b" not in printed(cells)
    assert str(Path.home()) not in path.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:(zmq|jupyter_client|nbclient).*")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_runs(path, questions, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    settings, *rest = code_cells(notebook)
    assert settings.source.partition("=")[0] == SMALL[path.name].partition("=")[0]
    settings.source = SMALL[path.name]
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert re.search(r"saved \d+\.\d% of full training", printed(rest))
    assert "\x1b" not in printed(rest)  # no control characters: a notebook does not redraw lines
    assert sum("image/png" in output.get("data", {}) for cell in rest for output in cell.outputs) >= 1
