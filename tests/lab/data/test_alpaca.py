import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from infobatch.lab.data import alpaca
from infobatch.lab.data.alpaca import Row, Tokens

# Made up for this test, in the format of Alpaca.
ROWS = [
    {"instruction": "Name the colour.", "input": "the sky at noon", "output": "Blue."},
    {"instruction": "Say hello\u2028in two lines.", "input": "", "output": "Hel\nlo\u2028"},
    {"instruction": "Count to three.", "output": "1, 2, 3"},
]
READ = [Row(row["instruction"], row.get("input", ""), row["output"]) for row in ROWS]


# -- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("alpaca_data.json", json.dumps(ROWS, indent=1).encode()),
        ("alpaca/alpaca_data.json", json.dumps(ROWS).encode()),
        ("alpaca.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()),
        ("alpaca.jsonl.gz", gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode())),
    ],
)
def test_rows_are_read_from_every_form_in_which_they_come(name, content, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    assert alpaca.load(tmp_path) == (READ, path)


def test_where_to_get_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"alpaca: none of alpaca_data.json, .*Get it from https://.*--data"):
        alpaca.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"instruction": "one"}', "must hold a list of rows, got dict"),
        ('[{"instruction": "one", "output": "1"}, {"instruction": "two"}]', "row 1 must hold the texts"),
        ('[{"instruction": "one", "output": 1}]', "row 0 must hold the texts"),
        ('["one"]', "row 0 must hold the texts"),
    ],
)
def test_files_of_another_format_are_refused(content, message, tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        alpaca.read(path)


def test_row_numbers_by_name_as_a_list_and_as_infobatch_select_writes_them(tmp_path):
    (tmp_path / "dq.json").write_text(json.dumps({"small": [4, 1], "large": [0, 1, 2]}))
    (tmp_path / "list.json").write_text("[3, 2]")
    np.savez(tmp_path / "selected.npz", indices=np.array([2, 0]), weights=np.ones(2))
    assert alpaca.read_numbers("dq.json:small", tmp_path, 5) == [4, 1]
    assert alpaca.read_numbers(str(tmp_path / "list.json"), tmp_path / "elsewhere", 5) == [3, 2]
    assert alpaca.read_numbers("selected.npz", tmp_path, 5) == [2, 0]


@pytest.mark.parametrize("numbers", ["[0, 5]", "[-1]", "[1, 1]", "[0.5]", "[true]", '"all"'])
def test_wrong_row_numbers_are_refused(numbers, tmp_path):
    (tmp_path / "list.json").write_text(numbers)
    with pytest.raises(ValueError, match=r"rows: list\.json must be a list of different whole numbers from 0 to 4"):
        alpaca.read_numbers("list.json", tmp_path, 5)


def test_row_numbers_that_are_not_there(tmp_path):
    (tmp_path / "dq.json").write_text('{"small": [1]}')
    with pytest.raises(ValueError, match=r"there is no 'smal'; did you mean 'small'\?"):
        alpaca.read_numbers("dq.json:smal", tmp_path, 5)
    with pytest.raises(FileNotFoundError, match=r"rows must name a file of row numbers: there is no dp\.json"):
        alpaca.read_numbers("dp.json", tmp_path, 5)


# -- prompt and tokens ----------------------------------------------------------------------------------------------


def test_the_prompt_is_the_one_alpaca_was_trained_with():
    with_input, without = (row.prompt() for row in READ[:2])
    assert with_input == (
        "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
        "response that appropriately completes the request.\n\n"
        "### Instruction:\nName the colour.\n\n### Input:\nthe sky at noon\n\n### Response:"
    )
    assert without.startswith("Below is an instruction that describes a task. Write a response")
    assert "### Input" not in without
    assert with_input.endswith(READ[0].prompt("short"))


def test_text_in_braces_is_left_as_it_is():
    assert "{input} {}" in Row("Format {input} {}", "", "").prompt()


TEXTS = [row.prompt(name) + row.output for row in READ for name in alpaca.TEMPLATES]
TOKENIZER = alpaca.train_tokenizer(TEXTS, 300)


def test_any_text_comes_back_from_its_tokens():
    text = "Blue? ünïcödé 日本 \n\t🙂"
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text
    assert len(TOKENIZER) == 300
    assert TOKENIZER.decode([TOKENIZER.eos_token_id]) == "</s>"


def test_the_same_texts_give_the_same_tokenizer_in_another_process():
    code = (
        "import sys; from infobatch.lab.data import alpaca; texts = sys.argv[1:]; "
        "print(alpaca.train_tokenizer(texts, 300).backend_tokenizer.to_str())"
    )
    other = subprocess.run([sys.executable, "-c", code, *TEXTS], capture_output=True, text=True, check=True)
    assert other.stdout.rstrip("\n") == TOKENIZER.backend_tokenizer.to_str()


def test_only_the_answer_and_its_end_are_targets():
    for row, tokens in zip(READ, alpaca.encoded(READ, TOKENIZER, "short", 1000), strict=True):
        assert TOKENIZER.decode(tokens.ids) == row.prompt("short") + row.output + "</s>"
        targets = tokens.labels != -100
        assert torch.equal(tokens.ids[targets], tokens.labels[targets])
        assert TOKENIZER.decode(tokens.labels[targets]) == row.output + "</s>"
        assert tokens.targets == targets.sum()
        assert not targets[: len(tokens.ids) - tokens.targets].any()


def test_long_rows_are_cut_and_those_without_an_answer_left_are_none():
    (whole,) = alpaca.encoded(READ[2:], TOKENIZER, "short", 1000)
    prompt = len(whole.ids) - whole.targets
    for longest in (prompt + 1, len(whole.ids) - 1):
        (cut,) = alpaca.encoded(READ[2:], TOKENIZER, "short", longest)
        assert torch.equal(cut.ids, whole.ids[:longest])
        assert cut.targets == longest - prompt
    assert list(alpaca.encoded(READ[2:], TOKENIZER, "short", prompt)) == [None]
    assert list(alpaca.encoded([], TOKENIZER, "short", 10)) == []


def test_a_tokenizer_that_has_a_begin_begins_with_it():
    tokenizer = alpaca.train_tokenizer(TEXTS, 300)
    tokenizer.bos_token = "#"
    (plain,), (begun,) = (list(alpaca.encoded(READ[:1], by, "short", 1000)) for by in (TOKENIZER, tokenizer))
    assert begun.ids.tolist() == [tokenizer.bos_token_id, *plain.ids.tolist()]
    assert begun.labels.tolist() == [-100, *plain.labels.tolist()]


# -- batches --------------------------------------------------------------------------------------------------------


def test_padded_and_packed_hold_the_same_rows():
    rows = [Tokens(torch.tensor([1, 2, 3]), torch.tensor([-100, 2, 3])), Tokens(torch.tensor([4]), torch.tensor([4]))]
    below = alpaca.padded(rows)
    assert below["input_ids"].tolist() == [[1, 2, 3], [4, 0, 0]]
    assert below["labels"].tolist() == [[-100, 2, 3], [4, -100, -100]]
    long = alpaca.packed(rows)
    assert {name: part.tolist() for name, part in long.items()} == {
        "input_ids": [[1, 2, 3, 4]],
        "labels": [[-100, 2, 3, 4]],
        "position_ids": [[0, 1, 2, 0]],
        "lengths": [3, 1],
    }
