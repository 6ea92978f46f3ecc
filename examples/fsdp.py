"""A model cut over many processes: the three lines of InfoBatch with FSDP2 (``fully_shard``).

    torchrun --standalone --nproc-per-node=2 examples/fsdp.py

As with DDP nothing about InfoBatch changes; ``batch_size`` is per rank.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.lab.data import fashion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=64, help="per process")
    options = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda", dist.get_node_local_rank()) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(0)

    data = fashion.load()
    train_data = infobatch.InfoBatch(as_dataset(data.train.head(options.samples)), options.epochs)  # 1
    loader = DataLoader(train_data, options.batch_size, sampler=train_data.sampler)  # 2
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss(reduction="none")

    for _ in range(options.epochs):
        for x, y in loader:
            loss = criterion(model(x.to(device)), y.to(device))
            loss = train_data.update(loss)  # 3
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    x, y = as_dataset(data.test).tensors
    with torch.no_grad():
        accuracy = (model(x.to(device)).argmax(1).cpu() == y).float().mean().item()
    if dist.get_rank() == 0:
        print(train_data.summary())
        print(f"test accuracy {accuracy:.1%} with {dist.get_world_size()} processes")
    dist.destroy_process_group()


def as_dataset(split: fashion.Split) -> TensorDataset:
    images = torch.from_numpy(split.images).float() / 255
    return TensorDataset((images - fashion.MEAN) / fashion.STD, torch.from_numpy(split.labels).long())


if __name__ == "__main__":
    main()
