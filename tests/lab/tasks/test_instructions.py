import json
import re
import runpy
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from distributed.launch import ROOT
from infobatch.lab.comparison import Comparison
from infobatch.lab.data import alpaca
from infobatch.lab.method import MethodSpec
from infobatch.lab.tasks.instructions import InstructionRecipe, Instructions, exact_matches

WORDS = ("red", "green", "blue", "small", "large", "round", "cat", "dog", "house", "tree", "river", "stone")
ROWS = [  # made up: simple enough for a tiny model to learn
    alpaca.Row(
        "Say the last word." if i % 3 else f"Say {WORDS[i % 12]}.", " ".join(WORDS[i % 12 :][: 1 + i % 5]), answer
    )
    for i in range(60)
    for answer in [(WORDS[i % 12 :][: 1 + i % 5])[-1 if i % 3 else 0]]
]
RECIPE = InstructionRecipe(
    "alpaca", "llama-tiny", 4, 8, "adamw", lr=5e-3, template="short", max_tokens=48, words=300, held_out=12
)
BASED = replace(RECIPE, samples=24, base_rows=16, base_epochs=10)


@pytest.fixture(scope="module")
def task():
    return Instructions(RECIPE, ROWS)


@pytest.fixture(scope="module")
def based():
    return Instructions(replace(BASED, lora=4), ROWS)


def make_generator():
    return torch.Generator().manual_seed(0)


# -- rows -----------------------------------------------------------------------------------------------------------


def texts(task, rows):
    return [task.tokenizer.decode(row.ids) for row in rows]


def whole(rows):
    return [row.prompt("short") + row.output + "</s>" for row in rows]


def test_the_last_rows_are_held_out(task):
    assert texts(task, task.train.rows) == whole(ROWS[:48])
    assert texts(task, task.test) == whole(ROWS[48:])


def test_a_file_of_row_numbers_selects_and_never_what_is_held_out(tmp_path):
    (tmp_path / "alpaca.jsonl").write_text("\n".join(json.dumps(vars(row)) for row in ROWS))
    (tmp_path / "dq.json").write_text(json.dumps({"some": [50, 7, 2, 59, 30]}))
    task = replace(BASED, rows="dq.json:some").create_task(tmp_path)
    assert texts(task, task.train.rows) == whole([ROWS[7], ROWS[2], ROWS[30]])
    assert task._base_text == [ROWS[i] for i in range(48) if i not in (7, 2, 30)][:16]
    few = replace(BASED, rows="dq.json:some", samples=2).create_task(tmp_path)
    assert texts(few, few.train.rows) == whole([ROWS[7], ROWS[2]])


def test_the_base_reads_neither_training_rows_nor_held_out_ones(based):
    assert based._base_text == ROWS[24:40]
    text = based.tokenizer.decode(based._blocks().flatten())
    expected = "".join("\n".join([row.instruction, row.input, row.output]) + "</s>" for row in ROWS[24:40])
    assert text
    assert expected.startswith(text)
    assert len(expected) - len(text) < 48 * 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out": 60}, "held_out must be from 1 to 59, fewer than the rows, got 60"),
        ({"held_out": 0}, "held_out must be from 1 to 59"),
        ({"max_tokens": 4}, "max_tokens must leave room for answers, got 4"),
        ({"precision": "fp16"}, "precision fp16 needs a GPU"),
    ],
)
def test_what_cannot_be_trained_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Instructions(replace(RECIPE, **settings), ROWS, device="cpu")


def test_a_base_without_rows_is_refused():
    with pytest.raises(ValueError, match=r"base_epochs=10 needs rows that are not trained on: base_rows=16 leaves 0"):
        Instructions(replace(BASED, samples=None), ROWS).model(0)


# -- losses ---------------------------------------------------------------------------------------------------------


