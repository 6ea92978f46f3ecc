"""Instruction tuning as a task of the lab: a causal language model learns to answer (table 9 of the paper)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ...integrations import needs
from ...records import Measure
from ...scoring.language import IGNORED, RowLosses, row_losses
from ..data import alpaca
from ..data.alpaca import Encoded, Row, Tokens
from ..recipe import Recipe
from .device import autocast, choose_device, using_generator
from .rows import take_rows
from .task import Task

# LLaMA from its config: a size that one CPU core trains.
MODELS: dict[str, dict[str, int]] = {
    "llama-tiny": {
        "hidden_size": 128,
        "intermediate_size": 344,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
}
HUGGING_FACE = "hf:"  # prefix of a model that transformers reads, with its tokenizer: hf:<name or folder>
PROBE_TOKENS = 8  # the exact-match probe asks for answers of up to this many tokens, the end token included
_TEST_BATCH = 64
_BASE_SEED, _BASE_BATCH, _BASE_LR = 0, 32, 4e-3


@dataclass(frozen=True)
class InstructionRecipe(Recipe):
    """A recipe for instruction tuning.

    ``rows`` names a file of row numbers to train on (see ``alpaca.read_numbers``), for a subset selected before; "" is
    all rows. The last ``held_out`` rows are never trained on. For a model from its config, a tokenizer of ``words``
    tokens is made, and before any run the model is trained for ``base_epochs`` on the plain text of up to ``base_rows``
    other rows: all runs start from this base. ``lora`` is the rank of the adapters that are trained in place of the
    base; 0 trains the base itself. ``packed`` lays the rows of a batch end to end instead of padding them.
    """

    task: ClassVar[str] = "instructions"
    choices: ClassVar[dict[str, Iterable[str]]] = {
        **Recipe.choices,
        "dataset": (alpaca.NAME,),
        "model": tuple(MODELS),
        "template": tuple(alpaca.TEMPLATES),
    }

    template: str = "alpaca"
    max_tokens: int = 512
    words: int = 2048
    rows: str = ""
    held_out: int = 1000
    base_rows: int = 0
    base_epochs: int = 0
    lora: int = 0
    packed: bool = False

    def _is_choice(self, name: str) -> bool:
        return not (name == "model" and self.model.startswith(HUGGING_FACE))

    def create_task(self, data: Path | None = None) -> Instructions:
        rows, path = alpaca.load(data)
        return Instructions(self, rows, path.parent)


class Instructions(Task):
    """Instruction tuning as the training loop sees it; ``beside`` is a folder for the file of row numbers."""

    metric = "held-out loss per token"
    higher_is_better = False

    def __init__(
        self,
        recipe: InstructionRecipe,
        rows: list[Row],
        beside: Path = Path(),
        device: torch.device | str | None = None,
    ) -> None:
        self.recipe = recipe
        self.device = choose_device(recipe.precision, device)
        first_held_out = len(rows) - recipe.held_out
        if not 0 < first_held_out < len(rows):
            raise ValueError(f"held_out must be from 1 to {len(rows) - 1}, fewer than the rows, got {recipe.held_out}")
        chosen = alpaca.read_numbers(recipe.rows, beside, len(rows)) if recipe.rows else range(first_held_out)
        numbers = [number for number in chosen if number < first_held_out][: recipe.samples]
        self.tokenizer = self._tokenizer(rows[:first_held_out])
        self.train = Encoded(self._encode([rows[number] for number in numbers]))
        self.test = self._encode(rows[first_held_out:])
        if not len(self.train) or not self.test:
            raise ValueError(
                f"max_tokens must leave room for answers, got {recipe.max_tokens}, which leaves a token of the answer "
                f"in {len(self.train)} training rows and {len(self.test)} held-out rows: raise it"
            )
        trained_on = set(numbers)
        self._base_text = [rows[number] for number in range(first_held_out) if number not in trained_on][
            : recipe.base_rows
        ]
        # The mean number of targets in a training row. Losses are divided by it: their mean is then the mean per token.
        self.mean_targets = sum(row.targets for row in self.train.rows) / len(self.train)

    # -- batches ------------------------------------------------------------------------------------------------

    def collate(self, batch: list[Tokens]) -> dict[str, Tensor]:  # type: ignore[override]  # only called on a task
        """The rows of a batch, padded or packed."""
        return alpaca.packed(batch) if self.recipe.packed else alpaca.padded(batch)

    def _tokenizer(self, rows: list[Row]) -> Any:
        if self.recipe.model.startswith(HUGGING_FACE):
            with needs("transformers", "transformers"):
                from transformers import AutoTokenizer
            return AutoTokenizer.from_pretrained(self.recipe.model.removeprefix(HUGGING_FACE))
        texts = (row.prompt(self.recipe.template) + row.output for row in rows)
        return alpaca.train_tokenizer(texts, self.recipe.words)

    def _encode(self, rows: list[Row]) -> list[Tokens]:
        """The rows as tokens, without rows whose prompt leaves no room for an answer."""
        encoded = alpaca.encoded(rows, self.tokenizer, self.recipe.template, self.recipe.max_tokens)
        return [row for row in encoded if row is not None]

    # -- the model ----------------------------------------------------------------------------------------------

    def model(self, seed: int) -> nn.Module:
        """A copy of the base, or a newly initialised model; with adapters if the recipe asks for them."""
        recipe = self.recipe
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            from_base = recipe.base_epochs or recipe.model.startswith(HUGGING_FACE)
            model: nn.Module = copy.deepcopy(self.base) if from_base else self._llama()
            if recipe.lora:
                with needs("peft", "transformers"):
                    from peft import LoraConfig, get_peft_model
                adapters = LoraConfig(
                    r=recipe.lora, lora_alpha=2 * recipe.lora, target_modules="all-linear", task_type="CAUSAL_LM"
                )
                model = get_peft_model(model, adapters)
        return model.to(self.device)

    @cached_property
    def base(self) -> nn.Module:
        """The model that all runs start from: read from a folder or hub, or trained on plain text from one seed."""
        recipe = self.recipe
        if recipe.model.startswith(HUGGING_FACE):
            with needs("transformers", "transformers"):
                from transformers import AutoModelForCausalLM
            read: nn.Module = AutoModelForCausalLM.from_pretrained(recipe.model.removeprefix(HUGGING_FACE))
            return read
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(_BASE_SEED)
            model = self._llama().to(self.device)
        self._train_on_text(model, self._blocks())
        return model

    def _llama(self) -> nn.Module:
        with needs("transformers", "transformers"):
            from transformers import LlamaConfig, LlamaForCausalLM

        ends = {"bos_token_id": None, "eos_token_id": self.tokenizer.eos_token_id}
        config = LlamaConfig(
            vocab_size=len(self.tokenizer),
            max_position_embeddings=self.recipe.max_tokens,
            **MODELS[self.recipe.model],
            **ends,
        )
        model: nn.Module = LlamaForCausalLM(config)
        return model

    def _blocks(self) -> Tensor:
        """The text of the base's rows, end to end, cut into blocks of equal length."""
        texts = ["\n".join(filter(None, (row.instruction, row.input, row.output))) for row in self._base_text]
        end = self.tokenizer.eos_token_id
        ids = [token for row in alpaca.token_ids(self.tokenizer, texts) for token in (*row, end)]
        length = self.recipe.max_tokens
        if len(ids) < length:
            raise ValueError(
                f"base_epochs={self.recipe.base_epochs} needs rows that are not trained on: base_rows="
                f"{self.recipe.base_rows} leaves {len(self._base_text)}; raise it, or lower samples or held_out"
            )
        return torch.tensor(ids[: len(ids) // length * length]).view(-1, length)

    def _train_on_text(self, model: nn.Module, blocks: Tensor) -> None:
        generator = torch.Generator().manual_seed(_BASE_SEED)
        optimizer = torch.optim.AdamW(model.parameters(), lr=_BASE_LR)
        steps = self.recipe.base_epochs * -(-len(blocks) // _BASE_BATCH)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, _BASE_LR, total_steps=steps, cycle_momentum=False)
        for _ in range(self.recipe.base_epochs):
            for block in torch.split(torch.randperm(len(blocks), generator=generator), _BASE_BATCH):
                ids = blocks[block].to(self.device)
                total, tokens = self._row_losses(model, {"input_ids": ids, "labels": ids})
                optimizer.zero_grad()
                (total.sum() / tokens.sum()).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                scheduler.step()

    # -- losses and metrics -------------------------------------------------------------------------------------

    def losses(
        self, model: nn.Module, batch: dict[str, Tensor], generator: torch.Generator, rows: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Losses: each row's sum over its answer's tokens, divided by the mean number of targets. Scores: token means.

        Every token counts alike, as in the usual loss, and a row is judged by how well it is known, not by its length.
        The usual loss divides by the number of tokens in the batch, which differs; a fixed divisor keeps the weighted
        sum over a pruned epoch exactly unbiased.
        """
        if rows is not None and self.recipe.packed:
            raise ValueError("a method that chooses within batches cannot take packed rows apart: set packed=false")
        batch = take_rows(batch, rows)
        if self.recipe.model.startswith(HUGGING_FACE):  # such a model may have dropout; llama-tiny has none
            with using_generator(generator, self.device):
                losses = self._row_losses(model, batch)
        else:
            losses = self._row_losses(model, batch)
        return losses.total / self.mean_targets, losses.mean.detach()

    def _row_losses(self, model: nn.Module, batch: dict[str, Tensor]) -> RowLosses:
        logits = self._logits(model, batch)
        return row_losses(logits, batch["labels"], shift=True, lengths=batch.get("lengths"))

    def _logits(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        # Padding comes after the tokens, and no token looks ahead: no mask is needed.
        inputs = {name: batch[name].to(self.device) for name in ("input_ids", "position_ids") if name in batch}
        with autocast(self.recipe.precision, self.device):
            logits: Tensor = model(**inputs, use_cache=False).logits
        return logits

    @torch.inference_mode()
    def evaluate(self, model: nn.Module) -> float:
        """The mean loss per token over all held-out answers."""
        model.eval()
        losses = [self._row_losses(model, batch) for batch in self._batches(self.test)]
        total, tokens = (torch.cat(parts).double().sum() for parts in zip(*losses, strict=True))
        return float(total / tokens)

    @torch.inference_mode()
    def probe(self, model: nn.Module) -> tuple[float, int]:
        """The share, in %, of short held-out answers that the model gives word for word, and their number."""
        model.eval()
        short = [row for row in self.test if row.targets <= PROBE_TOKENS]
        matches = [
            exact_matches(self._logits(model, batch), batch["labels"].to(self.device)) for batch in self._batches(short)
        ]
        right = torch.cat(matches) if matches else torch.zeros(0)
        return 100 * float(right.float().mean()) if matches else 0.0, len(right)

    def further(self, model: nn.Module) -> list[Measure]:
        """The share of short held-out answers that the model gives exactly."""
        share, count = self.probe(model)
        return [Measure(f"exact matches of {count} short answers, %", share, True)] if count else []

    def _batches(self, rows: list[Tokens]) -> Iterator[dict[str, Tensor]]:
        return (alpaca.padded(rows[start : start + _TEST_BATCH]) for start in range(0, len(rows), _TEST_BATCH))


def exact_matches(logits: Tensor, labels: Tensor) -> Tensor:
    """Whether greedy decoding gives the answer of each row: the likeliest token is right at every target.

    As long as every token so far is right, the model reads the answer itself: one pass over the answer gives the same
    result as decoding token by token.

    >>> logits = torch.eye(3)[torch.tensor([[0, 1, 2], [0, 1, 1]])]
    >>> exact_matches(logits, torch.tensor([[-100, -100, 1], [-100, 0, 2]])).tolist()
    [True, False]
    """
    labels = labels[:, 1:]
    right = logits[:, :-1].argmax(-1) == labels
    return (right | labels.eq(IGNORED)).all(1)
