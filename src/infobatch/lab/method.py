"""A method of a comparison, as it is written on the command line: ``random:ratio=0.3,rescale=true``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import methods
from .recipe import check_choice

# Comparisons that have a name of their own.
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "random+rescale+anneal": ("random", {"rescale": True, "anneal": True}),
}
SHORTENED = "full-shortened"  # full data on a schedule shortened to what the first pruning method costs


@dataclass(frozen=True)
class MethodSpec:
    """A method with its options; ``label`` is how it was asked for."""

    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

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
            check_choice("method", name, [*methods.list(), *NAMED, SHORTENED])
            method, options = name, {}
        for setting in filter(None, settings.split(",")):
            key, equals, value = setting.partition("=")
            if not equals:
                raise ValueError(f"method {text!r}: {setting!r} must be OPTION=VALUE")
            options = {**options, key: _value(value)}
        return cls(text, method, options)

    @property
    def shortened(self) -> bool:
        """Whether this is full data on a schedule shortened to another method's cost."""
        return self.label.partition(":")[0] == SHORTENED


def _value(text: str) -> Any:
    known = {"true": True, "false": False, "none": None}
    if text.lower() in known:
        return known[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
