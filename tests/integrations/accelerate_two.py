"""Run by torchrun on two processes: trains in several ways and writes what this process has seen to ``<rank>.pt``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader

from infobatch import InfoBatch
from infobatch.integrations.accelerate import prepare
from integrations.accelerate_training import EPOCHS, TRAIN, Augmented, accelerated


def refused(train: Any, *arguments: Any, **options: Any) -> str:
    try:
        train(*arguments, **options)
    except ValueError as error:
        return str(error)
    return "not refused"


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    early = InfoBatch(TRAIN, EPOCHS, index_key="index")
    accelerator = Accelerator(cpu=True)
    found = {
        "pruned": accelerated(batch=4),
        "uneven": accelerated(batch=4, config={"even_batches": False}),
        "accumulated": accelerated(batch=4, accumulate=3),
        "stay": accelerated(batch=4, stay=True),
        "stay accumulated": accelerated(batch=4, accumulate=3, stay=True),
        "refused": {
            "dispatch_batches": refused(accelerated, config={"dispatch_batches": True}),
            "split_batches": refused(accelerated, config={"split_batches": True}),
            "made too early": refused(prepare, accelerator, DataLoader(early, 4, sampler=early.sampler)),
        },
    }
    accelerated(batch=4, save=(1, 3, folder / "state"))
    accelerator.wait_for_everyone()
    found["resumed"] = accelerated(batch=4, load=folder / "state")
    accelerated(batch=4, stay=True, save=(1, 3, folder / "stay"))
    accelerator.wait_for_everyone()
    found["stay resumed"] = accelerated(batch=4, stay=True, load=folder / "stay")
    found["augmented"] = accelerated(batch=4, data=Augmented(), pruning={"seed_samples": True}, num_workers=1)
    accelerated(batch=4, data=Augmented(), pruning={"seed_samples": True}, save=(1, 3, folder / "augmented"))
    accelerator.wait_for_everyone()
    found["augmented resumed"] = accelerated(
        batch=4, data=Augmented(), pruning={"seed_samples": True}, load=folder / "augmented", num_workers=2
    )
    set_seed(7, device_specific=True)  # on process 1 that is 8
    train_data = InfoBatch(TRAIN, EPOCHS, index_key="index")
    prepare(accelerator, DataLoader(train_data, 4, sampler=train_data.sampler))
    found["seed"] = train_data.sampler.seed
    torch.save(found, folder / f"{accelerator.process_index}.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
