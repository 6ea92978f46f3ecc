import pytest

from infobatch.lab.data import banking

TRAIN = [f"question {i},intent_{i // 10}" for i in range(60)]  # made up, sorted by intent as the original is
TEST = ['"how, exactly?",intent_3', "when,intent_0"]


def write(folder, train=TRAIN, test=TEST, head="text,category"):
    (folder / "banking77").mkdir()
    for name, rows in (("train", train), ("test", test)):
        (folder / "banking77" / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return folder


def test_texts_and_intents_are_read(tmp_path):
    data = banking.load(write(tmp_path))
    assert data.classes == tuple(f"intent_{i}" for i in range(6))
    assert data.test == banking.LabelledTexts(["how, exactly?", "when"], [3, 0])
    pairs = sorted(zip(data.train.texts, data.train.labels, strict=True))
    assert pairs == sorted((f"question {i}", i // 10) for i in range(60))


def test_the_first_training_texts_are_of_many_intents_and_always_the_same(tmp_path):
    data = banking.load(write(tmp_path))
    assert len(set(data.train.head(20).labels)) >= 5
    assert banking.load(tmp_path) == data
    assert len(data.train.head(None).texts) == 60


def test_other_columns_and_unknown_intents_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match="the first line must be text,category, got question,answer"):
        banking.load(write(tmp_path / "a", head="question,answer"))
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match=r"intents that train\.csv does not have: intent_9"):
        banking.load(write(tmp_path / "b", test=["when,intent_9"]))