def test_losses_and_scores_against_a_loop_over_rows_and_tokens(task):
    model = task.model(0).double()
    rows = task.train.rows[:8]
    losses, scores = task.losses(model, task.collate(rows), make_generator())
    mean_targets = sum(row.targets for row in task.train.rows) / 48
    for row, loss, score in zip(rows, losses, scores, strict=True):
        log_p = model(row.ids[None]).logits[0].log_softmax(-1)
        each = [-log_p[t - 1, label] for t, label in enumerate(row.labels.tolist()) if label != -100]
        torch.testing.assert_close(loss.double(), sum(each) / mean_targets, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(score.double(), sum(each) / len(each), rtol=1e-5, atol=1e-6)
    assert losses.requires_grad
    assert not scores.requires_grad


def test_the_mean_over_all_rows_is_the_models_own_loss(task):
    model = task.model(0)
    batch = task.collate(task.train.rows)
    losses, _ = task.losses(model, batch, make_generator())
    torch.testing.assert_close(losses.mean(), model(**batch).loss)


def test_packed_rows_have_the_losses_of_padded_ones(task):
    model, packing = task.model(0), Instructions(replace(RECIPE, packed=True), ROWS)
    rows = task.train.rows[:8]
    together = packing.collate(rows)
    assert together["input_ids"].shape == (1, sum(len(row.ids) for row in rows))
    losses, expected = (by.losses(model, by.collate(rows), make_generator()) for by in (packing, task))
    torch.testing.assert_close(losses, expected)


def test_losses_of_some_rows_are_those_they_have_in_the_whole_batch(task):
    model, rows = task.model(0), torch.tensor([3, 1])
    batch = task.collate(task.train.rows[:6])
    some, whole = (task.losses(model, batch, make_generator(), chosen)[0] for chosen in (rows, None))
    torch.testing.assert_close(some, whole[rows])
    packing = Instructions(replace(RECIPE, packed=True), ROWS)
    with pytest.raises(ValueError, match="cannot take packed rows apart: set packed=false"):
        packing.losses(model, packing.collate(task.train.rows[:6]), make_generator(), rows)


def test_the_metric_is_the_mean_over_all_held_out_answer_tokens(task):
    model = task.model(0)
    model.train()
    metric = task.evaluate(model)
    assert not model.training
    with torch.inference_mode():
        assert metric == pytest.approx(float(model(**alpaca.padded(task.test)).loss), rel=1e-5)


def test_bf16_is_close_and_counted_in_fp32(task):
    model, reduced = task.model(0), Instructions(replace(RECIPE, precision="bf16"), ROWS)
    batch = task.collate(task.train.rows[:8])
    exact, rounded = (by.losses(model, batch, make_generator())[1] for by in (task, reduced))
    assert rounded.dtype == torch.float32
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, rtol=0.05, atol=0.05)


# -- the model ------------------------------------------------------------------------------------------------------


def vector(model):
    return nn.utils.parameters_to_vector(model.parameters())


