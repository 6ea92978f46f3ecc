"""Accelerate: its documented loop with one changed line, ``prepare``, and ``update``.

    torchrun --standalone --nproc-per-node=2 examples/accelerate_loop.py    # or accelerate launch, or python

Accelerate fetches a batch ahead: the index travels in the batch (``index_key``) and goes back to ``update``. The
scheduler is made for full data, in optimiser steps; ``prepare`` paces it, so that pruned epochs end where full ones do.
"""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.integrations.accelerate import prepare
from infobatch.lab.data import fashion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    options = parser.parse_args()

    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=2)
    torch.manual_seed(0)
    data = fashion.load()
    train_data = infobatch.InfoBatch(as_dataset(data.train.head(options.samples)), options.epochs, index_key="index")
    loader = DataLoader(train_data, options.batch_size, sampler=train_data.sampler)
    test_loader = DataLoader(as_dataset(data.test), 500)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    steps = -(-len(loader) // accelerator.gradient_accumulation_steps)  # in a full epoch
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=options.epochs * steps)
    criterion = nn.CrossEntropyLoss(reduction="none")

    model, optimizer, loader, scheduler, test_loader = prepare(
        accelerator, model, optimizer, loader, scheduler, test_loader
    )
    for epoch in range(options.epochs):
        for x, y, index in loader:
            with accelerator.accumulate(model):
                loss = train_data.update(criterion(model(x), y), index)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        correct = []
        for x, y in test_loader:
            with torch.no_grad():
                correct.append(accelerator.gather_for_metrics(model(x).argmax(1) == y))
        accelerator.print(f"epoch {epoch}: test accuracy {torch.cat(correct).float().mean().item():.1%}")

    accelerator.print(train_data.summary())
    accelerator.print(f"learning rate {scheduler.get_last_lr()[0]:.1e} with {accelerator.num_processes} processes")
    accelerator.end_training()


def as_dataset(split: fashion.Split) -> TensorDataset:
    images = torch.from_numpy(split.images).float() / 255
    return TensorDataset((images - fashion.MEAN) / fashion.STD, torch.from_numpy(split.labels).long())


if __name__ == "__main__":
    main()
