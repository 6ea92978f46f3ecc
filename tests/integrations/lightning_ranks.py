"""Under torchrun: Lightning's Trainer and Fabric on several ranks, with gloo; rank r writes what it saw to ``r.pt``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy

from integrations.lightning_run import Made, end_of, fabric_fit, fit, fit_made, infobatch_of

HALF = {"batch_size": 4}  # per rank: two make the batch of one process
TRAINED = {"schedule": "paced", "loader": HALF, "devices": 2, "strategy": "ddp", "accumulate_grad_batches": 2}
STEPS = (3, 8, 21)  # in the first epoch, in a pruned one, and after the last batch before the full last one


STAY = {
    "schedule": "step",
    "loader": {**HALF, "stay": True},
    "devices": 2,
    "strategy": "ddp",
    "max_epochs": -1,
    "max_steps": 60,
    "use_distributed_sampler": False,  # there is one: ours
}
STAYING_STEPS = (17, 24)  # in a pruned epoch, and at its end


class TensorParallel(DDPStrategy):
    """A strategy whose ranks are to see the same samples."""

    @property
    def distributed_sampler_kwargs(self) -> dict[str, int]:
        return {"num_replicas": 1, "rank": 0}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    found = {}
    every_step = ModelCheckpoint(folder / "steps", filename="{step}", every_n_train_steps=1, save_top_k=-1)
    every_epoch = ModelCheckpoint(folder / "epochs", filename="{epoch}", save_top_k=-1, save_on_train_epoch_end=False)
    net = fit(folder, infobatch_of(), every_step, every_epoch, **TRAINED)
    rank = net.trainer.global_rank
    found["whole"] = {"seen": vars(net.seen), "end": end_of(net)}
    for path in [*(folder / f"steps/step={step}.ckpt" for step in STEPS), folder / "epochs/epoch=2.ckpt"]:
        net = fit(folder, infobatch_of(), ckpt_path=path, **TRAINED)
        logged = {name: float(value) for name, value in net.trainer.callback_metrics.items()}
        found[path.stem] = {"seen": vars(net.seen), "end": end_of(net), "logged": logged}

    made = {name: value for name, value in TRAINED.items() if name != "loader"}
    for name, path in {"made": None, "made resumed": folder / f"steps/step={STEPS[1]}.ckpt"}.items():
        net = fit_made(folder, data=Made(HALF), ckpt_path=path, **made)
        found[name] = {"seen": vars(net.seen), "end": end_of(net)}

    try:
        fit(folder, infobatch_of(), **{**TRAINED, "strategy": TensorParallel()})
    except ValueError as error:
        found["refused"] = str(error)

    every_step = ModelCheckpoint(folder / "stay", filename="{step}", every_n_train_steps=1, save_top_k=-1)
    net = fit(folder, infobatch_of(), every_step, **STAY)
    found["stay"] = {"seen": vars(net.seen), "end": end_of(net)}
    for step in STAYING_STEPS:
        net = fit(folder, infobatch_of(), ckpt_path=folder / f"stay/step={step}.ckpt", **STAY)
        found[f"stay {step}"] = {"seen": vars(net.seen), "end": end_of(net)}
    try:
        fit(folder, infobatch_of(), **{**STAY, "use_distributed_sampler": True})
    except TypeError as error:
        found["replaced"] = str(error)

    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    middle = folder / "fabric.pt"
    seen, end = fabric_fit(fabric, infobatch_of(index_key="index"), loader=HALF, save_at={16: middle})
    found["fabric"] = {"seen": vars(seen), "end": end}
    seen, end = fabric_fit(fabric, infobatch_of(index_key="index"), loader=HALF, resume=middle)
    found["fabric resumed"] = {"seen": vars(seen), "end": end}
    stay = {**HALF, "stay": True}
    seen, end = fabric_fit(fabric, infobatch_of(index_key="index"), loader=stay, save_at={16: middle})
    found["fabric stay"] = {"seen": vars(seen), "end": end}
    seen, end = fabric_fit(fabric, infobatch_of(index_key="index"), loader=stay, resume=middle)
    found["fabric stay resumed"] = {"seen": vars(seen), "end": end}
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
