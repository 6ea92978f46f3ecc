import pytest

from infobatch.lab import recipes
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
        ("full:cost=0.3", "full", {}),
        ("infobatch:saving=0.3,cost=0.5", "infobatch", {"saving": 0.3}),
        (
            "static-el2n:fraction=0.7,balanced=true,teachers=2",
            "static-el2n",
            {"fraction": 0.7, "balanced": True, "teachers": 2},
        ),
    ],
)
def test_what_is_written_is_what_is_made(text, name, options):
    spec = MethodSpec.parse(text)
    assert (spec.label, spec.name, spec.options) == (text, name, options)
    assert spec.shortened == (text == "full-shortened")


@pytest.mark.parametrize(
    ("text", "epochs"),
    [("infobatch", 200), ("full:cost=0.3", 60), ("infobatch:saving=0.3,cost=0.3", 86), ("full:cost=0.001", 1)],
)
def test_a_cost_shortens_the_schedule(text, epochs):
    assert MethodSpec.parse(text).epochs(200) == epochs


def test_static_ones_say_which_they_are():
    assert MethodSpec.parse("static-k-center:fraction=0.5").static == "k-center"
    assert MethodSpec.parse("random").static is None


def test_named_ones_stay_as_they_are():
    MethodSpec.parse("random+rescale+anneal:ratio=0.9")
    assert NAMED["random+rescale+anneal"][1] == {"rescale": True, "anneal": True}


def test_wrong_ones_are_told():
    with pytest.raises(ValueError, match=r"there is no 'infobach'; did you mean 'infobatch'\?"):
        MethodSpec.parse("infobach")
    with pytest.raises(ValueError, match="'ratio' must be OPTION=VALUE"):
        MethodSpec.parse("random:ratio")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("static-herdin:fraction=0.5", r"there is no 'static-herdin'; did you mean 'static-herding'\?"),
        ("static-herding", r"fraction, the share of the samples to train on, must lie in \(0, 1\), got None"),
        ("static-herding:fraction=1", r"must lie in \(0, 1\), got 1"),
        ("static-herding:fraction=0.5,ratio=0.3", "option of static-herding: there is no 'ratio'"),
        ("static-influence:fraction=0.95", r"must lie in \(0, 0.9\].* a tenth .* held out for validation, got 0.95"),
        ("static-glister:fraction=0.5,validation=3", "option of static-glister: there is no 'validation'"),
        ("static-el2n:fraction=0.5,teachers=0", "teachers must be a whole number of at least 1, got 0"),
        ("infobatch:cost=0.5", "cost needs to know how much an epoch saves: give saving too"),
        ("infobatch:saving=0.3,cost=0.8", r"cost must lie in \(0, 0.7\].*got 0.8"),
        ("full:lr=0", r"lr, the learning rate, must be above 0, got 0"),
        ("full:lr=high", r"lr, the learning rate, must be above 0, got 'high'"),
        ("full:cost=0", r"cost must lie in \(0, 1\].*got 0"),
    ],
)
def test_what_a_comparison_cannot_do_is_told(text, message):
    with pytest.raises(ValueError, match=message):
        MethodSpec.parse(text)


def test_steps_that_stay_are_asked_for_by_an_option():
    spec = MethodSpec.parse("infobatch-adaptive:noise=0.2,steps=stay")
    assert (spec.options, spec.steps_stay) == ({"noise": 0.2}, True)
    assert not MethodSpec.parse("infobatch:steps=fewer").steps_stay
    with pytest.raises(ValueError, match="steps: there is no 'same'"):
        MethodSpec.parse("infobatch:steps=same")


def test_a_learning_rate_of_its_own():
    recipe = recipes.get("fashion-mnist", "small")
    tuned = MethodSpec.parse("full:cost=0.5,lr=0.3").apply_to(recipe)
    assert (tuned.epochs, tuned.lr) == (10, 0.3)
    assert MethodSpec.parse("infobatch").apply_to(recipe) == recipe
