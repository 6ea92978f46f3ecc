"""A fastai Learner that trains on fewer samples.

python examples/fastai_train.py --epochs 8
"""

import argparse

import torch
from fastai.callback.schedule import ParamScheduler  # noqa: F401 (gives the Learner fit_one_cycle)
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.losses import CrossEntropyLossFlat
from fastai.metrics import accuracy
from torch import nn

from infobatch.integrations.fastai import InfoBatchCallback
from infobatch.lab.data import fashion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=10_000)
    args = parser.parse_args()

    data = fashion.load()
    train, test = (
        list(zip(torch.tensor(split.images[:, None] / 255.0).float(), torch.tensor(split.labels).long(), strict=True))
        for split in (data.train.head(args.samples), data.test)
    )
    dls = DataLoaders.from_dsets(train, test, bs=64, num_workers=0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    learn = Learner(dls, model, loss_func=CrossEntropyLossFlat(), metrics=accuracy)
    callback = InfoBatchCallback(method="infobatch-adaptive")  # what infobatch adds
    with learn.no_bar():
        learn.fit_one_cycle(args.epochs, 1e-2, cbs=callback)
    print(callback.train_data.summary())


if __name__ == "__main__":
    main()
