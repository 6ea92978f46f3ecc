"""Under torchrun: timm's flow on two ranks; says so on each when everything is as it should be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from timm.data import FastCollateMixup
from timm.loss import SoftTargetCrossEntropy
from timm.models import resume_checkpoint
from timm.utils import CheckpointSaver, random_seed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset
from torchvision.transforms.functional import to_pil_image

from infobatch import InfoBatch
from infobatch.integrations.timm import CheckpointState, Criterion, Target, create_loader, create_scheduler
from infobatch.lab.data import fashion

CPU = torch.device("cpu")
EPOCHS = 4
BATCH = 4
SIZE = 87  # odd, and no multiple of anything


class Pictures(Dataset):
    def __init__(self) -> None:
        self.split = fashion.load().train.head(SIZE)
        self.transform: Any = None

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(to_pil_image(self.split.images[index])), int(self.split.labels[index])


def gathered(value: Any) -> list[Any]:
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, value)
    return everyone


def train(
    folder: Path, stop_at: tuple[int, int] | None = None, resume: bool = False, stay: bool = False
) -> tuple[Any, Any, list[float]]:
    """Without mixing: two ranks, saved in mid-epoch by one of them."""
    torch.manual_seed(0)
    train_data = InfoBatch(Pictures(), EPOCHS, index_key="index")
    loader = create_loader(
        train_data,
        (1, 28, 28),
        BATCH,
        mean=(0.5,),
        std=(0.5,),
        no_aug=True,
        num_workers=0,
        device=CPU,
        distributed=True,
        keep_steps=stay,
    )
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = Criterion(nn.CrossEntropyLoss(), train_data)
    scheduler, _ = create_scheduler(
        train_data, loader, optimizer, sched="cosine", num_epochs=EPOCHS, step_on_epochs=False
    )
    assert scheduler.updates_per_epoch == -(-SIZE // 2) // BATCH
    state = CheckpointState(train_data)
    if resume:
        [path] = folder.glob("recovery-*")
        resume_checkpoint(net, path, optimizer, state, log_info=False)
        scheduler.step_update(0)
    lrs = []
    for epoch in range(train_data.epoch, EPOCHS):
        train_data.set_epoch(epoch)
        assert len(set(gathered(len(loader)))) == 1
        seen: list[int] = []
        for step, (x, target) in enumerate(loader, 1):
            loss = criterion(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step_update(0)
            lrs.append(optimizer.param_groups[0]["lr"])
            seen += target.index.tolist()
            if stop_at and (epoch, step) == (0, 1):
                state.gather()  # too early for what is saved later
            if (epoch, step) == stop_at:
                save(net, optimizer, state, folder, epoch)
                return train_data, net, lrs
        if not resume:
            everyone = [index for of_rank in gathered(seen) for index in of_rank]
            whole, planned = 2 * BATCH * len(loader), len(train_data.plan) + len(train_data.plan) % 2
            assert len(everyone) == (min(whole, planned) if stay else whole)
            assert len(set(everyone)) == min(len(everyone), len(train_data.plan))  # one may be padding
            assert set(everyone) <= set(train_data.plan.indices.tolist())
    assert train_data.stats.saving > 0.05
    return train_data, net, lrs


def save(net: Any, optimizer: Any, state: CheckpointState, folder: Path, epoch: int) -> None:
    refuses_to_save(state)
    state.gather()
    state.state_dict()
    refuses_to_save(state)  # once gathered, once saved
    state.gather()
    if dist.get_rank() == 0:
        CheckpointSaver(net, optimizer, amp_scaler=state, recovery_dir=folder).save_recovery(epoch)
    dist.barrier()


def refuses_to_save(state: CheckpointState) -> None:
    try:
        state.state_dict()
    except RuntimeError as error:
        assert "gather() on every rank" in str(error)  # noqa: PT017
    else:
        raise AssertionError("one rank alone took a state")


def resumed_bit_for_bit(folder: Path, stay: bool) -> None:
    folder.mkdir(exist_ok=True)
    data, net, lrs = train(folder, stay=stay)
    _, _, before = train(folder, stop_at=(1, 3), stay=stay)
    again, net_again, after = train(folder, resume=True, stay=stay)
    assert before + after == lrs
    assert not stay or len(lrs) == EPOCHS * (-(-SIZE // 2) // BATCH)
    assert lrs[-1] == 0
    for ours, theirs in zip(net_again.parameters(), net.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    data.state_dict(), again.state_dict()  # the ranks exchange their scores
    np.testing.assert_array_equal(data.scores, again.scores)


def mixed_inputs_weigh_what_their_pair_does() -> None:
    """The mean over ranks of the returned losses is the sum of pair weights times losses, over all inputs."""
    train_data = InfoBatch(Pictures(), EPOCHS, index_key="index")
    np.random.seed(dist.get_rank())  # noqa: NPY002
    mixup = FastCollateMixup(mode="elem", num_classes=10)
    loader = create_loader(
        train_data,
        (1, 28, 28),
        BATCH,
        mean=(0.5,),
        std=(0.5,),
        no_aug=True,
        num_workers=0,
        device=CPU,
        collate_fn=mixup,
    )
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    criterion = Criterion(SoftTargetCrossEntropy(), train_data)
    for epoch in range(2):
        train_data.set_epoch(epoch)
        padded = 2 * BATCH * len(loader) > len(train_data.plan)
        assert padded or epoch > 0
        for step, (x, target) in enumerate(loader, 1):
            with torch.no_grad():
                output = net(x)
                loss = criterion(output, target)
            weights, count = by_hand(train_data, target), float(BATCH)
            if padded and step == len(loader):
                weights[-1] *= dist.get_rank() == 0  # the other rank's last input is padding
                count -= 0.5
            torch.testing.assert_close(loss, (weights * each(output, target)).sum() / count)
    assert len(train_data.plan) < SIZE


def the_plans_seed_is_timms() -> None:
    """timm gives every rank a seed of its own, and the first one has the user's."""
    random_seed(42, dist.get_rank())
    train_data = InfoBatch(Pictures(), EPOCHS, index_key="index")
    create_loader(train_data, (1, 28, 28), BATCH, mean=(0.5,), std=(0.5,), num_workers=0, device=CPU)
    assert gathered(train_data.sampler.seed) == [42, 42]


