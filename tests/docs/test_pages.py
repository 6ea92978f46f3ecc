"""Every code block of the README and the pages runs, or is listed with where its like is run instead."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, TensorDataset, default_collate

import infobatch
from infobatch import InfoBatch
from infobatch.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NUM_EPOCHS = 3


def blocks(path):
    """The Python of a page: its python blocks, and what its diffs make of the code before."""
    for language, text in re.findall(
        r"^ *```(python|diff)\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.S | re.M
    ):
        if language == "diff":
            text = "".join(line[2:] if len(line) > 1 else line for line in text.splitlines(True) if line[0] != "-")
        yield text


CODE = {(path.name, number): text for path in PAGES for number, text in enumerate(blocks(path))}

# Blocks that are cut out of a larger whole, and the file in which that whole is run.
RUN_ELSEWHERE = {
    ("batch-losses.md", 0): "examples/contrastive.py",
    ("batch-losses.md", 1): "tests/examples/test_contrastive.py",
    ("batch-losses.md", 2): "tests/contracts/test_methods.py",
    ("detection.md", 0): "examples/detection.py",
    ("diffusion.md", 0): "examples/diffusion.py",
    ("diffusion.md", 1): "tests/lab/tasks/test_diffusion.py",
    ("instructions.md", 0): "examples/instructions.py",
    ("lightning.md", 0): "examples/lightning_trainer.py",
    ("lightning.md", 1): "tests/integrations/lightning_run.py",
    ("lightning.md", 2): "tests/integrations/test_lightning.py",
    ("lightning.md", 3): "tests/integrations/test_lightning.py",
    ("lightning.md", 4): "tests/integrations/test_lightning.py",
    ("masked.md", 0): "examples/masked.py",
    ("methods.md", 3): "tests/methods/test_own.py",
    ("methods.md", 4): "tests/methods/test_own.py",
    ("migration.md", 0): "tests/test_dataset.py",
    ("ray.md", 0): "examples/ray_train.py",
    ("ray.md", 1): "examples/ray_train.py",
    ("segmentation.md", 0): "examples/segmentation.py",
    ("timm.md", 0): "examples/timm_train.py",
    ("timm.md", 1): "tests/integrations/test_timm.py",
    ("timm.md", 2): "examples/timm_train.py",
    ("timm.md", 3): "tests/integrations/test_timm.py",
    ("transformers.md", 0): "examples/hf_trainer.py",
    ("transformers.md", 1): "examples/sft.py",
    ("transformers.md", 2): "tests/integrations/test_transformers.py",
    ("bit-for-bit.md", 0): "tests/core/test_turn.py",
    ("fastai.md", 0): "examples/fastai_train.py",
    ("fastai.md", 1): "tests/more/test_fastai.py",
    ("fastai.md", 2): "tests/more/test_fastai.py",
    ("keras.md", 0): "examples/keras_train.py",
    ("keras.md", 1): "tests/more/test_keras.py",
    ("keras.md", 2): "tests/more/test_keras.py",
    ("lightning.md", 5): "examples/fabric.py",
    **{("more-frameworks.md", number): "tests/more/test_recipes.py" for number in range(3)},
    ("own-training.md", 0): "examples/own_training.py",
    ("own-training.md", 1): "examples/own_lightning.py",
    ("own-training.md", 2): "examples/own_trainer.py",
    ("own-training.md", 3): "tests/lab/test_own.py",
    **{("streams.md", number): "tests/stream/test_docs.py" for number in range(6)},
    ("streams.md", 6): "tests/integrations/test_streaming.py",
    ("ultralytics.md", 0): "examples/ultralytics_train.py",
    **{("your-samples.md", number): "tests/test_your_samples.py" for number in range(3)},
}


def scene(**more):
    """The names that a reader's own training has."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(256, 4), torch.randint(3, (256,)))
    body, head = nn.Linear(4, 8), nn.Linear(8, 3)
    model = nn.Sequential(body, nn.ReLU(), head)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = data[:32]
    return {
        "torch": torch,
        "np": np,
        "nn": nn,
        "F": F,
        "infobatch": infobatch,
        "InfoBatch": InfoBatch,
        "DataLoader": DataLoader,
        "default_collate": default_collate,
        "cross_entropy": cross_entropy,
        "one_hot": one_hot,
        "data": data,
        "train_data": data,
        "train_set": data,
        "num_epochs": NUM_EPOCHS,
        "ratio": 0.5,
        "delta": 0.875,
        "classes": 3,
        "model": model,
        "optimizer": optimizer,
        "body": nn.Sequential(body, nn.ReLU()),
        "head": head,
        "x": x,
        "y": y,
        "rank": 0,
        "device": "cpu",
        "criterion": nn.CrossEntropyLoss(reduction="none"),
        "scheduler": torch.optim.lr_scheduler.ConstantLR(optimizer),
        **more,
    }


