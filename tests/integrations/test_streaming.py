"""Hugging Face's Trainer on streams: what is trained on, weights, checkpoints, errors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from infobatch import Stream
from infobatch.integrations.streaming import StreamTrainer
from infobatch.integrations.transformers import InfoBatchTrainer


def rows() -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    for number in range(400):
        kind = number % 2  # one half is the same token over and over, which is soon known
        tokens = torch.randint(3, 30, (12,), generator=generator) if kind else torch.full((12,), 7)
        yield {"input_ids": tokens.tolist(), "labels": tokens.tolist(), "kind": "random" if kind else "same"}


def data() -> Any:
    return datasets.IterableDataset.from_generator(rows)


def kind_of(row: dict[str, Any]) -> str:
    return str(row["kind"])


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, max_position_embeddings=16, **sizes))


def arguments(folder: Path, **more: Any) -> TrainingArguments:
    common = {"per_device_train_batch_size": 4, "learning_rate": 1e-2, "max_steps": 60, "report_to": []}
    silent = {"disable_tqdm": True, "logging_steps": 10, "save_strategy": "no", "use_cpu": True}
    return TrainingArguments(str(folder), **{**common, **silent, **more})


def trained(folder: Path, resume: str | None = None, **more: Any) -> StreamTrainer:
    streaming = {"key": kind_of, "noise": 0.3, "every": 4}
    trainer = StreamTrainer(model(), arguments(folder, **more), train_dataset=data(), streaming=streaming)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_what_is_known_is_left_out(tmp_path: Path) -> None:
    trainer = trained(tmp_path)
    stats = trainer.train_data.stats
    kept = {key.name: key.keep for key in stats.keys}
    assert kept["same"] < kept["random"]
    assert stats.trained == 240
    assert stats.saving > 0.05
    assert trainer.state.global_step == 60
    logged = [entry for entry in trainer.state.log_history if "infobatch/saving" in entry]
    assert logged[-1]["infobatch/saving"] > 0
    assert logged[-1]["infobatch/noise"] >= 1


def test_without_anything_left_out_it_is_trainers_own_training(tmp_path: Path) -> None:
    stream = Stream(data(), key=kind_of, every=10_000, scale="steps")
    ours = StreamTrainer(model(), arguments(tmp_path, max_steps=12), train_dataset=stream)
    ours.train()
    theirs = Trainer(model(), arguments(tmp_path, max_steps=12), train_dataset=data())
    theirs.train()
    pairs = zip(ours.model.parameters(), theirs.model.parameters(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_checkpoint_goes_on_bit_for_bit(tmp_path: Path, accumulation: int) -> None:
    saves = {"save_strategy": "steps", "save_steps": 13, "max_steps": 40, "gradient_accumulation_steps": accumulation}
    whole = trained(tmp_path / "whole", **saves)
    after = trained(tmp_path / "after", resume=str(tmp_path / "whole" / "checkpoint-13"), **saves)
    pairs = zip(whole.model.parameters(), after.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert whole.train_data.summary() == after.train_data.summary()
    assert after.state.epoch == whole.state.epoch == 1.0


def test_wrong_arguments_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="streaming must hold key, id or look"):
        StreamTrainer(model(), arguments(tmp_path), train_dataset=data())
    with pytest.raises(TypeError, match="pruning is for InfoBatchTrainer"):
        StreamTrainer(model(), arguments(tmp_path), train_dataset=data(), pruning={}, streaming={"key": kind_of})
    stream = Stream(data(), key=kind_of)
    with pytest.raises(TypeError, match="is a Stream already"):
        StreamTrainer(model(), arguments(tmp_path), train_dataset=stream, streaming={"key": kind_of})
    with pytest.raises(TypeError, match=r"StreamTrainer of infobatch\.integrations\.streaming"):
        InfoBatchTrainer(model(), arguments(tmp_path), train_dataset=data())
