"""Banking77: customers' questions to a bank, each with one of 77 intents."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .source import Source

NAME = "banking77"
SOURCE = Source(
    ("banking77/train.csv",),
    "https://github.com/PolyAI-LDN/task-specific-datasets (banking_data: train.csv and test.csv; CC BY 4.0)",
)
_ORDER_SEED = 77


@dataclass(frozen=True)
class LabelledTexts:
    """Texts, and the number of each text's class."""

    texts: list[str]
    labels: list[int]

    def head(self, count: int | None) -> LabelledTexts:
        """The first ``count`` texts; None for all."""
        return LabelledTexts(self.texts[:count], self.labels[:count])


@dataclass(frozen=True)
class Texts:
    """A data set of texts to classify."""

    train: LabelledTexts
    test: LabelledTexts
    classes: tuple[str, ...]


def load(folder: str | Path | None = None) -> Texts:
    """Read Banking77 from ``folder``, or from where data sets usually are.

    The training texts are shuffled, always in the same way: the file is sorted by intent, and the first 2,000 texts
    would have few of the intents.
    """
    path = SOURCE.find(NAME, folder)
    train, test = (_read(path.with_name(file)) for file in ("train.csv", "test.csv"))
    classes = tuple(sorted({intent for _, intent in train}))
    unknown = sorted({intent for _, intent in test} - set(classes))
    if unknown:
        raise ValueError(
            f"{path.with_name('test.csv')} holds intents that train.csv does not have: {', '.join(unknown)}"
        )
    order = np.random.default_rng(_ORDER_SEED).permutation(len(train))
    return Texts(_number_classes([train[i] for i in order], classes), _number_classes(test, classes), classes)


def _read(path: Path) -> list[tuple[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if rows.fieldnames != ["text", "category"]:
            raise ValueError(f"{path}: the first line must be text,category, got {','.join(rows.fieldnames or [])}")
        return [(row["text"], row["category"]) for row in rows]


def _number_classes(rows: list[tuple[str, str]], classes: tuple[str, ...]) -> LabelledTexts:
    number = {intent: i for i, intent in enumerate(classes)}
    return LabelledTexts([text for text, _ in rows], [number[intent] for _, intent in rows])
