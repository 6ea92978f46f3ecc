"""How many of the most suspected labels are wrong: python judge.py OUT records.json.

Reads what train.py and with_cleanlab.py wrote. ``precision`` is that among as many samples as there are wrong labels,
``average precision`` is over the whole order. ``ours`` goes through the history's bytes, as ``train_data.table()``
does.
"""

import json
import sys
from pathlib import Path

import numpy as np

from infobatch.core.history import ScoreHistory
from infobatch.core.trajectories import measure


def judge(suspicion: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Precision and average precision of an order."""
    hits = wrong[np.argsort(-suspicion, kind="stable")]
    among = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return {
        "precision": round(float(among[wrong.sum() - 1]), 4),
        "precision of 500": round(float(among[499]), 4),
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
    return {"ours": measured.suspicion, "mean": measured.mean, "last": last_scores(scores)}


records = []
for path in sorted(Path(sys.argv[1]).glob("*.npz")):
    noise, seed, part = path.stem.split("-", 2)
    if part == "cross-validated":
        continue
    about = {"noise": noise, "seed": int(seed), "from": part}
    with np.load(path) as record:
        if part == "cleanlab":
            with np.load(path.with_name(f"{noise}-{seed}-cross-validated.npz")) as labelled:
                wrong = labelled["wrong"]
            records.append({**about, "by": "cleanlab", **judge(record["suspicion"], wrong)})
            continue
        about |= {"epochs": len(record["scores"]), "samples": len(record["wrong"]), "saving": float(record["saving"])}
        for by, suspicion in suspicions(record["scores"]).items():
            records.append({**about, "by": by, **judge(suspicion, record["wrong"])})
Path(sys.argv[2]).write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n")

for noise in sorted({record["noise"] for record in records}):
    print(f"\n{noise}: precision / average precision, mean ± sd over seeds")
    rows = [record for record in records if record["noise"] == noise]
    for part, by in dict.fromkeys((row["from"], row["by"]) for row in rows):
        mine = [row for row in rows if (row["from"], row["by"]) == (part, by)]
        cells = []
        for name in ("precision", "average precision"):
            values = np.array([row[name] for row in mine])
            cells.append(f"{values.mean():.3f} ± {values.std(ddof=1) if len(values) > 1 else 0:.3f}")
        print(f"{part:20} {by:9} {' | '.join(cells)}  seeds {[row['seed'] for row in mine]}")
