"""timm's training script, in short, with InfoBatch in it: prefetcher, Mixup and CutMix, schedule by updates.

    python examples/timm_train.py
    python examples/timm_train.py --no-prefetcher --mixup-mode elem --grad-accum-steps 2
    python examples/timm_train.py --resume output/last.pth.tar

The lines that InfoBatch adds or changes are marked; the rest is timm's ``train.py`` without its options.
"""

import argparse
from pathlib import Path

import numpy as np
import timm
import torch
from PIL import Image
from timm.data import FastCollateMixup, Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.models import resume_checkpoint
from timm.utils import CheckpointSaver
from torch.utils.data import Dataset

from infobatch import InfoBatch
from infobatch.integrations.timm import CheckpointState, Criterion, create_loader, create_scheduler, indexed
from infobatch.lab.data import fashion

SIZE = (1, 32, 32)


class Pictures(Dataset):
    """Fashion-MNIST as timm's ``create_dataset`` would give it: PIL images, and a transform for timm to set."""

    def __init__(self, split: fashion.Split) -> None:
        self.split = split
        self.transform = None

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.split.images[index])), int(self.split.labels[index])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--grad-accum-steps", type=int, default=1)
    parser.add_argument("--mixup-mode", choices=["batch", "pair", "elem"], default="batch")
    parser.add_argument("--no-prefetcher", dest="prefetcher", action="store_false")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--resume", type=Path)
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (timm mixes by numpy's global generator)
    data = fashion.load()
    model = timm.create_model("test_vit", num_classes=10, in_chans=1, img_size=32).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    train_data = InfoBatch(Pictures(data.train.head(args.samples)), args.epochs, index_key="index")  # 1: wrapped
    mixup_args = {"mixup_alpha": 0.2, "cutmix_alpha": 1.0, "mode": args.mixup_mode, "num_classes": 10}
    common = {"mean": (fashion.MEAN,), "std": (fashion.STD,), "device": device, "num_workers": args.workers}
    loader = create_loader(  # 2: ours, with timm's arguments
        train_data,
        SIZE,
        args.batch_size,
        collate_fn=FastCollateMixup(**mixup_args) if args.prefetcher else None,
        use_prefetcher=args.prefetcher,
        scale=(0.8, 1.0),
        **common,
    )
    mixup_fn = None if args.prefetcher else indexed(Mixup(**mixup_args))  # 3: for samples that have an index
    loader_eval = timm.data.create_loader(Pictures(data.test), SIZE, 256, crop_pct=1.0, **common)
    train_loss_fn = Criterion(SoftTargetCrossEntropy(), train_data)  # 4: books the losses, weighs them
    scheduler, num_epochs = create_scheduler(  # 5: ours, with timm's arguments
        train_data,
        loader,
        optimizer,
        grad_accum_steps=args.grad_accum_steps,
        sched="cosine",
        num_epochs=args.epochs,
        warmup_epochs=1,
        step_on_epochs=False,
    )
    loss_scaler = CheckpointState(train_data)  # 6: in timm's checkpoints; holds the scaler if there is one
    if args.resume:
        resume_checkpoint(model, args.resume, optimizer, loss_scaler)
        scheduler.step_update(0)
    args.output.mkdir(exist_ok=True)
    saver = CheckpointSaver(model, optimizer, amp_scaler=loss_scaler, checkpoint_dir=args.output, max_history=2)

    for epoch in range(train_data.epoch, num_epochs):
        train_data.set_epoch(epoch)  # 7: from here on len(loader) is this epoch's
        train_one_epoch(model, loader, optimizer, train_loss_fn, scheduler, loss_scaler, mixup_fn, args)
        accuracy = validate(model, loader_eval)
        lr = optimizer.param_groups[0]["lr"]
        print(f"epoch {epoch}: {len(loader)} batches, test accuracy {accuracy:.1%}, lr {lr:.2e}")
        saver.save_checkpoint(epoch, metric=accuracy)
        scheduler.step(epoch + 1, accuracy)
    print(train_data.summary())


def train_one_epoch(model, loader, optimizer, loss_fn, scheduler, loss_scaler, mixup_fn, args) -> None:
    model.train()
    device = next(model.parameters()).device
    accumulate = accum_steps = args.grad_accum_steps
    last, num_updates = len(loader) - 1, 0
    for batch_idx, (x, target) in enumerate(loader):
        need_update = batch_idx == last or (batch_idx + 1) % accumulate == 0
        if batch_idx >= len(loader) - len(loader) % accumulate:
            accum_steps = len(loader) % accumulate
        if mixup_fn is not None:
            x, target = mixup_fn(x.to(device), target.to(device))
        loss = loss_fn(model(x), target) / accum_steps
        loss_scaler(loss, optimizer, need_update=need_update)
        if need_update:
            optimizer.zero_grad()
            num_updates += 1
            scheduler.step_update(num_updates=num_updates)


@torch.no_grad()
def validate(model, loader) -> float:
    model.eval()
    right = [(model(x).argmax(1) == target).float() for x, target in loader]
    return torch.cat(right).mean().item()


if __name__ == "__main__":
    main()