def each(output: torch.Tensor, target: Target) -> torch.Tensor:
    return nn.CrossEntropyLoss(reduction="none")(output, target.mixed)


def by_hand(train_data: InfoBatch, target: Target) -> torch.Tensor:
    """(n - 1) / ((N - 1) π_ij), where n_low samples below the mean of the scores are drawn, k_low of them kept."""
    plan = train_data.plan
    n_low = k_low = 0
    if train_data.epoch:
        k_low = int((plan.weights > 1).sum())
        n_low = SIZE - (len(plan) - k_low)
    weights = []
    low = dict(zip(plan.indices.tolist(), (plan.weights > 1).tolist(), strict=True))
    index = target.index.tolist()
    for i, j in zip(index, reversed(index), strict=True):
        if low[i] and low[j]:
            kept = k_low * (k_low - 1) / (n_low * (n_low - 1))
        else:
            kept = k_low / n_low if low[i] or low[j] else 1.0
        weights.append((len(plan) - 1) / ((SIZE - 1) * kept))
    return torch.tensor(weights)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for steps in ("shrink", "stay"):
        resumed_bit_for_bit(Path(sys.argv[1], steps), stay=steps == "stay")
    mixed_inputs_weigh_what_their_pair_does()
    the_plans_seed_is_timms()
    print(f"rank {dist.get_rank()}: as it should be", flush=True)
    dist.barrier()
    dist.destroy_process_group()
