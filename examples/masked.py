"""Masked-image pre-training: transformers' ViTMAEForPreTraining, with one loss per image.

    python examples/masked.py

A tiny ViT learns to fill in three quarters of an image, on the package's own Fashion-MNIST images. Masks differ in
every epoch, so that an image is easy once and hard another time: scores are averaged over epochs (``momentum``).
"""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import ViTMAEConfig, ViTMAEForPreTraining

import infobatch
from infobatch.lab.data import fashion
from infobatch.lab.tasks.masked import initialise
from infobatch.scoring import masked

PATCH = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=2000)
    options = parser.parse_args()

    torch.manual_seed(0)
    images = torch.from_numpy(fashion.load().train.head(options.samples).images)[:, None] / 255
    images = TensorDataset((images - fashion.MEAN) / fashion.STD)
    train_data = infobatch.InfoBatch(images, options.epochs, momentum=0.5)
    loader = DataLoader(train_data, batch_size=64, sampler=train_data.sampler)
    model = tiny_mae()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    for epoch in range(options.epochs):
        total = torch.zeros(())
        for (x,) in loader:
            output = model(x)
            target = masked.patches(x, PATCH)
            losses = masked.reconstruction(output.logits, target, output.mask)  # their mean is output.loss
            loss = train_data.update(losses)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)
        print(f"epoch {epoch}: reconstruction error {total / len(images):.3f}")
    print(train_data.summary())


def tiny_mae() -> ViTMAEForPreTraining:
    encoder = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    decoder = {f"decoder_{name}": size for name, size in {**encoder, "num_hidden_layers": 1}.items()}
    config = ViTMAEConfig(image_size=28, num_channels=1, patch_size=PATCH, initializer_range=0.1, **encoder, **decoder)
    model = ViTMAEForPreTraining(config)
    initialise(model)  # transformers 5.22 leaves the positions of a model made from a config at zero, and frozen
    return model


if __name__ == "__main__":
    main()
