"""How many of the most suspected labels are wrong: python judge.py records.json FOLDER [FOLDER ...].

Reads what train.py and with_cleanlab.py wrote into each folder, a set-up each. ``precision`` is that among as many
samples as there are wrong labels, ``average precision`` is over the whole order. ``ours`` goes through the history's
bytes, as ``train_data.table()`` does. The definition was chosen on the seeds 0 and 10, which the means leave out.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from infobatch.core.history import ScoreHistory
from infobatch.core.trajectories import measure

CHOSEN_ON = (0, 10)


def judge(suspicion: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Precision and average precision of an order."""
    hits = wrong[np.argsort(-suspicion, kind="stable")]
    among = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return {
        "precision": round(float(among[wrong.sum() - 1]), 4),
        "average precision": round(float((among * hits).sum() / hits.sum()), 4),
    }


def last_scores(scores: np.ndarray) -> np.ndarray:
    """Each sample's score when it was last trained."""
    last = scores[0]
    for row in scores[1:]:
        last = np.where(np.isnan(row), last, row)
    return last


def suspicions(scores: np.ndarray) -> dict[str, np.ndarray]:
    """What each definition makes of the scores of every epoch (NaN: left out)."""
    history = ScoreHistory(*scores.shape)
    for epoch, row in enumerate(scores):
        history.write(epoch, np.flatnonzero(np.isfinite(row)), row)
    measured = measure(history)
    return {"ours": measured.suspicion, "mean score": measured.mean, "last score": last_scores(scores)}


def read(path: Path) -> list[dict[str, Any]]:
    """The records of one file."""
    noise, seed, part = path.stem.split("-", 2)
    about = {"set-up": path.parent.name, "noise": noise, "seed": int(seed), "from": part}
    with np.load(path) as record:
        if part == "cleanlab":
            with np.load(path.with_name(f"{noise}-{seed}-cross-validated.npz")) as labelled:
                wrong = labelled["wrong"]
            return [{**about, "by": "cleanlab", **judge(record["suspicion"], wrong)}]
        scores, wrong = record["scores"], record["wrong"]
        about |= {"epochs": len(scores), "samples": len(wrong), "wrong": int(wrong.sum())}
        about["saving"] = round(float(record["saving"]), 4)
    return [{**about, "by": by, **judge(suspicion, wrong)} for by, suspicion in suspicions(scores).items()]


def tell(records: list[dict[str, Any]]) -> None:
    """Mean and standard deviation over the seeds, as rows of a table."""
    for setting in dict.fromkeys((record["set-up"], record["noise"]) for record in records):
        rows = [row for row in records if (row["set-up"], row["noise"]) == setting and row["seed"] not in CHOSEN_ON]
        print(f"\n{', '.join(setting)}: seeds {sorted({row['seed'] for row in rows})}")
        for part, by in dict.fromkeys((row["from"], row["by"]) for row in rows):
            mine = [row for row in rows if (row["from"], row["by"]) == (part, by)]
            cells = []
            for name in ("precision", "average precision"):
                values = np.array([row[name] for row in mine])
                spread = f" ± {values.std(ddof=1):.3f}" if len(values) > 1 else ""
                cells.append(f"{values.mean():.3f}{spread}")
            saved = np.mean([row.get("saving", 0) for row in mine])
            print(f"| {part} | {by} | {saved:.0%} | {' | '.join(cells)} | {len(mine)} seeds")


if __name__ == "__main__":
    files = [path for folder in sys.argv[2:] for path in sorted(Path(folder).glob("*.npz"))]
    found = [record for path in files if "cross-validated" not in path.name for record in read(path)]
    Path(sys.argv[1]).write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
    tell(found)
