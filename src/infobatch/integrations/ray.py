"""Ray Train: ``prepare_data_loader`` in place of ``ray.train.torch``'s own; it makes sure that our sampler stays."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader

from ..dataset import InfoBatch
from . import needs, sampler_of, torch_seed

with needs("ray", "ray"):
    import ray.train
    import ray.train.torch


def prepare_data_loader(loader: DataLoader[Any], **options: Any) -> DataLoader[Any]:
    """``ray.train.torch.prepare_data_loader(loader, **options)`` for a loader over an InfoBatch, or an error.

    Ray moves the batches but does not replace the sampler: ours gives every worker its part of the plan, with
    ``train_data.sampler`` or ``train_data.batches``. Ray also fetches a batch ahead, so ``update`` needs the index.
    """
    train_data = loader.dataset
    if not isinstance(train_data, InfoBatch):
        raise TypeError(
            f"loader must be over an InfoBatch, got one over a {type(train_data).__name__}: "
            "use ray.train.torch.prepare_data_loader for other data"
        )
    if train_data.index_key is None:
        raise ValueError(
            "train_data has index_key=None, but Ray fetches a batch ahead, so that batches cannot be known by "
            'position: make it InfoBatch(..., index_key="index") and call update(loss, index)'
        )
    workers = ray.train.get_context().get_world_size()
    if train_data.sampler.num_replicas != workers:
        raise ValueError(
            f"Ray runs {workers} workers, but train_data was made for {train_data.sampler.num_replicas}: make the "
            "InfoBatch inside the training function, where TorchTrainer has started the process group"
        )
    if sampler_of(loader) is not train_data.sampler:
        raise ValueError(
            f"the loader takes its samples from {type(sampler_of(loader)).__name__}, not from train_data.sampler: make "
            "it DataLoader(train_data, batch_size, sampler=train_data.sampler), or with "
            "batch_sampler=train_data.batches(batch_size)"
        )
    train_data.adopt_seed(torch_seed())  # of manual_seed, or ray.train.torch.enable_reproducibility
    return ray.train.torch.prepare_data_loader(loader, **{**options, "add_dist_sampler": False})
