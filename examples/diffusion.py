"""Diffusion: diffusers' UNet2DModel and noise, one loss per sample, judged by what is usual at its timestep.

    python examples/diffusion.py

A tiny U-Net learns to tell the noise in small Fashion-MNIST images, the package's own. Latents go the same way: encode
the images once, and train on what comes out. How large a loss is depends on the timestep first; the score is the loss
over the usual one at that timestep.
"""

import argparse

import torch
from diffusers import DDPMScheduler, UNet2DModel
from torch.nn.functional import avg_pool2d, pad
from torch.utils.data import DataLoader, TensorDataset

import infobatch
from infobatch.lab.data import fashion
from infobatch.scoring.diffusion import ExpectedLoss, noise_prediction, relative


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--samples", type=int, default=2000)
    options = parser.parse_args()

    torch.manual_seed(0)
    images = torch.from_numpy(fashion.load().train.head(options.samples).images)[:, None] / 127.5 - 1
    images = TensorDataset(avg_pool2d(pad(images, (2, 2, 2, 2), value=-1.0), 4))  # 8 × 8
    train_data = infobatch.InfoBatch(images, options.epochs, delta=0.825)
    loader = DataLoader(train_data, batch_size=64, sampler=train_data.sampler)
    scheduler, usual = DDPMScheduler(num_train_timesteps=1000), ExpectedLoss(timesteps=1000)
    blocks = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    model = UNet2DModel(8, 1, 1, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8, **blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    for epoch in range(options.epochs):
        total = torch.zeros(())
        for (x,) in loader:
            noise, timestep = torch.randn_like(x), torch.randint(1000, (len(x),))
            predicted = model(scheduler.add_noise(x, noise, timestep), timestep).sample
            losses = noise_prediction(predicted, noise)
            usual.book(losses, timestep)
            loss = train_data.update(losses, score=relative(losses, usual(timestep)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)
        print(f"epoch {epoch}: noise-prediction error {total / len(images):.3f}")
    print(train_data.summary())


if __name__ == "__main__":
    main()
