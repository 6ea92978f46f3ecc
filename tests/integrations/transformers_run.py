"""Small trainings with Hugging Face's Trainer, and what can be seen of them; as a script, on two processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.trainer_callback import ProgressCallback

from infobatch.integrations.transformers import InfoBatchTrainer
from infobatch.lab.data import fashion

TEXTS = """The sun rises in the east and sets in the west.
Water boils at a lower temperature in the mountains.
Bread is made of flour, water, salt and yeast.
A triangle has three sides.
Birds fly south before the winter comes.
The river runs from the mountains to the sea.
Salt makes ice melt.
She reads the letter twice and puts it in the drawer.
Rain falls.
The train to the coast leaves at noon and comes back before the sun sets.
Bees make honey.
He paints the door of the house green.
Snow covers the mountains in winter.
The cat sleeps on the chair by the door.
Ships cross the sea with salt, flour and honey.
The moon has no light of its own.
A square has four sides, and all of them are equal.
Children run down to the river in the summer.
The baker opens the door of the shop before the sun rises.
Ice is lighter than water.
The letter comes from a town in the west.
Birds sing at noon.
Yeast makes the bread rise.""".splitlines()

KEY = "sample_index"


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per word."""
    split = pre_tokenizers.Whitespace()
    words = sorted({word for text in TEXTS for word, _ in split.pre_tokenize_str(text)})
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<unk>", "<eos>", *words])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = split
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>")


WORDS = tokenizer()
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


