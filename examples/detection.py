"""Object detection: a detector of transformers whose loss is one per image.

    python examples/detection.py
    python examples/detection.py --model detr-tiny

One line gives the detector a loss per image, with all its terms and their gradients; the loop is the usual one. The
scenes are made of Fashion-MNIST pictures that come with the package, and so is nothing downloaded.
"""

import argparse

import torch
from torch.utils.data import DataLoader

import infobatch
from infobatch.lab.data import fashion
from infobatch.lab.tasks import detection
from infobatch.scoring.detection import PerImage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=detection.MODELS, default="deformable-detr-tiny")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--scenes", type=int, default=1_500)
    parser.add_argument("--held-out", type=int, default=300)
    options = parser.parse_args()

    recipe = detection.DetectionRecipe("fashion-scenes", options.model, options.epochs)
    recipe = recipe.changed([f"scenes={options.scenes}", f"held_out={options.held_out}"])
    task = recipe.create_task()  # scenes to train on, others to judge by
    torch.manual_seed(0)
    model = detection.create(options.model, len(fashion.CLASSES))  # any detector of the family

    mean_boxes = sum(len(scene.boxes) for scene in task.train) / len(task.train)
    model.loss_function = PerImage(mean_boxes)  # 1: outputs.loss holds one loss per image

    train_data = infobatch.InfoBatch(task.train, options.epochs)  # 2
    loader = DataLoader(train_data, batch_size=16, sampler=train_data.sampler, collate_fn=task.collate)  # 3
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps = options.epochs * -(-len(train_data) // 16)
    scheduler = infobatch.paced(torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps), train_data)
    for epoch in range(options.epochs):
        train_data.set_epoch(epoch)
        model.train()
        for images, targets in loader:
            pixels = (images / 255 - fashion.MEAN) / fashion.STD
            loss = train_data.update(model(pixel_values=pixels, labels=targets).loss)  # 4
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        print(f"epoch {epoch}: {len(train_data.sampler)} scenes, {task.metric}: {task.evaluate(model):.1f}")
    print(train_data.summary())


if __name__ == "__main__":
    main()
