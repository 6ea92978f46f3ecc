"""Text classification as a task of the lab: a pretrained encoder with a new last layer, fine-tuned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

from ...integrations import needs
from ..data import banking
from ..data.banking import LabelledTexts, Texts
from ..recipe import Recipe
from .device import autocast, choose_device, using_generator
from .pretrained import MINILM
from .rows import take_rows
from .task import Task

HUGGING_FACE = "hf:"  # prefix of an encoder that transformers reads, with its tokenizer: hf:<name or folder>
_TEST_BATCH = 64


@dataclass(frozen=True)
class TextRecipe(Recipe):
    """A recipe for text classification by fine-tuning. Texts are cut to ``max_tokens``."""

    task: ClassVar[str] = "texts"
    choices: ClassVar[dict[str, Iterable[str]]] = {
        **Recipe.choices,
        "dataset": (banking.NAME,),
        "model": ("minilm",),
    }

    max_tokens: int = 32

    def _is_choice(self, name: str) -> bool:
        return not (name == "model" and self.model.startswith(HUGGING_FACE))

    def create_task(self, data: Path | None = None) -> TextClassification:
        return TextClassification(self, banking.load(data))


class Tokenised(Dataset[tuple[Tensor, int]]):
    """Texts as tokens in memory, with their labels."""

    def __init__(self, tokens: list[Tensor], labels: list[int]) -> None:
        self.tokens, self.labels = tokens, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.tokens[index], self.labels[index]


class Classifier(nn.Module):
    """An encoder, and a linear layer on the mean of its token vectors."""

    def __init__(self, encoder: Any, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, classes)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Logits. ``mask`` is 1 for a token and 0 for padding."""
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask[..., None].to(states.dtype)
        logits: Tensor = self.head((states * weight).sum(1) / weight.sum(1))
        return logits


class TextClassification(Task):
    """The task that the training loop trains."""

    metric = "test accuracy, %"
    higher_is_better = True

    def __init__(self, recipe: TextRecipe, data: Texts, device: torch.device | str | None = None) -> None:
        self.recipe, self.classes = recipe, data.classes
        self.device = choose_device(recipe.precision, device)
        with needs("transformers", "transformers"):
            from transformers import AutoTokenizer
        self._tokenizer: Any = AutoTokenizer.from_pretrained(self._weights)
        self.train = self._tokenise(data.train.head(recipe.samples))
        self.test = self._tokenise(data.test)

    @property
    def _weights(self) -> str:
        """Where the encoder is read from."""
        named = self.recipe.model.startswith(HUGGING_FACE)
        return self.recipe.model.removeprefix(HUGGING_FACE) if named else str(MINILM.path())

    def _tokenise(self, texts: LabelledTexts) -> Tokenised:
        ids = self._tokenizer(texts.texts, truncation=True, max_length=self.recipe.max_tokens)["input_ids"]
        return Tokenised([torch.tensor(row) for row in ids], texts.labels)

    def collate(self, batch: Sequence[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        """Token ids, a row per text and padded at the end; a mask of which are tokens; the labels."""
        tokens, labels = zip(*batch, strict=True)
        ids = nn.utils.rnn.pad_sequence(list(tokens), batch_first=True, padding_value=self._tokenizer.pad_token_id)
        lengths = torch.tensor([len(row) for row in tokens])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).to(torch.int64)
        return ids, mask, torch.tensor(labels)

    def model(self, seed: int) -> nn.Module:
        """The pretrained encoder and a last layer drawn from ``seed``; torch's global random state stays as it is."""
        from transformers import AutoModel

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return Classifier(AutoModel.from_pretrained(self._weights), len(self.classes)).to(self.device)

    def losses(
        self,
        model: nn.Module,
        batch: tuple[Tensor, Tensor, Tensor],
        generator: torch.Generator,
        rows: Tensor | None = None,
    ) -> Tensor:
        """One loss per text; dropout draws from ``generator``."""
        batch = take_rows(batch, rows)
        with using_generator(generator, self.device):
            logits = self._logits(model, batch)
        return cross_entropy(logits, batch[2].to(self.device), reduction="none")

    @torch.inference_mode()
    def evaluate(self, model: nn.Module) -> float:
        """The share of test texts, in %, that the model puts into the right class."""
        model.eval()
        right = 0
        for batch in self._test_batches():
            right += int((self._logits(model, batch).argmax(1).cpu() == batch[2]).sum())
        return 100 * right / len(self.test)

    def _test_batches(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Batches of test texts, shortest first, so that there is little padding."""
        order = sorted(range(len(self.test)), key=lambda i: len(self.test.tokens[i]))
        for start in range(0, len(order), _TEST_BATCH):
            yield self.collate([self.test[i] for i in order[start : start + _TEST_BATCH]])

    def _logits(self, model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        ids, mask = (part.to(self.device) for part in batch[:2])
        with autocast(self.recipe.precision, self.device):
            logits: Tensor = model(ids, mask)
        return logits.float()
