"""Hugging Face Trainer: ``InfoBatchTrainer`` in place of ``Trainer``, and ``pruning=`` with what InfoBatch is to do.

    python examples/hf_trainer.py

A small BERT, made from its config, learns from which part of Python's standard library a line of documentation comes.
Nothing is downloaded: the lines are read from the interpreter itself, and the tokenizer knows the words in them.
"""

import argparse
import collections
import importlib
import inspect
import random
import tempfile

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    TrainingArguments,
)

from infobatch.integrations.transformers import InfoBatchTrainer

MODULES = [
    "argparse",
    "datetime",
    "decimal",
    "email.message",
    "logging",
    "pathlib",
    "socket",
    "subprocess",
    "unittest.mock",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=2_000)
    options = parser.parse_args()

    lines = [(line, label) for label, name in enumerate(MODULES) for line in documentation(name)]
    random.Random(0).shuffle(lines)
    tokenizer = words_of(line for line, _ in lines)
    rows = [
        {"input_ids": tokenizer(line, max_length=32, truncation=True)["input_ids"], "label": y} for line, y in lines
    ]
    held_out = len(rows) // 5

    torch.manual_seed(0)
    size = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), num_labels=len(MODULES), **size))
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            learning_rate=2e-3,
            eval_strategy="epoch",
            logging_strategy="epoch",
            save_strategy="no",
            report_to="none",
        )
        trainer = InfoBatchTrainer(
            model,
            args,
            data_collator=DataCollatorWithPadding(tokenizer),
            train_dataset=rows[held_out:][: options.samples],
            eval_dataset=rows[:held_out],
            compute_metrics=accuracy,
            pruning={"ratio": 0.5, "delta": 0.875},
        )
        trainer.train()
        print(trainer.train_data.summary())
        print(f"accuracy on {held_out} held-out lines: {trainer.evaluate()['eval_accuracy']:.1%}")


def documentation(name: str) -> list[str]:
    """The lines of a module's documentation that say something."""
    module = importlib.import_module(name)
    owners = [module, *(thing for thing in vars(module).values() if getattr(thing, "__module__", None) == name)]
    found: dict[str, None] = {}
    for owner in owners:
        for thing in [owner, *vars(owner).values()] if inspect.isclass(owner) else [owner]:
            text = getattr(thing, "__doc__", None)
            for line in text.splitlines() if isinstance(text, str) else []:
                if len(line.split()) >= 4:
                    found[line.strip()] = None
    return list(found)


def words_of(lines: collections.abc.Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with one token per word."""
    normalizer, splitter = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    counts = collections.Counter(
        word for line in lines for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(line))
    )
    words = ["<pad>", "<unk>", *(word for word, count in counts.most_common() if count > 1)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")


def accuracy(predictions: tuple) -> dict[str, float]:
    logits, labels = predictions
    return {"accuracy": float((logits.argmax(1) == labels).mean())}


if __name__ == "__main__":
    main()
