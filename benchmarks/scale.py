"""Beyond one host's memory: the plan of docs/scale.md, simulated on a few gloo processes.

No process holds anything of size N. Samples live in many small *shards*; every epoch the shards are dealt to the ranks
anew, and a shard's scores travel with it. What all ranks must know of a shard is a handful of numbers.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from infobatch.core.draw import leave_out
from infobatch.core.shuffle import Order, in_random_order
from infobatch.core.thresholds import as_float32_bound, fixed_order_sum

from .memory import peak_bytes
from .ranks import launch

QUANTILES = ((0.2, 0.75), (0.85, 0.5))  # of the preset: up to that quantile, prune that share
_COUNTS, _DEAL, _ORDER = 1 << 60, 2 << 60, 3 << 60  # streams of random numbers beside those of the shards
_BITS = (12, 10, 10)  # of a score's 32, decided per round of histograms


class ShardedTable:
    """This rank's shards of a table of ``shards · shard_size`` scores, and the plan of each epoch over them."""

    def __init__(self, shards: int, shard_size: int, seed: int) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.shards, self.shard_size, self.seed = shards, shard_size, seed
        self.seconds: dict[str, float] = {}
        self.owner = self._dealt(0)
        self.scores = {shard: np.ones(shard_size, np.float32) for shard in self._mine()}

    def plan(self, epoch: int, rule: str) -> tuple[dict[int, NDArray[np.uint8]], Order, int]:
        """(weights of own samples, coded, by shard; own samples in order; how many samples every rank is padded to)."""
        with self._timed("deal shards anew"):
            self._deal(epoch)
        with self._timed("thresholds"):
            bounds = self._mean() if rule == "infobatch" else self._quantiles()
            group = {s: sum((own >= bound).view(np.uint8) for bound in bounds) for s, own in self.scores.items()}
        shares = [0.5] if rule == "infobatch" else [share for _, share in QUANTILES]
        with self._timed("draw"):
            sizes = self._of_all_shards({s: np.bincount(g, minlength=len(shares) + 1) for s, g in group.items()})
            prune = self._prune_counts(epoch, shares, sizes)
            codes = {shard: self._draw(epoch, shard, found, prune[shard]) for shard, found in group.items()}
        with self._timed("shuffle"):
            # By place in this rank's own shards, so that 32 bits hold it.
            starts = range(0, len(codes) * self.shard_size, self.shard_size)
            kept = np.concatenate([_found(code, start) for start, code in zip(starts, codes.values(), strict=True)])
            order = in_random_order(kept, self._generator(epoch, _ORDER + self.rank))
        by_rank = np.bincount(self.owner, self.shard_size - prune.sum(axis=1), minlength=self.world)
        return codes, order, int(by_rank.max())

    def _mean(self) -> NDArray[np.float32]:
        """The mean as the sum of the shards' exact sums, a fraction: the same for any number of ranks."""
        sums = self._of_all_shards({shard: np.array([fixed_order_sum(own)]) for shard, own in self.scores.items()})
        total = sum((Fraction(float(s)) for s in sums[:, 0]), Fraction(0))
        return np.array([as_float32_bound(total / (self.shards * self.shard_size))], np.float32)

    def _quantiles(self) -> NDArray[np.float32]:
        """Exact order statistics by rounds of histograms over the bits of the scores (losses are not negative)."""
        return np.array([self._order_statistic(int(q * (self.shards * self.shard_size - 1))) for q, _ in QUANTILES])

    def _order_statistic(self, rank: int) -> np.float32:
        prefix, left = 0, 32
        for bits in _BITS:
            counts = torch.zeros(1 << bits, dtype=torch.int64)
            for own in self.scores.values():
                word = own.view(np.uint32)
                if left < 32:
                    word = word[word >> np.uint32(left) == prefix]
                digit = (word >> np.uint32(left - bits)) & np.uint32((1 << bits) - 1)
                counts += torch.from_numpy(np.bincount(digit, minlength=1 << bits))
            dist.all_reduce(counts)
            below = torch.cumsum(counts, 0)
            digit_found = int(torch.searchsorted(below, rank, right=True))
            rank -= int(below[digit_found - 1]) if digit_found else 0
            prefix, left = prefix << bits | digit_found, left - bits
        return np.array([prefix], np.uint32).view(np.float32)[0]

    def _prune_counts(self, epoch: int, shares: list[float], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of each shard's groups go, drawn by every rank alike as if from the whole group."""
        rng = self._generator(epoch, _COUNTS)
        prune = np.zeros_like(sizes)
        for g, share in enumerate(shares):
            prune[:, g] = rng.multivariate_hypergeometric(sizes[:, g], int(share * sizes[:, g].sum()))
        return prune

    def _draw(self, epoch: int, shard: int, group: NDArray[np.uint8], prune: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The shard's samples as 0 where left out, else 1 + group."""
        rng, code = self._generator(epoch, shard), group + np.uint8(1)
        for g in np.flatnonzero(prune):
            leave_out(code, group == g, int(prune[g]), rng)
        return code

    def _generator(self, epoch: int, stream: int) -> np.random.Generator:
        """Philox is counter-based: any rank makes any shard's numbers without those before."""
        return np.random.Generator(np.random.Philox(key=[self.seed << 32 | epoch, stream]))

    # -- who has which shard ------------------------------------------------------------------------------------------

    def _dealt(self, epoch: int) -> NDArray[np.intp]:
        """The owner of every shard: equally many each."""
        return self._generator(epoch, _DEAL).permutation(self.shards) % self.world

    def _mine(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.owner == self.rank)

    def _deal(self, epoch: int) -> None:
        """Send each own shard's scores to its next owner."""
        after = self._dealt(epoch)
        send = [[s for s in self._mine() if after[s] == rank] for rank in range(self.world)]
        receive = [np.flatnonzero((self.owner == rank) & (after == self.rank)) for rank in range(self.world)]
        out = torch.from_numpy(np.concatenate([self.scores[s] for part in send for s in part]))
        into = torch.empty(sum(map(len, receive)) * self.shard_size)
        counts = [[len(part) * self.shard_size for part in parts] for parts in (receive, send)]
        dist.all_to_all_single(into, out, *counts)
        self.owner = after
        self.scores = dict(
            zip(np.concatenate(receive).tolist(), into.numpy().reshape(-1, self.shard_size), strict=True)
        )

    def _of_all_shards(self, mine: dict[int, NDArray[np.generic]]) -> NDArray[np.generic]:
        """One row per shard, gathered from their owners."""
        own = torch.from_numpy(np.stack([mine[shard] for shard in sorted(mine)]))
        rows = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(rows, own)
        found = np.empty((self.shards, own.shape[1]), own.numpy().dtype)
        for rank, part in enumerate(rows):
            found[np.flatnonzero(self.owner == rank)] = part.numpy()
        return found

    @contextmanager
    def _timed(self, piece: str) -> Iterator[None]:
        dist.barrier()
        start = time.perf_counter()
        yield
        self.seconds[piece] = time.perf_counter() - start


def _found(code: NDArray[np.uint8], start: int) -> NDArray[np.int32]:
    return (np.flatnonzero(code) + start).astype(np.int32)


def simulate(shards: int, shard_size: int, rule: str) -> dict[str, float]:
    """Two epochs' plans; the second one's figures, and what tells whether it was right."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = peak_bytes()
    table = ShardedTable(shards, shard_size, seed=1)
    for shard, own in table.scores.items():
        own[:] = np.random.default_rng(shard).exponential(size=shard_size)
    table.plan(1, rule)
    codes, order, most = table.plan(2, rule)
    digests = table._of_all_shards({s: np.array([zlib.crc32(code.data)], np.int64) for s, code in codes.items()})
    kept = torch.tensor(len(order))
    dist.all_reduce(kept)
    return {
        **{f"seconds, {piece}": found for piece, found in table.seconds.items()},
        "bytes per own sample": (peak_bytes() - before) / (shards * shard_size / table.world),
        "kept": int(kept),
        "padding share": most * table.world / int(kept) - 1,
        "digest": zlib.crc32(digests.tobytes()),
    }


def run(worlds: tuple[int, ...] = (4,), shards: int = 256, shard_size: int = 244_140) -> dict[str, float]:
    """What each of 64 ranks would do for a billion samples: 15.6M own samples, here on 4 ranks of one machine."""
    found = {}
    for rule in ("infobatch", "infobatch-quantile"):
        for world in worlds:
            for name, figure in launch(simulate, world, shards, shard_size, rule).items():
                found[f"sharded, {world} ranks, N={shards * shard_size:,}, {rule}: {name}"] = figure
    return found


if __name__ == "__main__":
    for _name, _figure in run().items():
        print(f"{_name}: {_figure:.4g}")
