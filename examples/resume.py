r"""Death at any moment: a checkpoint every few steps, and training that goes on from it bit for bit.

    python examples/resume.py --checkpoint last.pt    # kill it, start it again: it goes on, also in mid-epoch
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 \
    torchrun --standalone --nproc-per-node=2 --max-restarts=3 examples/resume.py --checkpoint last.pt

(The variable gives every restart a store of its own; without it torch 2.13's restarted ranks look for dead ones.)
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch import checkpoint
from infobatch.lab.data import fashion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=64, help="per process")
    parser.add_argument("--checkpoint", type=Path, default=Path("last.pt"))
    parser.add_argument("--every", type=int, default=20, help="steps between checkpoints")
    options = parser.parse_args()

    cuda, many = torch.cuda.is_available(), dist.is_torchelastic_launched()
    if many:
        dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", dist.get_node_local_rank(0)) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    rank, world = (dist.get_rank(), dist.get_world_size()) if many else (0, 1)
    torch.manual_seed(0)

    train_data = infobatch.InfoBatch(as_dataset(fashion.load().train.head(options.samples)), options.epochs)
    loader = DataLoader(train_data, options.batch_size, sampler=train_data.sampler)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    wrapped = DistributedDataParallel(model) if many else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    full_steps = options.epochs * -(-options.samples // (options.batch_size * world))
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=full_steps + 1)
    schedule = infobatch.paced(cycle, train_data)
    criterion = nn.CrossEntropyLoss(reduction="none")

    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "train_data": train_data}
    step = 0
    if options.checkpoint.exists():
        state = checkpoint.load(options.checkpoint, map_location=device)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        step = state["step"]
        print(f"rank {rank} goes on after step {step}, in epoch {train_data.epoch}", flush=True)

    def save() -> None:
        state = {name: part.state_dict() for name, part in parts.items()}  # on every rank: scores are gathered
        if rank == 0:
            checkpoint.save({**state, "step": step}, options.checkpoint)

    for epoch in range(train_data.epoch, options.epochs):
        train_data.set_epoch(epoch)
        for x, y in loader:  # of a resumed epoch: what was left of it
            loss = train_data.update(criterion(wrapped(x.to(device)), y.to(device)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % options.every == 0:
                save()
    save()

    if rank == 0:
        print(train_data.summary())
        print(f"learning rate {schedule.get_last_lr()[0]:.2e} after {step} steps")
    if many:
        dist.destroy_process_group()


def as_dataset(split: fashion.Split) -> TensorDataset:
    images = torch.from_numpy(split.images).float() / 255
    return TensorDataset((images - fashion.MEAN) / fashion.STD, torch.from_numpy(split.labels).long())


if __name__ == "__main__":
    main()
