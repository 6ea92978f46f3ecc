"""Some of a batch's samples, whatever the batch is made of."""

import torch

from infobatch.lab.tasks.rows import take_rows


def test_rows_of_every_kind_of_batch():
    rows = torch.tensor([2, 0])
    samples = [(torch.tensor([i]), i) for i in range(3)]
    assert take_rows(samples, rows) == [samples[2], samples[0]]
    images, targets = take_rows((torch.arange(3), [{"label": i} for i in range(3)]), rows)
    assert images.tolist() == [2, 0]
    assert targets == [{"label": 2}, {"label": 0}]
    assert take_rows({"x": torch.arange(3)}, rows)["x"].tolist() == [2, 0]
    assert take_rows(samples, None) is samples
