"""What each method would save over a whole run, and at which noise: a forecast from early scores.

Every method plans one epoch from the current score table by its own code. The share that it leaves out beyond chance
grows as training goes on, because losses fall and get more skewed; the growth was measured (``results/forecasts``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import methods
from .core import state as states
from .core.method import Epoch, Memory, blank_memory
from .core.plan import generator, pruning_epochs
from .methods.adaptive import NoiseBudget

BUDGETS = (0.05, 0.1, 0.2, 0.4)
ANNEALED = 0.875  # the share of epochs with pruning, for methods whose last epochs are full
LEAST_SCORED = 0.9  # the least share of samples with a score
LITTLE = 1.25  # there is little to gain where noise 0.2 saves less than this times what chance saves

# How fast a share beyond chance grows with the logarithm of the epochs, after 1, 2, and 3 or more scored epochs. For
# the noise budget it is known from the second on, and only if it is the run's own method, which keeps predictions.
GROWTH = {"infobatch": (0.56, 0.52, 0.44), "infobatch-adaptive": (0.0, 1.26, 1.1)}
# The share of what the probabilities' floor allows beyond chance that the noise budget reaches; no recorded run had
# more on average.
MOST_OF_BUDGET = 0.6


@dataclass(frozen=True)
class Expected:
    """The forecast for one method: its share left out of the next epoch, its whole saving, its mean noise factor."""

    label: str
    method: str
    share: float
    saving: float
    noise: float


@dataclass(frozen=True)
class Forecast:
    """What each method would save over the whole run, from the scores of the first ``scored`` epochs."""

    rows: tuple[Expected, ...]
    scored: int
    num_epochs: int
    size: int
    paired: bool  # whether the run has measured how well scores predict the next losses

    @property
    def advice(self) -> str:
        """What the forecast means, in a sentence or two."""
        by_label = {row.label: row for row in self.rows}
        default, double = by_label[budget_label(0.1)], by_label[budget_label(0.2)]
        chance = 0.2 / 1.2 * (self.num_epochs - NoiseBudget.info.full_first) / self.num_epochs
        if double.saving < LITTLE * max(chance, 0.0):
            text = (
                f"Losses are spread out: at noise 0.2 you would save {_percent(double.saving)}, where samples left out "
                f"by chance save {_percent(max(chance, 0))}. There is little to gain here."
            )
        else:
            text = (
                f'With method="infobatch-adaptive" you would save about {_percent(default.saving)} at noise 0.1 (as if '
                f"batches were 1.1 times smaller) and {_percent(double.saving)} at 0.2."
            )
        if self.scored < 2:
            text += " This is from one scored epoch: after the second it is more certain."
        return text

    def __str__(self) -> str:
        lines = [f"{'method':<32} {'left out now':>12} {'saved in all':>12} {'noise':>6}"]
        lines += [
            f"{row.label:<32} {_percent(row.share):>12} {_percent(row.saving):>12} {row.noise:>6.2f}"
            for row in self.rows
        ]
        return "\n".join([*lines, self.about, self.advice])

    @property
    def about(self) -> str:
        """What the forecast was made from, and what its noise means."""
        epochs = "one scored epoch" if self.scored == 1 else f"{self.scored} scored epochs"
        return (
            f"forecast from {epochs} of {self.num_epochs}, {self.size:,} samples; noise 1.2: as if batches were 1.2 "
            "times smaller"
        )

    def draw(self, path: str | Path) -> None:
        """Draw the savings against the noise factor; the ending of ``path`` is the format (.png, .svg, .pdf)."""
        try:
            from .report import forecasts
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            raise ImportError(f'a picture needs {missing}, which is missing: pip install "infobatch[lab]"') from error
        forecasts.draw([(row.label, row.method, row.noise, row.saving) for row in self.rows], path)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def budget_label(noise: float) -> str:
    """The label of a noise budget in tables."""
    return f"infobatch-adaptive:noise={noise:g}"


def forecast(
    scores: NDArray[np.float32], num_epochs: int, scored: int, memory: Memory | None = None, seed: int = 0
) -> Forecast:
    """Forecast what each method would save over the whole run, from the scores after ``scored`` epochs.

    ``memory`` is the noise budget's memory if it is the run's method. Without it, the scores themselves serve as
    predictions, as if the next losses were the same as the last.

    >>> rng = np.random.default_rng(0)
    >>> skewed = rng.lognormal(-2, 2, 1000).astype(np.float32)
    >>> [round(row.saving, 1) for row in forecast(skewed, 20, scored=2).rows]
    [0.4, 0.4, 0.4, 0.3, 0.4, 0.5, 0.6]
    """
    with_score = np.count_nonzero(~np.isnan(scores))
    if not with_score or with_score < LEAST_SCORED * len(scores):
        raise RuntimeError(
            f"forecast() needs scores, and {with_score:,} of {len(scores):,} samples have one: call it when the first "
            "epoch is over"
        )
    paired = memory is not None and scored > 1 and bool(np.any(~np.isnan(memory["before"])))
    last = {"prediction": scores, "before": scores, "count": np.ones_like(scores)}
    rows = [
        _expect("infobatch", "infobatch", {}, scores, num_epochs, scored, seed),
        _expect("infobatch-quantile", "infobatch-quantile", {}, scores, num_epochs, scored, seed),
        _expect("random, rescaled", "random", {"rescale": True}, scores, num_epochs, scored, seed),
    ]
    for noise in BUDGETS:
        known = (memory if paired else last, scored if paired else 0)
        label = budget_label(noise)
        rows.append(_expect(label, "infobatch-adaptive", {"noise": noise}, scores, num_epochs, scored, seed, known))
    return Forecast(tuple(rows), scored, num_epochs, len(scores), paired)


def budget_memory(method: str, memory: Memory) -> Memory | None:
    """The memory of a run's method if that is the noise budget, else None."""
    return memory if method == NoiseBudget.info.name else None