def test_weights_come_from_the_seed_and_the_global_random_state_is_left_alone(task):
    before = torch.get_rng_state()
    one, again, other = (vector(task.model(seed)) for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_base_is_the_same_for_all_runs_and_has_learnt(based):
    before = torch.get_rng_state()
    again = Instructions(replace(BASED, lora=4), ROWS)
    assert torch.equal(vector(based.base), vector(again.base))
    assert torch.equal(torch.get_rng_state(), before)
    plain = Instructions(BASED, ROWS)
    assert torch.equal(vector(plain.model(0)), vector(plain.model(1)))  # nothing is drawn without adapters
    blocks = based._blocks()
    untrained = Instructions(RECIPE, ROWS).model(0)
    with torch.inference_mode():
        assert based.base(blocks, labels=blocks).loss < untrained(blocks, labels=blocks).loss - 0.1


def test_adapters_are_all_that_is_trained(based):
    one, other = based.model(1), based.model(2)
    batch = based.collate(based.train.rows[:8])
    torch.testing.assert_close(one(batch["input_ids"]).logits, based.base(batch["input_ids"]).logits)
    trained = {name for name, parameter in one.named_parameters() if parameter.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    assert not torch.equal(vector(one), vector(other))
    frozen = {name: parameter.clone() for name, parameter in one.named_parameters() if name not in trained}
    optimizer = torch.optim.AdamW(one.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(2):  # the second half of an adapter starts at 0: the first has no gradient before it has moved
        optimizer.zero_grad()
        based.losses(one, batch, make_generator())[0].mean().backward()
        optimizer.step()
    for name, parameter in one.named_parameters():
        assert (parameter.grad is not None and bool(parameter.grad.any())) == (name in trained)
        assert name in trained or torch.equal(parameter, frozen[name])
    assert not torch.equal(one(batch["input_ids"]).logits, based.base(batch["input_ids"]).logits)


def test_a_model_of_your_own_is_read_with_its_tokenizer(task, tmp_path):
    model = task.model(5)
    model.save_pretrained(tmp_path)
    task.tokenizer.save_pretrained(tmp_path)
    recipe = replace(RECIPE, model=f"hf:{tmp_path}")
    read = Instructions(recipe, ROWS)
    assert texts(read, read.test) == texts(task, task.test)
    assert torch.equal(vector(read.model(0)), vector(model))
    assert read.evaluate(read.model(0)) == pytest.approx(task.evaluate(model))
    batch = read.collate(read.train.rows[:4])
    torch.testing.assert_close(read.losses(model, batch, make_generator()), task.losses(model, batch, make_generator()))


# -- the probe ------------------------------------------------------------------------------------------------------


def test_exact_matches_are_what_greedy_decoding_gives(task):
    """With a model that has learnt some of its rows by heart, and not the others."""
    model = task.model(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(25):
        optimizer.zero_grad()
        task.losses(model, task.collate(task.train.rows[:12]), make_generator())[0].mean().backward()
        optimizer.step()
    rows = task.train.rows[:24]
    model.eval()
    decoded = []
    for row in rows:
        prompt = row.ids[: len(row.ids) - row.targets]
        with torch.inference_mode():
            generated = model.generate(
                prompt[None],
                attention_mask=torch.ones_like(prompt)[None],
                max_new_tokens=row.targets,
                do_sample=False,
                pad_token_id=task.tokenizer.eos_token_id,
            )
        decoded.append(generated[0].tolist() == row.ids.tolist())
    batch = alpaca.padded(rows)
    with torch.inference_mode():
        matches = exact_matches(model(batch["input_ids"]).logits, batch["labels"]).tolist()
    assert matches == decoded
    assert 0 < sum(decoded) < len(rows)


def test_the_probe_asks_for_short_held_out_answers_only(task):
    class Knows(nn.Module):
        """Knows the first ``count`` held-out answers, and nothing else."""

        def __init__(self, count):
            super().__init__()
            self.answers = {tuple(row.ids.tolist()) for row in task.test[:count]}

        def forward(self, input_ids, use_cache):
            logits = nn.functional.one_hot(input_ids.roll(-1, 1), len(task.tokenizer)).float()
            for i, ids in enumerate(input_ids.tolist()):
                known = any(tuple(ids[: len(answer)]) == answer for answer in self.answers)
                logits[i] *= 1 if known else -1
            return type("Output", (), {"logits": logits})

    rows = [
        replace(row, output=row.output + " " + " ".join(WORDS)) if i == 0 else row for i, row in enumerate(ROWS[48:])
    ]
    probed = Instructions(RECIPE, ROWS[:48] + rows)
    probed.test = [row if row.targets < 20 else probed.test[0] for row in probed.test]
    assert probed.test[0].targets > 8
    short = [row for row in probed.test if row.targets <= 8]
    share, count = probed.probe(Knows(4))
    assert count == len(short)
    known = {tuple(row.ids.tolist()) for row in task.test[:4]}
    assert share == pytest.approx(100 * sum(tuple(row.ids.tolist()) in known for row in short) / len(short))
    assert 0 < share < 100
    assert probed.further(Knows(4)) == [(f"exact matches of {count} short answers, %", share, True)]
    probed.test = probed.test[:1]
    assert probed.further(Knows(4)) == []


# -- the whole ------------------------------------------------------------------------------------------------------


def test_runs_with_adapters_are_pruned_and_reproducible(based, tmp_path):
    methods = [MethodSpec.parse("full"), MethodSpec.parse("infobatch")]
    recipe = replace(BASED, lora=4)
    first, again = (Comparison(recipe, methods, [0], tmp_path / name).run(based) for name in ("one", "two"))
    full, pruned = first
    assert full.saving == 0
    assert pruned.saving > 0.05
    assert [record.values for record in first] == [record.values for record in again]
    before = based.evaluate(based.model(0))
    assert full.values[-1] < before - 0.1
    assert pruned.values[-1] < before - 0.1


@pytest.mark.parametrize("layout", [[], ["--packed"]])
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator")
def test_the_example_runs(layout, monkeypatch, capsys):
    options = [*layout, "--epochs", "3", "--samples", "48", "--base-steps", "10"]
    monkeypatch.setattr(sys, "argv", ["instructions", *options])
    with torch.random.fork_rng(devices=[]):
        runpy.run_path(str(ROOT / "examples" / "instructions.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert re.search(r"saved [1-9]\d?\.\d% of full training", out)
    before, after = map(float, re.search(r"per token: (\d\.\d\d) before, (\d\.\d\d) after", out).groups())
    assert after < before - 0.3
    assert re.search(r"word for word: \d+\.\d% of \d+", out)
