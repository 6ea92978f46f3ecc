"""TRL's SFTTrainer: ``InfoBatchMixin`` before it, and rows that are packed.

    python examples/sft.py

A small LLaMA, made from its config, learns to continue the documentation of Python's standard library. Nothing is
downloaded: the text is read from the interpreter itself, and the tokenizer knows the words it is made of. SFTTrainer
tokenises and packs the text; what is pruned, weighed and scored are the packed rows.
"""

import argparse
import collections
import importlib
import inspect
import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from infobatch.integrations.transformers import InfoBatchMixin

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


class PrunedSFTTrainer(InfoBatchMixin, SFTTrainer):
    """SFTTrainer that trains on fewer rows."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--texts", type=int, default=400)
    options = parser.parse_args()

    texts = [text for name in MODULES for text in documentation(name)][: options.texts]
    tokenizer = words_of(texts)
    torch.manual_seed(0)
    size = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **size))
    with tempfile.TemporaryDirectory() as folder:
        args = SFTConfig(
            folder,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            learning_rate=5e-3,
            packing=True,
            max_length=64,
            logging_strategy="epoch",
            save_strategy="no",
            report_to="none",
            bf16=False,
        )
        data = Dataset.from_dict({"text": texts})
        trainer = PrunedSFTTrainer(
            model, args, train_dataset=data, processing_class=tokenizer, pruning={"ratio": 0.5, "delta": 0.875}
        )
        trainer.train()
        print(trainer.train_data.summary())
        scores = trainer.train_data.scores
        print(f"{len(texts)} texts in {len(scores)} packed rows, mean token loss {scores.mean():.2f}")


def documentation(name: str) -> list[str]:
    """The texts with which a module documents what is in it."""
    module = importlib.import_module(name)
    owners = [module, *(thing for thing in vars(module).values() if getattr(thing, "__module__", None) == name)]
    things = [thing for owner in owners for thing in [owner, *(vars(owner).values() if inspect.isclass(owner) else [])]]
    texts = (getattr(thing, "__doc__", None) for thing in things)
    return list(dict.fromkeys(inspect.cleandoc(text) for text in texts if isinstance(text, str) and len(text) > 40))


def words_of(texts: list[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with one token per word."""
    splitter = pre_tokenizers.Whitespace()
    counts = collections.Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(text))
    words = ["<pad>", "<unk>", "<eos>", *(word for word, count in counts.most_common() if count > 1)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = splitter
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<eos>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


if __name__ == "__main__":
    main()
