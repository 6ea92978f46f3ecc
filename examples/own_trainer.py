"""A training function of your own, compared over methods and seeds; the Hugging Face Trainer.

    infobatch compare examples/own_trainer.py:train --methods full,infobatch --seeds 5 --metric accuracy --lower loss

A small BERT, made from its config, learns whether a sequence of tokens has more low ones than high ones: nothing is
downloaded. A run that was killed goes on from the Trainer's last checkpoint in its folder.
"""

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import infobatch
from infobatch.integrations.transformers import INDEX_KEY, InfoBatchTrainer

EPOCHS, SAMPLES, LENGTH, WORDS = 4, 600, 12, 50


def train(trial: infobatch.Trial) -> dict[str, float]:
    """Train a small BERT, and return what it is judged by."""
    train_data = trial.prune(sequences(SAMPLES, seed=0), EPOCHS, index_key=INDEX_KEY)  # 1
    torch.manual_seed(trial.seed)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForSequenceClassification(BertConfig(vocab_size=WORDS, num_labels=2, **size))
    args = TrainingArguments(
        str(trial.folder),
        num_train_epochs=train_data.num_epochs,  # 2: shortened schedules have fewer
        per_device_train_batch_size=20,
        learning_rate=2e-3,
        seed=trial.seed,
        save_strategy="epoch",
        save_total_limit=1,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = InfoBatchTrainer(
        model,
        args,
        train_dataset=train_data,
        eval_dataset=sequences(400, seed=1),
        compute_metrics=accuracy,
        keep_steps=trial.steps_stay,  # 3
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(trial.folder)))
    found = trainer.evaluate()
    return {"accuracy": found["eval_accuracy"], "loss": found["eval_loss"]}  # 4


def sequences(count: int, seed: int) -> list[dict[str, object]]:
    """Random tokens, and whether most of them are in the lower half."""
    tokens = torch.randint(1, WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(seed))
    labels = (tokens < WORDS // 2).float().mean(1) > 0.5
    return [{"input_ids": row.tolist(), "label": int(label)} for row, label in zip(tokens, labels, strict=True)]


def accuracy(predictions: tuple) -> dict[str, float]:
    logits, labels = predictions
    return {"accuracy": 100 * float((logits.argmax(1) == labels).mean())}
