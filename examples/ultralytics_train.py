"""YOLO on fewer images: Ultralytics' own training with one argument more.

    python examples/voc_to_yolo.py path/to/voc cells
    python examples/ultralytics_train.py cells/data.yaml --epochs 20
    python examples/ultralytics_train.py cells/data.yaml --resume runs/detect/train/weights/last.pt

The model is ``yolo_tiny.yaml``, small enough for a CPU; give ``--model yolo11n.yaml`` or your weights in its place.
"""

import argparse
from pathlib import Path

from ultralytics import YOLO

from infobatch.integrations.ultralytics import pruned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--model", default=str(Path(__file__).with_name("yolo_tiny.yaml")))
    parser.add_argument("--method", default="infobatch-adaptive")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--imgsz", type=int, default=160)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device")
    parser.add_argument("--project")
    parser.add_argument("--resume")
    args = parser.parse_args()

    model = YOLO(args.resume or args.model)
    model.train(
        data=args.data,
        epochs=args.epochs,
        imgsz=args.imgsz,
        batch=args.batch,
        device=args.device,
        project=args.project,
        resume=bool(args.resume),
        plots=False,
        trainer=pruned(method=args.method),  # what infobatch adds
    )
    print(model.trainer.train_data.summary())


if __name__ == "__main__":
    main()
