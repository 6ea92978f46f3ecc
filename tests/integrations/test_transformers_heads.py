"""Every task head of transformers trains as by Trainer itself, or says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate
from transformers import GPT2Config, GPT2LMHeadModel, default_data_collator

from distributed.training import differences
from integrations.transformers_heads import GPT, HEADS, LARGE, NO_LOSS_OF_THEIR_OWN, Head, mappings
from integrations.transformers_run import TEXTS, WORDS, Plain, Pruned, Rows, arguments, result, weights_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Tensors stacked; boxes, of which there may be any number, and flags of the model as they are."""
    as_they_are = {name for name, value in samples[0].items() if isinstance(value, dict | bool)}
    batch = default_collate([{k: v for k, v in sample.items() if k not in as_they_are} for sample in samples])
    for name in as_they_are:
        values = [sample[name] for sample in samples]
        batch[name] = values[0] if isinstance(values[0], bool) else values
    return batch


def train(kind: type, head: Head, folder: Path, orders: list[list[int]] | None = None, **options: Any) -> Any:
    args = arguments(folder, num_train_epochs=2, remove_unused_columns=False, optim="sgd", learning_rate=0.1)
    trainer = kind(head.make(), args, train_dataset=Rows(head.samples()), data_collator=collate, **options)
    if orders is not None:
        trainer.orders = orders
    trainer.train()
    return trainer


def blocks() -> Rows:
    """Texts laid end to end and cut into blocks, as by ``run_clm.py``: the labels are the inputs."""
    ids = [word for text in TEXTS for word in [*WORDS(text)["input_ids"], WORDS.eos_token_id]]
    return Rows([{"input_ids": ids[i : i + 8], "labels": ids[i : i + 8]} for i in range(0, len(ids) - 8, 8)])


def gpt2(**options: Any) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(**{**GPT, "vocab_size": len(WORDS), **options}))


def test_run_clm_as_it_is(tmp_path: Path) -> None:
    """A new GPT-2 on blocks of text: pruned, with dropout, saved and resumed."""

    def make() -> Pruned:
        args = arguments(tmp_path, save_strategy="steps", save_steps=5, num_train_epochs=3)
        model = gpt2(resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
        return Pruned(model, args, train_dataset=blocks(), data_collator=default_data_collator, pruning={"delta": 0.7})

    whole = make()
    whole.train()
    assert whole.train_data.stats.saved > 0
    resumed = make()
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-15"))
    assert differences(result(whole), result(resumed)) == []


class Steps(GPT2LMHeadModel):
    """Whose losses are the same at every token at first, so that they cannot show which label is predicted."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__(config)
        self.lm_head.weight.data.zero_()


def test_which_label_is_predicted_is_not_told_by_losses(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = Steps(GPT2Config(**{**GPT, "vocab_size": len(WORDS)}, tie_word_embeddings=False)), blocks()
    args = arguments(tmp_path, num_train_epochs=9)
    trainer = Pruned(model, args, train_dataset=data, data_collator=default_data_collator, pruning={"method": "full"})
    trainer.train()
    model.train()
    last = [i for _, batch in trainer.trace.samples[-1:] for i in batch]
    each = [float(model(**default_data_collator([data[i]]))["loss"]) for i in last]
    assert max(each) < 0.8 * np.log(len(WORDS))  # it has learned, and tells one label from another
    assert trainer.train_data.scores[last].tolist() == pytest.approx(each, rel=0.1)  # but for the last step


QUESTIONS = {
    "inside": [(1, 2), (3, 3), (0, 7), (5, 6)],
    "outside": [(1, 2), (8, 8), (99, 99), (5, 6)],
    "negative": [(-1, 2), (3, 3), (4, 4), (5, 6)],  # which the model takes for 0
}


@pytest.mark.parametrize("where", QUESTIONS)
def test_rows_whose_answer_lies_outside(where: str, tmp_path: Path) -> None:
    rows = [
        {"input_ids": list(range(3, 11)), "start_positions": start, "end_positions": end}
        for start, end in QUESTIONS[where]
    ]
    losses = []
    for kind in (Pruned, Plain):
        args = arguments(tmp_path, num_train_epochs=3, per_device_train_batch_size=4, optim="sgd", learning_rate=0.5)
        pruning = {"pruning": {"method": "full"}} if kind is Pruned else {}
        trainer = kind(HEADS["QUESTION_ANSWERING"].make(), args, train_dataset=Rows(rows), **pruning)
        if kind is Plain:
            trainer.orders = [[0, 1, 2, 3]] * 3
        trainer.train()
        losses.append(trainer.trace.losses)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_first_batch_without_a_target_tells_nothing(tmp_path: Path) -> None:
    """The next one is looked at."""
    data = [{"input_ids": list(range(3, 11)), "start_positions": 9, "end_positions": 9}] * 6
    trainer = Pruned(
        HEADS["QUESTION_ANSWERING"].make(), arguments(tmp_path, num_train_epochs=1), train_dataset=Rows(data)
    )
    trainer.train()
    assert not trainer._loss_is_known
    assert trainer.train_data.scores.tolist() == [0.0] * 6
    trainer = Pruned(HEADS["QUESTION_ANSWERING"].make(), trainer.args, train_dataset=Rows([*data, *ANSWERED]))
    trainer.train()
    assert trainer._loss_is_known
    assert trainer.train_data.scores[:6].tolist() == [0.0] * 6
    assert trainer.train_data.scores[6:].min() > 0


ANSWERED = [{"input_ids": list(range(3, 11)), "start_positions": 1, "end_positions": 2}] * 6


def test_half_an_answer_is_refused(tmp_path: Path) -> None:
    rows = [{"input_ids": list(range(3, 11)), "start_positions": 1, "end_positions": end} for end in (2, 8, 3)]
    trainer = Pruned(HEADS["QUESTION_ANSWERING"].make(), arguments(tmp_path), train_dataset=Rows(rows))
    with pytest.raises(ValueError, match="one is inside the row and the other outside"):
        trainer.train()


def test_no_head_is_left_out() -> None:
    tried = {name for name in HEADS if name.isupper()}
    assert mappings() == tried | NO_LOSS_OF_THEIR_OWN | LARGE


# One of each way in which losses are made; `make slow` tries the others.
QUICK = {"CAUSAL_LM", "XLNetLMHeadModel", "CAUSAL_IMAGE_MODELING", "MASKED_LM", "QUESTION_ANSWERING", "MULTIPLE_CHOICE"}
QUICK |= {"SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
        for name, head in HEADS.items()
        if head.refused is None
    ],
)
def test_a_head_that_trains_does_so_as_by_trainer_itself(name: str, tmp_path: Path) -> None:
    ours = train(Pruned, HEADS[name], tmp_path, pruning={"method": "full"})
    orders = [[i for e, batch in ours.trace.samples if e == epoch for i in batch] for epoch in range(2)]
    theirs = train(Plain, HEADS[name], tmp_path, orders)
    assert ours.trace.losses == pytest.approx(theirs.trace.losses, rel=1e-4)
    assert len(set(ours.trace.losses)) > 3
    for one, other in zip(weights_of(ours.model).values(), weights_of(theirs.model).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", [name for name, head in HEADS.items() if head.refused is not None])
def test_a_head_that_does_not_train_says_why(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="computes its loss in a way that is not known") as error:
        train(Pruned, HEADS[name], tmp_path)
    error.match(HEADS[name].refused)
    error.match("compute_loss_func")
