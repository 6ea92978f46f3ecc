"""The records of compare.py as a table: held-out loss, and its difference to thinning by chance, paired by seed.

python results/streams/report.py results/streams/records.jsonl
"""

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365}  # two-sided, by the number of seeds
AGAINST = {"id": "two-passes"}


def main() -> None:
    """A line for each arm."""
    runs: dict[tuple[str, str], dict[int, dict[str, float]]] = defaultdict(dict)
    for line in Path(sys.argv[1]).read_text().splitlines():
        record = json.loads(line)
        runs[record["task"], record["arm"]][record["seed"]] = record
    print("| task | arm | seeds | loss | minus chance, 95 % interval | trained | V | CPU s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for (task, arm), by_seed in runs.items():
        other = runs[task, AGAINST.get(arm, "uniform")]
        pairs = [by_seed[seed]["loss"] - other[seed]["loss"] for seed in sorted(by_seed) if seed in other]
        mean = {
            name: statistics.mean(run[name] for run in by_seed.values())
            for name in ("loss", "trained", "noise", "cpu seconds")
        }
        plain = arm in ("uniform", "two-passes") or not pairs
        difference = "" if plain else f"{statistics.mean(pairs):+.3f}"
        if difference and len(pairs) > 1:
            half = T95[len(pairs)] * statistics.stdev(pairs) / len(pairs) ** 0.5
            difference += f" [{statistics.mean(pairs) - half:+.3f}, {statistics.mean(pairs) + half:+.3f}]"
        print(
            f"| {task} | {arm} | {len(by_seed)} | {mean['loss']:.3f} | {difference} | {mean['trained']:.0f} | "
            f"{mean['noise']:.2f} | {mean['cpu seconds']:.1f} |"
        )


if __name__ == "__main__":
    main()
