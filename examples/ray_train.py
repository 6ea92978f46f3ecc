"""Ray Train: two workers, and a checkpoint after every epoch from which a restarted run goes on.

    python examples/ray_train.py --workers 2

``prepare_data_loader`` makes sure that Ray leaves our sampler in place, which gives every worker its part of the plan.
Ray fetches a batch ahead: the index travels in the batch (``index_key``) and goes back to ``update``.
"""

import argparse
import tempfile
from pathlib import Path

import ray.train.torch
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch import checkpoint
from infobatch.integrations.ray import prepare_data_loader
from infobatch.lab.data import fashion


def train(config: dict) -> None:
    data, epochs = fashion.load(), config["epochs"]
    train_data = infobatch.InfoBatch(as_dataset(data.train.head(config["samples"])), epochs, index_key="index")
    loader = DataLoader(train_data, config["batch_size"], sampler=train_data.sampler)
    loader = prepare_data_loader(loader)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    model = ray.train.torch.prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss(reduction="none")
    x_test, y_test = as_dataset(data.test).tensors

    parts = {"model": model, "optimizer": optimizer, "train_data": train_data}
    if last := ray.train.get_checkpoint():
        with last.as_directory() as folder:
            state = checkpoint.load(Path(folder, "last.pt"))
        for name, part in parts.items():
            part.load_state_dict(state[name])

    for epoch in range(train_data.epoch, epochs):
        train_data.set_epoch(epoch)
        for x, y, index in loader:
            loss = train_data.update(criterion(model(x), y), index)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            device = ray.train.torch.get_device()
            accuracy = (model(x_test.to(device)).argmax(1).cpu() == y_test).float().mean().item()
        figures = {"epoch": epoch, "accuracy": accuracy, "saving": train_data.stats.saving}
        state = {name: part.state_dict() for name, part in parts.items()}  # on every worker: scores are gathered
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if ray.train.get_context().get_world_rank() == 0:
                checkpoint.save(state, Path(folder, "last.pt"))
                saved = Checkpoint.from_directory(folder)
            ray.train.report(figures, checkpoint=saved)


def as_dataset(split: fashion.Split) -> TensorDataset:
    images = torch.from_numpy(split.images).float() / 255
    return TensorDataset((images - fashion.MEAN) / fashion.STD, torch.from_numpy(split.labels).long())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=64, help="per worker")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--storage", default=None, help="where Ray keeps checkpoints; ~/ray_results by default")
    options = parser.parse_args()

    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"epochs": options.epochs, "samples": options.samples, "batch_size": options.batch_size},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=torch.cuda.is_available()),
        run_config=RunConfig(storage_path=options.storage, failure_config=FailureConfig(max_failures=3)),
    )
    figures = trainer.fit().metrics
    print(f"saved {figures['saving']:.1%} of full training with {options.workers} workers")
    print(f"test accuracy {figures['accuracy']:.1%}")


if __name__ == "__main__":
    main()
