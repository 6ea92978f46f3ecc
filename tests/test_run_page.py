"""The page of a run: wrong arguments are refused and nothing is lost. Its look is tested in tests/report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from infobatch import InfoBatch
from infobatch.run_page import find_state


def trained(history: bool = True, size: int = 30, data: Any = None, **options: Any) -> InfoBatch:
    made = InfoBatch(TensorDataset(torch.arange(float(size))) if data is None else data, 4, history=history, **options)
    loader = DataLoader(made, batch_size=8, sampler=made.sampler)
    for epoch in range(4):
        for parts in loader:
            made.update(torch.sin(parts[-1] * 7.0 + epoch).abs())
    return made


def carried(path: Path) -> dict[str, Any]:
    """The data that a page carries."""
    match = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"))
    assert match
    return json.loads(match[1])


def test_the_page_tells_of_every_epoch_and_makes_its_folder(tmp_path: Path) -> None:
    data = trained()
    path = tmp_path / "not" / "there" / "page.html"
    data.report(path)
    page = carried(path)
    assert [(row["epoch"], row["kept"]) for row in page["epochs"]] == [(e.epoch, e.kept) for e in data.stats.epochs]
    assert [row["noise"] for row in page["epochs"]] == [e.noise for e in data.stats.epochs]
    assert page["known"] == [0, 1, 2, 3]
    assert page["size"] == 30
    assert f"{100 * data.stats.saved / (4 * 30):.1f} %" in path.read_text(encoding="utf-8")


def test_without_a_history_there_is_a_page_that_says_what_it_would_add(tmp_path: Path) -> None:
    trained(history=False).report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "InfoBatch(..., history=True)</code> adds the map of all samples" in text
    assert [entry["key"] for entry in carried(tmp_path / "page.html")["lists"]] == ["highest", "lowest"]
    assert "history=True" not in trained_text(tmp_path)


def trained_text(folder: Path) -> str:
    trained().report(folder / "with.html")
    return (folder / "with.html").read_text(encoding="utf-8").split("<script")[0]


def test_before_any_training_there_is_a_page_too(tmp_path: Path) -> None:
    InfoBatch(range(5), 3, history=True).report(tmp_path / "page.html")
    assert carried(tmp_path / "page.html")["epochs"] == []


def test_writing_a_page_changes_nothing(tmp_path: Path) -> None:
    class Augmented(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            return torch.rand(8, 8), float(index)

    one, other = (trained(data=Augmented(torch.zeros(20))) for _ in range(2))
    torch.manual_seed(1)
    one.report(tmp_path / "page.html")
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(3))
    assert one.state_dict()["checksum"] == other.state_dict()["checksum"]
    assert "<img" in str(carried(tmp_path / "page.html")["exhibits"])


def test_a_render_that_fails_for_one_sample_says_so_there(tmp_path: Path) -> None:
    def render(index: int) -> str:
        if index == 13:
            raise OSError("the file <13> is missing")
        return f"sample number {index}"

    trained().report(tmp_path / "page.html", render=render)
    shown = carried(tmp_path / "page.html")["exhibits"]
    assert len(shown) == 30
    assert "OSError: the file &lt;13&gt; is missing" in shown["13"]
    assert "sample number 12" in shown["12"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"render": "picture"}, TypeError, "render must be a function of a sample's index, got 'picture'"),
        (
            {"labels": [1, 2, 3]},
            ValueError,
            r"labels must hold one label for each of the 30 samples, got the shape \(3,\)",
        ),
        ({"labels": np.zeros((30, 2))}, ValueError, r"got the shape \(30, 2\)"),
        ({"samples": [3, 30]}, IndexError, "samples must be indices from 0 to 29, got 3 to 30"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_lost(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    data = trained()
    path = tmp_path / "page.html"
    path.write_text("an older page")
    before = data.state_dict()["checksum"]
    with pytest.raises(error, match=message):
        data.report(path, **options)
    assert path.read_text() == "an older page"
    assert data.state_dict()["checksum"] == before


def test_too_many_labels_are_no_classes(tmp_path: Path) -> None:
    data = InfoBatch(range(10_001), 2)
    with pytest.raises(ValueError, match="labels must be classes, at most 10,000 different ones"):
        data.report(tmp_path / "page.html", labels=range(10_001))


def test_samples_asked_for_are_shown_and_the_page_stays_small(tmp_path: Path) -> None:
    data = trained(size=2_000)
    data.report(tmp_path / "page.html", render=lambda index: "x" * 300_000, samples=[7, 1_900])
    shown = carried(tmp_path / "page.html")["exhibits"]
    assert shown["7"]
    assert shown["1900"]
    assert sum(part is not None for part in shown.values()) <= 9
    assert (tmp_path / "page.html").stat().st_size < 5_000_000


def test_the_state_is_found_in_a_checkpoint() -> None:
    state = trained().state_dict()
    assert find_state(state)["checksum"] == state["checksum"]
    assert find_state({"model": {"w": torch.ones(2)}, "loops": [{"data": state}]})["checksum"] == state["checksum"]
    with pytest.raises(ValueError, match="state of one InfoBatch, and holds none"):
        find_state({"model": {}})
    with pytest.raises(ValueError, match="and holds 2"):
        find_state({"a": state, "b": state})
