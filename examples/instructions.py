"""Instruction tuning with LoRA: ``InfoBatchTrainer``, Alpaca-format rows, targets in the answers only.

    python examples/instructions.py                          # rows below each other, padded
    python examples/instructions.py --packed                 # rows end to end, nothing is padded
    python examples/instructions.py --data alpaca_data.json --rows dq.json

A small LLaMA, made from its config, first reads plain text; then its weights are frozen, and adapters learn to answer.
Nothing is downloaded: without ``--data`` the questions are about Python's standard library, read from the interpreter.
``--rows`` names a subset that was selected before (table 9 of the paper: dataset quantization, then InfoBatch).
"""

import argparse
import importlib
import inspect
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    DataCollatorForSeq2Seq,
    DataCollatorWithFlattening,
    LlamaConfig,
    LlamaForCausalLM,
    TrainingArguments,
)

from infobatch.integrations.transformers import InfoBatchTrainer
from infobatch.lab.data import alpaca
from infobatch.lab.tasks.instructions import exact_matches

MODULES = ["argparse", "datetime", "decimal", "email.message", "logging", "pathlib", "socket", "subprocess"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a file in the format of Alpaca: .json, .jsonl, .jsonl.gz")
    parser.add_argument("--rows", help="a file of row numbers, to train on these only")
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=600)
    parser.add_argument("--base-steps", type=int, default=150)
    options = parser.parse_args()

    rows = alpaca.read(options.data) if options.data else questions()
    test, rows = rows[::10], [row for i, row in enumerate(rows) if i % 10]
    tokenizer = alpaca.train_tokenizer((row.prompt("short") + row.output for row in rows), 1024)
    numbers = alpaca.read_numbers(options.rows, Path(), len(rows)) if options.rows else range(len(rows))
    train_rows = as_trainer_takes_them([rows[i] for i in numbers][: options.samples], tokenizer)
    test_rows = as_trainer_takes_them(test[:200], tokenizer)

    base = pretrained([f"{row.instruction}\n{row.input}\n{row.output}" for row in rows], tokenizer, options.base_steps)
    adapters = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(base, adapters)
    model.print_trainable_parameters()
    collate = DataCollatorWithFlattening() if options.packed else DataCollatorForSeq2Seq(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=16,
            learning_rate=5e-3,
            lr_scheduler_type="cosine",
            eval_strategy="epoch",
            logging_strategy="epoch",
            save_strategy="no",
            report_to="none",
            prediction_loss_only=True,
        )
        trainer = InfoBatchTrainer(
            model,
            args,
            data_collator=collate,
            train_dataset=train_rows,
            eval_dataset=test_rows,
            pruning={"ratio": 0.5, "delta": 0.875},
        )
        before = trainer.evaluate()["eval_loss"]
        trainer.train()
        print(trainer.train_data.summary())
        print(f"held-out loss per token: {before:.2f} before, {trainer.evaluate()['eval_loss']:.2f} after")
        print(f"held-out answers given word for word: {probe(model, test_rows):.1%} of {len(test_rows)}")


def as_trainer_takes_them(rows: list[alpaca.Row], tokenizer) -> list[dict[str, list[int]]]:
    found = alpaca.encoded(rows, tokenizer, "short", longest=96)
    return [{"input_ids": row.ids.tolist(), "labels": row.labels.tolist()} for row in found if row is not None]


def pretrained(texts: list[str], tokenizer, steps: int) -> LlamaForCausalLM:
    """A model that has read the texts: what would be downloaded elsewhere."""
    torch.manual_seed(0)
    size = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), bos_token_id=None, **size))
    ids = torch.tensor([i for text in alpaca.token_ids(tokenizer, texts) for i in (*text, tokenizer.eos_token_id)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        starts = torch.randint(len(ids) - 64, (16,))
        block = ids[starts[:, None] + torch.arange(64)]
        optimizer.zero_grad()
        model(input_ids=block, labels=block).loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def probe(model: torch.nn.Module, rows: list[dict[str, list[int]]]) -> float:
    """The share of the answers that greedy decoding gives word for word."""
    model.eval()
    batch = alpaca.padded([alpaca.Tokens(*(torch.tensor(row[key]) for key in ("input_ids", "labels"))) for row in rows])
    device = next(model.parameters()).device
    logits = model(input_ids=batch["input_ids"].to(device)).logits
    return exact_matches(logits.cpu(), batch["labels"]).float().mean().item()


def questions() -> list[alpaca.Row]:
    """What is in the standard library, and what it says about itself."""
    found = []
    for name in MODULES:
        module = importlib.import_module(name)
        for owner in [thing for thing in vars(module).values() if getattr(thing, "__module__", None) == name]:
            inside = vars(owner) if inspect.isclass(owner) else {}
            for key, thing in {getattr(owner, "__name__", "_"): owner, **inside}.items():
                text = inspect.getdoc(thing) if callable(thing) and not key.startswith("_") else None
                if text:
                    found.append(alpaca.Row("Which module has this in it?", key, name))
                    found.append(alpaca.Row("Say what it does.", f"{name}: {key}", text.splitlines()[0]))
    return found


if __name__ == "__main__":
    main()
