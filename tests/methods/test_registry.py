"""Methods by name; whoever mistypes is told what was meant."""

import pytest

from infobatch import InfoBatch, methods
from infobatch.methods import Method, MethodInfo, Weights


class Doubled(Method):
    """Every sample, weight 2: a method of the user's own."""

    info = MethodInfo(name="doubled", summary="", reference="", unbiased=False)

    def __init__(self, ratio=0.5, *, factor=2.0):
        self.factor = factor

    def select(self, scores, epoch, rng):
        return Weights.dense(self.factor * Weights.ones(len(scores)).of(range(len(scores))))

    def expected_saving(self, pruning, num_epochs):
        return 0.0

    def options(self):
        return {"factor": self.factor}


@pytest.fixture
def doubled(monkeypatch):
    monkeypatch.setattr(methods, "_REGISTRY", dict(methods._REGISTRY))
    return methods.register(Doubled)


def test_names_are_sorted_and_lead_to_their_own_card():
    assert methods.list() == sorted(methods.list())
    assert {"full", "infobatch", "infobatch-quantile", "random"} <= set(methods.list())
    for name in methods.list():
        card = methods.info(name)
        assert card.name == name
        assert card.summary
        assert card.reference
        assert methods.create(name).info is card


def test_create_passes_options_on():
    method = methods.create("infobatch", ratio=0.3, condition="above", rescale=False)
    assert (method.ratio, method.condition, method.rescale) == (0.3, "above", False)


@pytest.mark.parametrize("ask", [methods.create, methods.info])
@pytest.mark.parametrize(
    ("wrong", "right"), [("infobach", "infobatch"), ("infobatch_quantile", "infobatch-quantile"), ("Random", "random")]
)
def test_a_wrong_name_names_the_nearest(ask, wrong, right):
    with pytest.raises(ValueError, match=f"there is no '{wrong}'; did you mean '{right}'?") as error:
        ask(wrong)
    assert all(name in str(error.value) for name in methods.list())


def test_a_name_like_no_other_lists_all():
    with pytest.raises(ValueError, match=rf"there is no 'xyz'\. Known: {', '.join(methods.list())}"):
        methods.create("xyz")


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("infobatch", "ration", "ratio"),
        ("infobatch", "conditon", "condition"),
        ("infobatch-quantile", "level", "levels"),
        ("random", "stratum", "strata"),  # an option of the base class
        ("random", "rescaled", "rescale"),
    ],
)
def test_a_wrong_option_names_the_nearest(name, wrong, right):
    with pytest.raises(TypeError, match=f"method '{name}' has no option '{wrong}'; did you mean '{right}'?"):
        methods.create(name, **{wrong: 1})
    with pytest.raises(TypeError, match=f"did you mean '{right}'?"):
        InfoBatch(range(4), num_epochs=2, method=name, **{wrong: 1})


def test_options_are_those_of_all_constructors():
    assert sorted(methods.options_of("infobatch")) == ["condition", "ratio", "rescale", "saving", "strata"]
    assert methods.options_of("full") == []
    with pytest.raises(TypeError, match="has no option 'options'"):
        methods.create("infobatch", options=1)


def test_a_users_own_method(doubled):
    assert "doubled" in methods.list()
    train_data = InfoBatch(range(3), num_epochs=4, method="doubled", factor=3.0)
    train_data.set_epoch(1)
    assert train_data.plan.weights.tolist() == [3, 3, 3]


def test_a_method_object_brings_its_options_along():
    method = Doubled(factor=5.0)
    train_data = InfoBatch(range(3), num_epochs=4, method=method)
    train_data.set_epoch(2)
    assert train_data.plan.weights.tolist() == [5, 5, 5]
    with pytest.raises(TypeError, match=r"method is an object that already has its options: pass \['ratio'\]"):
        InfoBatch(range(3), num_epochs=4, ratio=0.3, method=method)


def test_what_is_no_method_is_refused():
    with pytest.raises(TypeError, match=r"method must be a name from methods\.list\(\).*got 3"):
        InfoBatch(range(3), num_epochs=4, method=3)


def test_a_name_is_given_once(doubled):
    assert methods.register(doubled) is doubled  # again: nothing happens
    other = type("Other", (Doubled,), {})
    with pytest.raises(ValueError, match="a method named 'doubled' is registered already"):
        methods.register(other)
