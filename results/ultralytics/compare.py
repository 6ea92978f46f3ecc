"""Train a small YOLO on real cells with full data and with pruned epochs, over seeds; one JSON record per run.

    python examples/voc_to_yolo.py path/to/bccd bccd --train trainval --val test
    python results/ultralytics/compare.py bccd/data.yaml --records results/ultralytics/records.jsonl

Runs that are on record already are left out, so that a killed comparison goes on. ``own`` is Ultralytics' trainer as it
is, without infobatch; ``short`` is the same for the share ``--short`` of the epochs. The metric is mAP50 on the
validation images after the last epoch, of the averaged weights, as Ultralytics reports it.
"""

import argparse
import csv
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from ultralytics import YOLO

from infobatch.integrations.ultralytics import pruned


def main() -> None:
    """Every run that is not on record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default=str(Path(__file__).parents[2] / "examples" / "yolo_tiny.yaml"))
    parser.add_argument("--methods", default="own,infobatch-adaptive,infobatch,short")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--short", type=float, default=0.75)
    parser.add_argument("--imgsz", type=int, default=160)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--records", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    known = [json.loads(line) for line in args.records.read_text().splitlines()] if args.records.exists() else []
    done = {(record["method"], record["seed"], record["epochs"]) for record in known}
    for seed in range(args.seeds):
        for method in args.methods.split(","):
            epochs = round(args.epochs * args.short) if method == "short" else args.epochs
            if (method, seed, epochs) not in done:
                record = run(args, method, seed, epochs)
                with args.records.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                known.append(record)
    show(known)


def show(records: list[dict[str, Any]]) -> None:
    """What each method saved, and its differences to Ultralytics' own trainer, seed by seed."""
    own = {record["seed"]: record["mAP50"] for record in records if record["method"] == "own"}
    for method in dict.fromkeys(record["method"] for record in records):
        runs = [record for record in records if record["method"] == method]
        mean, saving = (sum(run[name] for run in runs) / len(runs) for name in ("mAP50", "saving"))
        apart = ", ".join(f"{100 * (run['mAP50'] - own[run['seed']]):+.1f}" for run in runs if run["seed"] in own)
        print(f"{method:20} mAP50 {100 * mean:5.1f}  saved {saving:6.1%}  differences in points: {apart}")


def run(args: argparse.Namespace, method: str, seed: int, epochs: int) -> dict[str, object]:
    """Train once."""
    started = time.time()
    with tempfile.TemporaryDirectory() as folder:
        model = YOLO(args.model, task="detect", verbose=False)
        model.train(
            data=str(args.data),
            epochs=epochs,
            imgsz=args.imgsz,
            batch=args.batch,
            nbs=args.batch,  # an optimiser step after every batch
            close_mosaic=epochs // 4,
            seed=seed,
            cache="ram",
            device="cpu",
            amp=False,
            plots=False,
            val=False,  # but after the last epoch
            verbose=False,
            project=folder,
            name="run",
            trainer=None if method in ("own", "short") else pruned(method=method),
        )
        with open(Path(folder, "run", "results.csv")) as file:
            rows = [{name.strip(): float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    record: dict[str, object] = {
        "method": method,
        "seed": seed,
        "epochs": epochs,
        "imgsz": args.imgsz,
        "batch": args.batch,
        "model": Path(args.model).name,
        "mAP50": rows[-1]["metrics/mAP50(B)"],
        "mAP50-95": rows[-1]["metrics/mAP50-95(B)"],
        "saving": rows[-1].get("infobatch/saving", 1 - epochs / args.epochs),
        "seconds": round(time.time() - started, 1),
    }
    if method not in ("own", "short"):
        stats = model.trainer.train_data.stats
        record["kept by epoch"] = [epoch.kept for epoch in stats.epochs]
        record["noise by epoch"] = [epoch.noise for epoch in stats.epochs]
    return record


if __name__ == "__main__":
    main()