def forecast_from_state(state: Any, num_epochs: int) -> Forecast:
    """Forecast from a state that ``state_dict()`` of a run returned; a ValueError says what is wrong with it."""
    if not isinstance(state, dict) or not isinstance(state.get("size"), int):
        raise ValueError(
            f"state must be the state of an InfoBatch, got a {type(state).__name__} without a size: give what "
            "train_data.state_dict() returned"
        )
    identity = {name: state.get(name) for name in ("size", "seed", "method", "options", "momentum")}
    method = NoiseBudget()
    is_budget = identity["method"] == method.info.name
    snapshot = states.read(state, identity, blank_memory(method, state["size"]) if is_budget else {})
    scores: NDArray[np.float32] = snapshot.scores.cpu().numpy()
    trained = [epoch for epoch in snapshot.history.values() if epoch.seen]
    if is_budget and snapshot.complete:
        method.observe(scores, np.unique(snapshot.plan.order[: snapshot.done]), snapshot.memory)
    over = [epoch for epoch in trained if epoch.epoch != snapshot.plan.epoch or snapshot.complete]
    memory = budget_memory(str(identity["method"]), snapshot.memory)
    return forecast(scores, num_epochs, len(over), memory, int(identity["seed"] or 0))


def _expect(
    label: str,
    name: str,
    options: dict[str, Any],
    scores: NDArray[np.float32],
    num_epochs: int,
    scored: int,
    seed: int,
    known: tuple[Memory | None, int] | None = None,
) -> Expected:
    """Make one method's row; ``known`` is its memory, and the number of scored epochs that its growth rate is for."""
    method = methods.create(name, **options)
    delta = ANNEALED if method.info.anneals or name == "random" else 1.0
    pruning = pruning_epochs(num_epochs, delta, method.info.full_first)
    memory, grows_after = (blank_memory(method, len(scores)), scored) if known is None else known
    about = Epoch(max(scored, pruning.start), pruning, num_epochs, 0, None, memory or {})
    weights = method.select(scores, about, generator(seed, scored))
    share = 1 - weights.count / len(scores)
    floor, top = bounds(name, options)
    rate = growth_rate(name, grows_after)
    epochs_saved = sum(grow_share(share, floor, top, rate, scored, epoch) for epoch in pruning)
    noise = weights.noise(method.squared_norms(scores))
    return Expected(
        label=label,
        method=name,
        share=share,
        saving=epochs_saved / num_epochs,
        noise=1 + (noise - 1) * len(pruning) / num_epochs,
    )


def bounds(name: str, options: dict[str, Any]) -> tuple[float, float]:
    """The share of an epoch that a method leaves out by chance, and the share it grows to as losses get skewed.

    >>> bounds("infobatch", {"ratio": 0.3}), bounds("infobatch-adaptive", {"noise": 0.25})
    ((0.0, 0.3), (0.2, 0.62))
    """
    if name == "infobatch-adaptive":
        noise = options.get("noise", 0.1)
        chance = noise / (1 + noise)
        return chance, chance + MOST_OF_BUDGET * max(1 - options.get("floor", 0.1) - chance, 0.0)
    return 0.0, options.get("ratio", 0.5) if name == "infobatch" else 1.0


def growth_rate(name: str, scored: int) -> float:
    """The measured growth rate of a method's share beyond chance; 0 where it does not grow or none was measured."""
    rates = GROWTH.get(name, ())
    return rates[min(scored, len(rates)) - 1] if rates and scored else 0.0


def grow_share(share: float, floor: float, top: float, rate: float, now: int, epoch: int) -> float:
    """The share left out of a later epoch, if ``share`` is left out of epoch ``now``.

    The part beyond chance grows logistically with the logarithm of the epochs, du / dlog(epoch) = rate · u · (1 - u),
    where u = (share - floor) / (top - floor).

    >>> [round(grow_share(0.2, floor=0.1, top=0.9, rate=1.0, now=1, epoch=epoch), 2) for epoch in (1, 3, 15, 9999)]
    [0.2, 0.28, 0.53, 0.9]
    """
    if not floor < share < top:
        return share
    left = (top - share) / (share - floor) * math.exp(-rate * math.log((max(epoch, now) + 1) / (now + 1)))
    return floor + (top - floor) / (1 + left)