class Rows(torch.utils.data.Dataset):
    """Samples as Trainer takes them."""

    def __init__(self, samples: list[dict[str, Any]]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.samples[index]


def texts() -> Rows:
    """Rows to continue: every word is a label."""
    ids = [WORDS(text)["input_ids"] for text in TEXTS]
    return Rows([{"input_ids": row, "labels": row} for row in ids])


def questions() -> Rows:
    """Is it about water? As classes, with the text as input."""
    wet = {"water", "Water", "river", "sea", "Rain", "Ice", "ice", "Snow", "Ships"}
    words = [text.rstrip(".").split() for text in TEXTS]
    return Rows([{"input_ids": WORDS(" ".join(row))["input_ids"], "label": int(bool(wet & set(row)))} for row in words])


def pictures(count: int = 23) -> Rows:
    split = fashion.load().train.head(count)
    images = torch.from_numpy(split.images).float().reshape(-1, 1, 28, 28) / 255
    return Rows([{"pixel_values": x, "labels": int(y)} for x, y in zip(images, split.labels, strict=True)])


def causal_model(dropout: float = 0.0, seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        **SMALL, vocab_size=len(WORDS), attention_dropout=dropout, pad_token_id=0, max_position_embeddings=256
    )
    return LlamaForCausalLM(config)


def classifier(dropout: float = 0.0, **options: Any) -> BertForSequenceClassification:
    torch.manual_seed(0)
    off = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": 0.0}
    return BertForSequenceClassification(
        BertConfig(**SMALL, **off, vocab_size=len(WORDS), **{"num_labels": 2, **options})
    )


def vision_model() -> ViTForImageClassification:
    torch.manual_seed(0)
    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return ViTForImageClassification(
        ViTConfig(**SMALL, **off, image_size=28, patch_size=7, num_channels=1, num_labels=10)
    )


def translator() -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(WORDS), d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config)


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    usual = {
        "per_device_train_batch_size": 3,
        "num_train_epochs": 4,
        "learning_rate": 0.01,
        "max_grad_norm": 0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(str(folder), **{**usual, **options})


class Trace(TrainerCallback):
    """What was seen of a training: of each step its epoch, learning rate, and the steps expected in all."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, list[int]]] = []  # of each batch: epoch, indices
        self.losses: list[float] = []  # of each batch
        self.steps: list[tuple[float, float, int]] = []  # state.epoch, learning rate, state.max_steps
        self.bars: list[tuple[int, int]] = []  # of each step: done, total
        self.left_over: list[float] = []  # gradients at each epoch's end
        self.evaluations = 0
        self._rate = 0.0
        self.trainer: Any = None

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._rate = kwargs["optimizer"].param_groups[0]["lr"]

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.steps.append((state.epoch, self._rate, state.max_steps))
        for callback in self.trainer.callback_handler.callbacks:
            if isinstance(callback, ProgressCallback) and callback.training_bar is not None:
                self.bars.append((state.global_step, callback.training_bar.total))

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.left_over.append(sum(float(p.grad.abs().sum()) for p in model.parameters() if p.grad is not None))

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        self.evaluations += 1


class Traced:
    """A trainer that keeps a trace: stands before the others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.trace = Trace()
        super().__init__(*args, **kwargs, callbacks=[self.trace])
        self.trace.trainer = self

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        if KEY in inputs:
            self.trace.samples.append((self.train_dataset.epoch, inputs[KEY]["index"].tolist()))
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.trace.losses.append(float(loss))
        return loss


class Pruned(Traced, InfoBatchTrainer):
    """Ours."""


class Plain(Traced, Trainer):
    """Theirs, with the orders of ours."""

    orders: list[list[int]]

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return _Orders(self.orders)


class _Orders(torch.utils.data.Sampler):
    """One order after the other."""

    def __init__(self, orders: list[list[int]]) -> None:
        self.orders, self.at = orders, 0

    def __iter__(self) -> Any:
        self.at += 1
        return iter(self.orders[self.at - 1])

    def __len__(self) -> int:
        return len(self.orders[0])


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def history(trainer: Any) -> list[dict[str, float]]:
    """What was logged, less what depends on the clock."""
    timed = ("runtime", "per_second", "total_flos", "train_loss")
    return [{k: v for k, v in entry.items() if not any(t in k for t in timed)} for entry in trainer.state.log_history]


def result(trainer: Any) -> dict[str, Any]:
    """How a training ended, to the last bit."""
    state = trainer.train_data.state_dict()
    return {
        "weights": weights_of(trainer.model),
        "scores": state["scores"],
        "epochs": [[e.epoch, e.kept, e.seen] for e in trainer.train_data.stats.epochs],
        "rate": trainer.lr_scheduler.get_last_lr(),
        "state": [trainer.state.global_step, trainer.state.epoch, trainer.state.max_steps],
    }


def two_process_run(folder: Path, processes: int, keep_steps: bool = False, rate: float = 0.1) -> Pruned:
    """A training of 4 rows a batch in all, two batches a step; 23 rows leave one process short."""
    args = arguments(
        folder,
        per_device_train_batch_size=4 // processes,
        gradient_accumulation_steps=2,
        optim="sgd",
        learning_rate=rate,
        save_strategy="steps",
        save_steps=1,
        eval_strategy="epoch",
    )
    collate = DataCollatorForSeq2Seq(WORDS)
    data = {"train_dataset": texts(), "eval_dataset": texts()}
    pruning = {"delta": 0.75, "ratio": 0.6}
    return Pruned(causal_model(), args, data_collator=collate, **data, pruning=pruning, keep_steps=keep_steps)


def whole_and_resumed(folder: Path, keep_steps: bool) -> dict[str, Any]:
    """Train, and train once more from a checkpoint in mid-epoch."""
    whole = two_process_run(folder, 2, keep_steps)
    whole.train()
    step = 1 + next(i for i, (epoch, *_) in enumerate(whole.trace.steps, 1) if epoch == 2.0)
    resumed = two_process_run(folder, 2, keep_steps)
    resumed.train(resume_from_checkpoint=str(folder / f"checkpoint-{step}"))
    return {
        "rank": whole.args.process_index,
        "whole": result(whole),
        "resumed": result(resumed),
        "samples": whole.trace.samples,
        "steps": whole.trace.steps,
        "evaluations": whole.trace.evaluations,
        "step": step,
        "same place": resumed.trace.steps == whole.trace.steps[step:],
    }


def main(folder: Path) -> None:
    """Under torchrun: train in both ways, and write down what was seen."""
    refused = ""
    try:
        args = arguments(folder, average_tokens_across_devices=False)
        InfoBatchTrainer(classifier(), args, train_dataset=questions())
    except ValueError as error:
        refused = str(error)
    found = {**whole_and_resumed(folder, keep_steps=False), "refused": refused}
    found["stay"] = whole_and_resumed(folder / "stay", keep_steps=True)
    still = two_process_run(folder / "still", 2, keep_steps=True, rate=0.0)
    still.train()
    found["stay"]["scores of a model that stands still"] = result(still)["scores"].tolist()
    torch.save(found, folder / f"rank-{found['rank']}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