def pruned(epochs_before=0, **options):
    """With the data wrapped and a loader, after some epochs."""
    names = scene()
    train_data = InfoBatch(names["data"], NUM_EPOCHS, **options)
    loader = DataLoader(train_data, batch_size=32, sampler=train_data.sampler)
    for _ in range(epochs_before):
        train(names["model"], train_data, loader)
    return {**names, "train_data": train_data, "loader": loader}


def train(model, train_data, loader):
    for x, y, *index in loader:
        train_data.update(cross_entropy(model(x), y, reduction="none"), *index).backward()


def first_batch(epochs_before=0, **options):
    """In the middle of a step, with the loss of the loader's first batch."""
    names = pruned(epochs_before, **options)
    names["batches"] = iter(names["loader"])  # a loader that is let go forgets what it has delivered
    x, y = next(names["batches"])
    return {**names, "x": x, "y": y, "loss": names["criterion"](names["model"](x), y)}


def accelerated():
    from accelerate import Accelerator

    return scene(Accelerator=Accelerator)


def accelerated_and_trained():
    names = accelerated()
    exec(CODE["accelerate.md", 0], names)
    return names


def several_steps():
    names = pruned()
    return {**names, "max_lr": 0.1, "full_steps_per_epoch": 8, "OneCycleLR": torch.optim.lr_scheduler.OneCycleLR}


def soft_labels():
    names = first_batch()
    return {**names, "soft_target": F.one_hot(names["y"], 3).float()}


def logged():
    class Writer:
        def add_scalar(self, *figures):
            assert len(figures) == 3

    return {**pruned(1), "writer": Writer(), "step": 7}


SCENES = {
    ("README.md", 0): scene,
    ("README.md", 1): scene,
    ("accelerate.md", 0): accelerated,
    ("accelerate.md", 1): pruned,
    ("accelerate.md", 2): accelerated_and_trained,
    ("forecast.md", 0): lambda: pruned(method="infobatch-adaptive"),
    ("indices.md", 0): scene,
    ("indices.md", 1): pruned,
    ("instructions.md", 1): scene,
    ("logging.md", 0): logged,
    ("logging.md", 1): logged,
    ("many-processes.md", 0): pruned,
    ("methods.md", 0): lambda: pruned(2, method="kakurenbo", fraction=0.5),
    ("methods.md", 1): lambda: pruned(1, method="selective-backprop", keep=0.5),
    ("methods.md", 2): lambda: first_batch(1, method="divbs", keep=0.5),
    ("noise.md", 0): scene,
    ("quick-start.md", 0): dict,
    ("schedules.md", 0): several_steps,
    ("schedules.md", 1): pruned,
    ("scoring.md", 0): soft_labels,
    ("static.md", 0): scene,
}
FILLED_IN = {("instructions.md", 1): "np.random.default_rng(0).random((40, 8))"}  # in the place of "..."


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*", "ignore:This DataLoader will create")
@pytest.mark.parametrize("block", SCENES, ids=lambda block: f"{block[0]}-{block[1]}")
def test_the_block_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = CODE[block]
    if block in FILLED_IN:
        text = text.replace("...", FILLED_IN[block])
    names = SCENES[block]()
    exec(compile(text, f"{block[0]}, block {block[1]}", "exec"), names)


def test_every_block_is_run_here_or_elsewhere():
    assert set(SCENES) | set(RUN_ELSEWHERE) == set(CODE)
    assert not set(SCENES) & set(RUN_ELSEWHERE)
    assert [file for file in RUN_ELSEWHERE.values() if not (ROOT / file).exists()] == []


def commands(path):
    """The calls of ``infobatch`` in a page's shell blocks."""
    for text in re.findall(r"^ *```sh\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.S | re.M):
        for line in text.replace("\\\n", "").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["infobatch"]:
                yield words[1:]


COMMANDS = [(path.name, words) for path in [*PAGES, ROOT / "results/README.md"] for words in commands(path)]


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=[f"{page} {words[0]} {i}" for i, (page, words) in enumerate(COMMANDS)]
)
def test_the_command_has_these_arguments(page, words):
    group = typer.main.get_command(app)
    command = group.get_command(None, words[0])
    assert command, f"{page}: there is no command {words[0]}"
    command.make_context(words[0], words[1:])  # a UsageError says what is unknown or missing


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if not target.startswith(("http", "#", "mailto:")):
            assert (path.parent / target.partition("#")[0]).exists(), target
