"""The sharded plan of docs/scale.md, on real processes: exact, and the same for any number of them."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.ranks import launch

from benchmarks import scale

pytestmark = pytest.mark.slow  # many processes

SHARDS, SHARD_SIZE = 6, 5_000


@pytest.mark.parametrize("rule", ["infobatch", "infobatch-quantile"])
def test_any_number_of_ranks_draws_the_same_exact_plan(rule: str) -> None:
    found = {world: launch(scale.simulate, world, SHARDS, SHARD_SIZE, rule) for world in (1, 3)}

    scores = np.concatenate([np.random.default_rng(s).exponential(size=SHARD_SIZE) for s in range(SHARDS)])
    scores = np.sort(scores.astype(np.float32))
    if rule == "infobatch":
        pruned = int(0.5 * np.sum(scores < scores.mean(dtype=np.float64)))
    else:
        low, high = (int(np.sum(scores < scores[int(q * (len(scores) - 1))])) for q, _ in scale.QUANTILES)
        pruned = int(0.75 * low) + int(0.5 * (high - low))
    assert found[1]["kept"] == found[3]["kept"] == len(scores) - pruned
    assert found[1]["digest"] == found[3]["digest"]
    assert found[1]["padding share"] == 0 < found[3]["padding share"] < 0.05
