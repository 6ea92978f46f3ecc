"""Instructions and answers in the format of Alpaca: reading rows, making prompts, tokens and batches."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from ...core.checks import check_choice
from ...integrations import needs
from ...scoring.language import IGNORED
from .source import Source

NAME = "alpaca"
SOURCE = Source(
    ("alpaca_data.json", "alpaca.jsonl", "alpaca.jsonl.gz"),
    "https://github.com/tatsu-lab/stanford_alpaca (alpaca_data.json; CC BY-NC 4.0)",
    folders=("alpaca",),
)

# Each template has a form for rows with an input and one for rows without. "alpaca" is the one the authors of Alpaca
# train with; "short" leaves out its preamble, which is the same in every row and costs a small model half of its time.
TEMPLATES = {
    "alpaca": (
        "Below is an instruction that describes a task, paired with an input that provides further context. "
        "Write a response that appropriately completes the request.\n\n"
        "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:",
        "Below is an instruction that describes a task. "
        "Write a response that appropriately completes the request.\n\n"
        "### Instruction:\n{instruction}\n\n### Response:",
    ),
    "short": (
        "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:",
        "### Instruction:\n{instruction}\n\n### Response:",
    ),
}
END = "</s>"


@dataclass(frozen=True)
class Row:
    """An instruction, its input (may be empty), and the answer."""

    instruction: str
    input: str
    output: str

    def prompt(self, template: str = "alpaca") -> str:
        """The text before the answer.

        >>> Row("Add one.", "1", "2").prompt("short").split()
        ['###', 'Instruction:', 'Add', 'one.', '###', 'Input:', '1', '###', 'Response:']
        """
        with_input, without = TEMPLATES[template]
        return (with_input if self.input else without).format(instruction=self.instruction, input=self.input)


@dataclass(frozen=True)
class Tokens:
    """A row as the model reads it: the tokens of prompt, answer and end. Prompt tokens are no targets."""

    ids: Tensor
    labels: Tensor

    @property
    def targets(self) -> int:
        """How many tokens are predicted."""
        return int(self.labels.ne(IGNORED).sum())


class Encoded(Dataset[Tokens]):
    """Rows as tokens, in memory."""

    def __init__(self, rows: Iterable[Tokens]) -> None:
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tokens:
        return self.rows[index]


# -- reading --------------------------------------------------------------------------------------------------------


def load(folder: str | Path | None = None) -> tuple[list[Row], Path]:
    """The rows, and their file: in ``folder`` or where data sets usually are."""
    path = SOURCE.find(NAME, folder)
    return read(path), path


def read(path: str | Path) -> list[Row]:
    """Read the rows of a ``.json`` file, a list of rows, or of a ``.jsonl`` file, a row per line; also ``.gz``."""
    path = Path(path)
    content = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode("utf-8")
    by_line = ".jsonl" in path.suffixes
    rows: Any = [json.loads(line) for line in content.split("\n") if line.strip()] if by_line else json.loads(content)
    if not isinstance(rows, list):
        raise ValueError(f"{path} must hold a list of rows, got {type(rows).__name__}")
    return [_parse_row(number, row, path) for number, row in enumerate(rows)]


def _parse_row(number: int, row: Any, path: Path) -> Row:
    parts = {"input": "", **row} if isinstance(row, dict) else {}
    texts = [parts.get(name) for name in ("instruction", "input", "output")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"{path}: row {number} must hold the texts instruction, input (or none) and output, got {row!r}"
        )
    return Row(*map(str, texts))


def read_numbers(where: str, beside: Path, count: int) -> list[int]:
    """The numbers of the rows to use, out of ``count``, from the file ``where``, or ``where`` in the folder ``beside``.

    A ``.json`` file holds a list of row numbers, or lists by name (``file.json:name``); an ``.npz`` file is what
    ``infobatch select`` writes.
    """
    file, _, name = where.partition(":")
    path = next((path for path in (Path(file), beside / file) if path.exists()), None)
    if path is None:
        raise FileNotFoundError(f"rows must name a file of row numbers: there is no {file}, here or in {beside}")
    numbers: Any
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            numbers = arrays["indices"].tolist()
    else:
        numbers = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(numbers, dict):
            check_choice(f"rows of {path} (FILE:NAME)", name, numbers)
            numbers = numbers[name]
    whole = isinstance(numbers, list) and all(type(number) is int for number in numbers)
    if not whole or not all(0 <= number < count for number in numbers) or len(set(numbers)) != len(numbers):
        raise ValueError(f"rows: {where} must be a list of different whole numbers from 0 to {count - 1}")
    return list(numbers)


# -- tokens ---------------------------------------------------------------------------------------------------------


def train_tokenizer(texts: Iterable[str], words: int) -> Any:
    """Train a byte-pair tokenizer of at most ``words`` tokens; the same texts give the same tokenizer."""
    with needs("transformers", "transformers"):
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
        from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()  # all bytes, so that no text is unknown
    trainer = trainers.BpeTrainer(
        vocab_size=words, special_tokens=[END], initial_alphabet=sorted(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)


def encoded(rows: Sequence[Row], tokenizer: Any, template: str, longest: int) -> Iterator[Tokens | None]:
    """Each row's tokens, cut to ``longest``; None for a row whose answer would be cut off completely.

    Prompt and answer are tokenised separately, so that no token spans both.
    """
    begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    prompts = token_ids(tokenizer, [row.prompt(template) for row in rows])
    answers = token_ids(tokenizer, [row.output for row in rows])
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = torch.tensor([*begin, *prompt, *answer, tokenizer.eos_token_id][:longest])
        targets_from = len(begin) + len(prompt)
        if targets_from >= len(ids):
            yield None
        else:
            labels = ids.clone()
            labels[:targets_from] = IGNORED
            yield Tokens(ids, labels)


def token_ids(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """The tokens of each text, without begin and end tokens."""
    ids: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    return ids


# -- batches --------------------------------------------------------------------------------------------------------


def padded(rows: Sequence[Tokens]) -> dict[str, Tensor]:
    """A batch with a row per line, padded at the end."""
    length = max(len(row.ids) for row in rows)
    batch = {
        "input_ids": torch.zeros(len(rows), length, dtype=torch.int64),
        "labels": torch.full((len(rows), length), IGNORED),
    }
    for i, row in enumerate(rows):
        batch["input_ids"][i, : len(row.ids)] = row.ids
        batch["labels"][i, : len(row.ids)] = row.labels
    return batch


def packed(rows: Sequence[Tokens]) -> dict[str, Tensor]:
    """A batch with all rows end to end in one line; positions start again at 0 where a new row begins."""
    lengths = torch.tensor([len(row.ids) for row in rows])
    return {
        "input_ids": torch.cat([row.ids for row in rows])[None],
        "labels": torch.cat([row.labels for row in rows])[None],
        "position_ids": torch.cat([torch.arange(length) for length in lengths.tolist()])[None],
        "lengths": lengths,
    }
