"""Draws noise.png, the picture of docs/noise.md: ``python docs/pictures/noise.py`` (about a minute)."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from infobatch import methods
from infobatch.core.method import Epoch
from infobatch.core.plan import generator
from infobatch.lab import recipes
from infobatch.lab.method import MethodSpec
from infobatch.lab.training import Training
from infobatch.report.picture import FAINT, FULL, INK, PRUNED, dress

SETTINGS = ("dataset=fashion-mnist-10k", "samples=5000", "epochs=16", "augment=flip")
EPOCH = 12  # of 16
LOWEST = 2e-3  # loss shown
SPEC = MethodSpec("infobatch-adaptive", "infobatch-adaptive", steps_stay=True)


def main() -> None:
    """Train a small network with the noise budget, and show how the budget judges samples in epoch 12."""
    recipe = recipes.get("fashion-mnist-8k").changed(SETTINGS)
    run = Training(recipe.create_task(), recipe, SPEC, 0)
    for _ in range(EPOCH):
        run.train_epoch()
    scores = np.array(run.train_data.scores)
    run.train_data.set_epoch(EPOCH)
    plan, prediction = run.train_data.plan, run.train_data.state_dict()["memory"]["prediction"].numpy()
    drawn = Figure(figsize=(11, 3.9), dpi=150, layout="constrained")
    left, right = drawn.subplots(1, 2, width_ratios=(1.25, 1))

    dress(left, f"Epoch {EPOCH}: {1 - len(plan) / plan.total:.0%} left out at a noise of 0.1", "average of past losses")
    bins = np.geomspace(LOWEST, prediction.max(), 60)
    left.hist(prediction, bins, color=FAINT, edgecolor="white", linewidth=0.4)
    left.set_xscale("log")
    left.set_xlim(LOWEST, bins[-1])
    left.set_ylabel("samples", color=INK)
    chance = left.twinx()
    order = np.argsort(prediction[plan.indices])
    chance.step(prediction[plan.indices][order], 1 / plan.weights[order], where="mid", color=PRUNED, linewidth=2)
    chance.set_ylim(0, 1.05)
    chance.set_ylabel("probability to be kept", color=PRUNED)
    for side in ("top", "left"):
        chance.spines[side].set_visible(False)

    dress(right, "What an epoch's saving costs", "left out, %")
    saved = np.linspace(0, 0.75, 60)
    right.plot(100 * saved, 1 / (1 - saved), color=FULL, linestyle=":", label="by chance")
    for name, label, colour in (("infobatch", "the mean rule", FULL), ("infobatch-adaptive", "noise budget", PRUNED)):
        points = [front_point(name, amount, scores, run.train_data) for amount in np.linspace(0.02, 0.9, 40)]
        right.plot(*zip(*sorted(points), strict=True), color=colour, label=label, linewidth=2)
    right.axhline(1.1, color=INK, linewidth=0.8, linestyle="--")
    right.text(1, 1.11, "noise 0.1", color=INK)
    right.set_ylim(1, 1.6)
    right.set_xlim(0, 70)
    right.set_ylabel("noise factor V", color=INK)
    right.legend(frameon=False)
    drawn.savefig(Path(__file__).with_suffix(".png"))


def front_point(name: str, amount: float, scores: np.ndarray, train_data: object) -> tuple[float, float]:
    """(share left out in %, noise factor) of a method at one ratio or one noise budget, by the losses known now."""
    option = {"noise": amount} if name == "infobatch-adaptive" else {"ratio": amount}
    memory = {key: value.numpy() for key, value in train_data.state_dict()["memory"].items()}
    before = None  # all pairs count alike
    about = Epoch(EPOCH, range(2, 16), 16, 0, before, memory)
    weights = methods.create(name, **option).select(scores, about, generator(0, EPOCH))
    return 100 * (1 - weights.count / len(scores)), weights.noise(scores)


if __name__ == "__main__":
    main()
