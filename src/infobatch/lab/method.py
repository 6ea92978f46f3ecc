"""A method of a comparison, as on the command line: ``random:ratio=0.3,rescale=true``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import methods, static
from ..core.checks import check_choice
from .recipe import Recipe

# Names for a method with certain options.
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "random+rescale+anneal": ("random", {"rescale": True, "anneal": True}),
}
SHORTENED = "full-shortened"  # full data on a schedule shortened to what the first pruning method costs
STATIC = "static-"  # prefix of a static method: it selects a subset first, and trains on all of that
HELD_OUT = 0.1  # share of the training samples, for static methods with a validation set: no test data is used
_SUBSET_OPTIONS = ("fraction", "balanced", "teachers")  # options of all static methods


@dataclass(frozen=True)
class MethodSpec:
    """A method with its options; ``label`` is the text it was read from.

    ``cost`` shortens the schedule until training costs this share of the forward passes of full data: with
    ``saving=0.3,cost=0.5`` an InfoBatch whose epochs save 30 % gets 5/7 of the epochs (table 1's †). ``steps=stay``
    trains with as many steps as full data and smaller batches (``InfoBatch.batches``); otherwise epochs have fewer
    steps. ``lr`` is a learning rate that replaces the recipe's.
    """

    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    cost: float | None = None
    steps_stay: bool = False
    lr: float | None = None

    @classmethod
    def parse(cls, text: str) -> MethodSpec:
        """Read ``name`` or ``name:option=value,option=value``.

        >>> MethodSpec.parse("random:ratio=0.3,rescale=true").options
        {'ratio': 0.3, 'rescale': True}
        """
        name, _, settings = text.partition(":")
        if name in NAMED:
            method, options = NAMED[name]
        elif name == SHORTENED:
            method, options = "full", {}
        else:
            known = [*methods.list(), *NAMED, SHORTENED, *(STATIC + coreset for coreset in static.list())]
            check_choice("method", name, known)
            method, options = name, {}
        for setting in filter(None, settings.split(",")):
            key, equals, value = setting.partition("=")
            if not equals:
                raise ValueError(f"method {text!r}: {setting!r} must be OPTION=VALUE")
            options = {**options, key: _parse_value(value)}
        lab_options = {key: options[key] for key in ("cost", "steps", "lr") if key in options}
        options = {key: value for key, value in options.items() if key not in lab_options}
        cost, lr, steps = lab_options.get("cost"), lab_options.get("lr"), lab_options.get("steps", "fewer")
        if cost is not None:
            _check_cost(text, method, options, cost)
        if lr is not None and (not isinstance(lr, int | float) or lr <= 0):
            raise ValueError(f"method {text!r}: lr, the learning rate, must be above 0, got {lr!r}")
        check_choice(f"method {text!r}: steps", steps, ("fewer", "stay"))
        spec = cls(text, method, options, cost, steps == "stay", lr)
        if spec.static:
            _check_subset(spec.static, options)
        return spec

    @property
    def shortened(self) -> bool:
        """Whether this is full data on a schedule shortened to another method's cost."""
        return self.label.partition(":")[0] == SHORTENED

    @property
    def static(self) -> str | None:
        """The name of the static method that selects the samples; None for a method that is not static."""
        return self.name.removeprefix(STATIC) if self.name.startswith(STATIC) else None

    @property
    def anneals(self) -> bool:
        """Whether the last epochs use full data: as an option says, or else the method itself."""
        info = methods.info("full" if self.static else self.name)
        return bool(self.options.get("anneal", info.anneals))

    def apply_to(self, recipe: Recipe) -> Recipe:
        """The recipe with this method's number of epochs and learning rate."""
        return replace(recipe, epochs=self.epochs(recipe.epochs), lr=recipe.lr if self.lr is None else self.lr)

    def epochs(self, full: int) -> int:
        """How many epochs to train if full data trains ``full``.

        >>> MethodSpec.parse("infobatch:saving=0.3,cost=0.5").epochs(14)
        10
        """
        if self.cost is None:
            return full
        saving: float = self.options.get("saving", 0)
        return max(1, round(full * self.cost / (1 - saving)))


def _check_cost(text: str, method: str, options: Mapping[str, Any], cost: Any) -> None:
    """Check the option ``cost``: it needs to know, before training, what an epoch costs."""
    saving = 0 if method == "full" else options.get("saving")
    if saving is None:
        raise ValueError(
            f"method {text!r}: cost needs to know how much an epoch saves: give saving too, as in "
            "infobatch:saving=0.3,cost=0.5"
        )
    if not isinstance(cost, int | float) or not 0 < cost <= 1 - saving:
        raise ValueError(
            f"method {text!r}: cost must lie in (0, {1 - saving:g}], the share of full data's forward passes that "
            f"training may cost (its epochs save {saving:g} already), got {cost!r}"
        )


def _check_subset(name: str, options: Mapping[str, Any]) -> None:
    for key in options:
        own = [option for option in static.info(name).options if option != "validation"]  # the lab sets it
        check_choice(f"option of {STATIC}{name}", key, [*_SUBSET_OPTIONS, *own])
    fraction, teachers = options.get("fraction"), options.get("teachers", 1)
    allowed, most = "(0, 1)", 1.0
    if "validation" in static.info(name).options:
        allowed, most = f"(0, {1 - HELD_OUT:g}], as a tenth of the samples is held out for validation", 1 - HELD_OUT
    if not isinstance(fraction, float) or not 0 < fraction <= most or fraction == 1:
        raise ValueError(
            f"{STATIC}{name}: fraction, the share of the samples to train on, must lie in {allowed}, got {fraction!r}: "
            f"{STATIC}{name}:fraction=0.7"
        )
    if not isinstance(teachers, int) or teachers < 1:
        raise ValueError(f"{STATIC}{name}: teachers must be a whole number of at least 1, got {teachers!r}")


def _parse_value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
