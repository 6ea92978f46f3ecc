"""The plan of one epoch, slowly: the paper's equations in exact fractions, sample by sample.

The twin of ``infobatch.methods.grouped`` and ``core.plan``. It says everything about a plan but what is left
to chance: which samples form a group, how many of them go, and what those that stay weigh. Numbers the user wrote are
read as the decimals they look like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction

Scores = Sequence[float]
Rule = Callable[[dict[int, Fraction]], list[tuple[set[int], Fraction]]]


@dataclass(frozen=True)
class Group:
    """Samples of which ``pruned`` are left out, any of them alike; the others weigh ``weight``."""

    members: frozenset[int]
    pruned: int
    weight: Fraction


def decimal(number: float) -> Fraction:
    """The decimal the user wrote: 0.07 is 7/100."""
    return Fraction(repr(float(number)))


def is_pruned(epoch: int, num_epochs: int, delta: float, warmup: int = 0) -> bool:
    """Eq. 10: epoch t is pruned while t < δ·C; the first epoch and the warm-up never are, nor the last if δ < 1."""
    last = epoch == num_epochs - 1 and delta < 1
    return epoch > 0 and epoch >= warmup and epoch < decimal(delta) * num_epochs and not last


def below_mean(ratio: float) -> Rule:
    """Eq. 3: samples with a score below the mean are pruned with probability r."""

    def rule(scores: dict[int, Fraction]) -> list[tuple[set[int], Fraction]]:
        mean = sum(scores.values(), Fraction(0)) / len(scores)
        return [({z for z, score in scores.items() if score < mean}, decimal(ratio))]

    return rule


def above_mean(ratio: float) -> Rule:
    """Table 5: the other side of the mean."""

    def rule(scores: dict[int, Fraction]) -> list[tuple[set[int], Fraction]]:
        mean = sum(scores.values(), Fraction(0)) / len(scores)
        return [({z for z, score in scores.items() if score > mean}, decimal(ratio))]

    return rule


def between_quantiles(levels: Sequence[tuple[float, float]]) -> Rule:
    """The authors' 40 % runs: for each (quantile, keep), the share kept of what lies below that quantile."""

    def rule(scores: dict[int, Fraction]) -> list[tuple[set[int], Fraction]]:
        found, seen = [], set()
        for quantile, keep in levels:
            threshold = quantile_of(list(scores.values()), decimal(quantile))
            below = {z for z, score in scores.items() if score < threshold}
            found.append((below - seen, 1 - decimal(keep)))
            seen |= below
        return found

    return rule


def uniform(ratio: float) -> Rule:
    """Random pruning: every sample alike."""
    return lambda scores: [(set(scores), decimal(ratio))]


def quantile_of(values: list[Fraction], share: Fraction) -> Fraction:
    """Linear between the two neighbours in rank."""
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (place - low) * (ranked[high] - ranked[low])


def groups(
    scores: Scores,
    rule: Rule,
    *,
    strata: Sequence[Hashable] | None = None,
    rescale: bool = True,
    needs_scores: bool = True,
) -> list[Group]:
    """The groups of a pruned epoch. A sample in none of them is kept and weighs 1.

    A sample never scored (NaN) is kept. The rule is applied within each label of ``strata`` by itself. Of n samples
    with pruning probability r exactly ⌊r·n⌋ go, and one that stays weighs |D|/|S| (Eq. 8) of its own group.
    """
    labels = [None] * len(scores) if strata is None else list(strata)
    found = []
    for label in dict.fromkeys(labels):
        known = {
            z: Fraction(0) if math.isnan(score) else Fraction(score)
            for z, score in enumerate(scores)
            if labels[z] == label and not (needs_scores and math.isnan(score))
        }
        for members, share in rule(known) if known else []:
            size = len(members)
            pruned = math.floor(share * size)
            weight = Fraction(size, size - pruned) if rescale and pruned else Fraction(1)
            if members:
                found.append(Group(frozenset(members), pruned, weight))
    return found


def check(weights: Sequence[float], expected: list[Group]) -> None:
    """Assert that one weight per sample (0: left out) is one of the plans that ``expected`` allows."""
    grouped = set()
    for group in expected:
        left_out = {z for z in group.members if weights[z] == 0}
        stayed = {weights[z] for z in group.members - left_out}
        assert len(left_out) == group.pruned, group
        assert stayed == {float(group.weight)}, group
        grouped |= group.members
    assert all(weights[z] == 1 for z in range(len(weights)) if z not in grouped)
