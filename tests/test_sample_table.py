"""Plain columns, as arrays, CSV and Parquet."""

from __future__ import annotations

import builtins
import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import parquet
from torch.utils.data import DataLoader, TensorDataset

from infobatch import InfoBatch
from infobatch.sample_table import SampleTable

COLUMNS = ["index", "score", "times_trained", "times_left_out", "mean", "variability", "forgetting_events", "suspicion"]


def trained(history: bool = True, epochs: int = 4) -> InfoBatch:
    data = InfoBatch(TensorDataset(torch.arange(20.0)), 4, history=history)
    loader = DataLoader(data, batch_size=5, sampler=data.sampler)
    for _ in range(epochs):
        for (x,) in loader:
            data.update(x)
    return data


def test_columns_are_plain_arrays_of_one_row_per_sample() -> None:
    data = trained()
    table = data.table()
    assert list(table) == COLUMNS
    assert all(type(column) is np.ndarray and column.shape == (20,) for column in table.values())
    assert table["index"].tolist() == list(range(20))
    assert table["score"].tolist() == data.scores.tolist()
    assert (table["times_trained"] + table["times_left_out"] == 4).all()
    assert table["times_trained"].sum() == data.stats.seen
    assert table["suspicion"].argmax() == 19
    assert repr(table).startswith("SampleTable(20 samples: index, score,")


def test_the_last_epoch_counts_before_the_next_begins_and_one_under_way_does_not() -> None:
    data = trained(epochs=1)
    assert set(data.table()["times_trained"]) == {1}
    data.set_epoch(1)
    assert set(data.table()["times_trained"]) == {1}
    (x,) = next(iter(DataLoader(data, batch_size=5, sampler=data.sampler)))
    data.update(x)
    assert set(data.table()["times_trained"]) == {1}


def test_asking_changes_nothing() -> None:
    data, other = trained(epochs=2), trained(epochs=2)
    data.table()
    assert data.state_dict()["checksum"] == other.state_dict()["checksum"]


def test_columns_that_need_a_history_say_so() -> None:
    table = trained(history=False).table()
    assert list(table) == ["index", "score"]
    with pytest.raises(KeyError, match=r"suspicion is computed from the scores of every epoch.*history=True"):
        table["suspicion"]
    with pytest.raises(KeyError, match="no column 'scores'; did you mean 'score'"):
        table["scores"]


def test_csv_holds_every_number_and_empty_cells_for_unknown_ones(tmp_path: Path) -> None:
    table = SampleTable(np.array([0.125, np.nan, 1e-9], np.float32))
    table.to_csv(tmp_path / "new" / "samples.csv")
    assert (tmp_path / "new" / "samples.csv").read_text() == "index,score\n0,0.125\n1,\n2,1e-09\n"
    table = trained().table()
    table.to_csv(tmp_path / "samples.csv")
    with (tmp_path / "samples.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == COLUMNS
    for name in COLUMNS:
        assert [float(row[name]) for row in rows] == pytest.approx(table[name].tolist(), rel=1e-6)


def test_parquet_comes_back_exactly(tmp_path: Path) -> None:
    table = trained().table()
    table.to_parquet(tmp_path / "samples.parquet")
    back = parquet.read_table(tmp_path / "samples.parquet")
    assert back.column_names == COLUMNS
    for name in COLUMNS:
        assert np.array_equal(back[name].to_numpy(), table[name])


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return load(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r'to_parquet\(\) needs pyarrow: pip install "infobatch\[parquet\]"'):
        SampleTable(np.zeros(2, np.float32)).to_parquet(tmp_path / "samples.parquet")
    assert not list(tmp_path.iterdir())
