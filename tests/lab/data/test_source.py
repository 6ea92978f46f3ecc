import pytest

from infobatch.lab.data import source
from infobatch.lab.data.source import Source

DIGITS = Source(("digits.npz", "digits.tar"), "https://example.org", folders=("raw",))


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_the_first_file_is_taken_wherever_it_lies_in_the_folder(tmp_path):
    touch(tmp_path / "digits.tar")
    assert DIGITS.find("digits", tmp_path) == tmp_path / "digits.tar"
    inner = touch(tmp_path / "raw" / "digits.npz")
    assert DIGITS.find("digits", tmp_path) == inner
    outer = touch(tmp_path / "digits.npz")
    assert DIGITS.find("digits", str(tmp_path)) == outer


def test_the_usual_places_are_searched_in_turn(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setattr(source, "USUAL", (first, second))
    with pytest.raises(FileNotFoundError) as error:
        DIGITS.find("digits", None)
    assert str(error.value) == (
        f"digits: none of digits.npz, digits.tar in {first}, {second}, nor in raw there. Get it from "
        "https://example.org, put it into one of these folders, or say where it is: --data FOLDER"
    )
    there = touch(second / "digits.npz")
    assert DIGITS.find("digits", None) == there
    here = touch(first / "raw" / "digits.tar")
    assert DIGITS.find("digits", None) == here
