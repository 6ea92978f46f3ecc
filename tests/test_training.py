"""Real images: InfoBatch reaches the accuracy of full data, with the saving it announced."""

import math
from dataclasses import dataclass
from statistics import mean

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from infobatch import InfoBatch, paced
from infobatch.lab.data import fashion

pytestmark = pytest.mark.slow  # whole trainings

EPOCHS, BATCH, PER_CLASS, SEEDS = 8, 64, 300, (0, 1, 2)


@dataclass
class Result:
    accuracy: float
    announced: float  # the saving expected before training
    expected: dict[int, float]  # the saving expected in all, after each epoch
    saved: float


def tensors(split):
    images = (torch.from_numpy(split.images).unsqueeze(1) / 255 - fashion.MEAN) / fashion.STD
    return images, torch.from_numpy(split.labels).long()


@pytest.fixture(scope="module")
def data():
    loaded = fashion.load()
    return TensorDataset(*tensors(loaded.train.per_class(PER_CLASS))), tensors(loaded.test)


def cnn(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 7 * 7, 10),
        )


def train(data, seed, method, **options):
    """The three lines of the poster, in a plain loop with OneCycle paced."""
    images, (test_images, test_labels) = data
    train_data = InfoBatch(images, EPOCHS, method=method, seed=seed, **options)
    loader = DataLoader(train_data, batch_size=BATCH, sampler=train_data.sampler)
    model = cnn(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    steps = EPOCHS * math.ceil(len(images) / BATCH)
    scheduler = paced(OneCycleLR(optimizer, max_lr=0.1, total_steps=steps), train_data)
    announced, expected = train_data.stats.expected_saving, {}
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = train_data.update(cross_entropy(model(x), y, reduction="none"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        expected[epoch] = train_data.stats.expected_saving
    model.eval()
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).double().mean().item()
    return Result(accuracy, announced, expected, train_data.stats.saving)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "tolerance"),
    # the mean rule's saving depends on how the losses spread, which only training shows
    [("infobatch", 0.06), ("infobatch-quantile", 0.005)],
)
def test_the_accuracy_of_full_data_with_the_saving_announced(data, method, tolerance):
    """The paired difference was -0.25 points, with a standard deviation of 0.7 from seed to seed (8 seeds).

    Of three seeds the mean then scatters by 0.4: -1.5 is three of these away.
    """
    full = [train(data, seed, "full") for seed in SEEDS]
    pruned = [train(data, seed, method) for seed in SEEDS]
    differences = [100 * (p.accuracy - f.accuracy) for p, f in zip(pruned, full, strict=True)]
    assert min(result.accuracy for result in full) > 0.82, "the yardstick itself learns"
    assert mean(differences) > -1.5, differences
    for result in pruned:
        assert result.saved > 0.2
        assert result.saved == pytest.approx(result.announced, abs=tolerance)
        assert result.saved == pytest.approx(result.expected[2], abs=0.03)  # after two pruned epochs
        assert result.saved == pytest.approx(result.expected[EPOCHS - 1], abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("saving", [0.1, 0.4])
def test_a_target_saving_is_reached_within_one_point(data, saving):
    result = train(data, 0, "infobatch", saving=saving)
    assert result.announced == saving
    assert result.saved == pytest.approx(saving, abs=0.01)
    assert result.accuracy > 0.82
