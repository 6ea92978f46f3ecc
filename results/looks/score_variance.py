"""How much of a loss's variance lies between images, and how much is chance: python score_variance.py FOLDER."""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from infobatch.lab import recipes
from infobatch.lab.method import MethodSpec
from infobatch.lab.training import Training

IMAGES, DRAWS = 500, 60

for name, epochs in (("diffusion", 18), ("masked", 24)):
    recipe = replace(recipes.get(name), epochs=epochs, judge_every=epochs, held_out=100)
    task = recipe.create_task(Path(sys.argv[1]))
    training = Training(task, recipe, MethodSpec.parse("full"), seed=0)
    while not training.finished:
        training.train_epoch()
    model, generator = training.model.eval(), torch.Generator().manual_seed(1)
    batch = task.train.__getitems__(list(range(IMAGES)))
    with torch.no_grad():
        losses = torch.stack([task.losses(model, batch, generator).double() for _ in range(DRAWS)])
    within = losses.var(0).mean()
    between = losses.mean(0).var() - within / DRAWS
    print(f"{name}: {between / (between + within):.1%} of the variance of a loss lies between images")
