import pytest

from infobatch.lab.method import NAMED, MethodSpec


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("infobatch", "infobatch", {}),
        ("random:ratio=0.3,rescale=true", "random", {"ratio": 0.3, "rescale": True}),
        (
            "infobatch:warmup=2,saving=none,condition=above",
            "infobatch",
            {"warmup": 2, "saving": None, "condition": "above"},
        ),
        ("random+rescale+anneal", "random", {"rescale": True, "anneal": True}),
        ("random+rescale+anneal:ratio=0.4", "random", {"rescale": True, "anneal": True, "ratio": 0.4}),
        ("full-shortened", "full", {}),
    ],
)
def test_what_is_written_is_what_is_made(text, name, options):
    found = MethodSpec.parse(text)
    assert (found.label, found.name, found.options) == (text, name, options)
    assert found.shortened == (text == "full-shortened")


def test_named_ones_stay_as_they_are():
    MethodSpec.parse("random+rescale+anneal:ratio=0.9")
    assert NAMED["random+rescale+anneal"][1] == {"rescale": True, "anneal": True}


def test_wrong_ones_are_told():
    with pytest.raises(ValueError, match=r"there is no 'infobach'; did you mean infobatch\?"):
        MethodSpec.parse("infobach")
    with pytest.raises(ValueError, match="'ratio' must be OPTION=VALUE"):
        MethodSpec.parse("random:ratio")
