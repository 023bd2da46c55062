"""Train ResNet-50: mixed precision, channels_last, torch.compile, checkpoints that a run can go on from, TensorBoard.

    python scripts/train_resnet50.py                              # synthetic images: how fast is this machine?
    python scripts/train_resnet50.py --data data/imagenet/train   # folders of images, one folder per class
    python scripts/train_resnet50.py --resume output/train_resnet50/20260101-120000/checkpoint.pt

A batch of 64 needs about 6 GB; 256 fits into 24 GB with mixed precision.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import _common as common

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


def synthetic(run: common.Run) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same random batch again and again, already on the device: no disk and no JPEG decoder in the way."""
    n, side = run.options.batch, run.options.image
    images = torch.randn(n, 3, side, side, device=run.device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (n,), device=run.device)
    while True:
        yield images, labels


def image_folder(run: common.Run) -> tuple[int, Iterator[tuple[torch.Tensor, torch.Tensor]]]:
    """Number of classes and batches of <data>/<class>/*.jpg, shuffled, for ever."""
    from torchvision import datasets, transforms

    side = run.options.image
    steps = [transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    try:
        data = datasets.ImageFolder(
            run.options.data, transforms.Compose([*steps, transforms.Normalize(MEAN, DEVIATION)])
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise common.Stop(f"--data {run.options.data} is no folder of class folders with images ({error}).") from None
    if len(data) < run.options.batch:
        raise common.Stop(
            f"--data has {len(data)} images, fewer than one batch of {run.options.batch}: use a smaller --batch."
        )
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=run.options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=run.options.workers,
        pin_memory=run.device == "cuda",
        persistent_workers=run.options.workers > 0,
    )

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            for images, labels in loader:
                moved = images.to(run.device, non_blocking=True, memory_format=torch.channels_last)
                yield moved, labels.to(run.device, non_blocking=True)

    return len(data.classes), batches()


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> int:
    """Take weights and optimizer state from a checkpoint; the number of steps it has seen."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])
    except Exception as error:  # bytes that are no checkpoint make torch's unpickler raise almost anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise common.Stop(f"--resume {path} is no checkpoint of this model: {reason}") from None


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--batch", 64, 2, "images per step")
    common.size(parser, "--steps", 100, 3, "steps to train")
    common.size(parser, "--image", 224, 32, "height and width of an image")
    common.size(parser, "--save-every", 500, 2, "steps between checkpoints; the last step is always saved")
    parser.add_argument("--data", type=Path, help="a folder of class folders; without it images are synthetic")
    parser.add_argument("--workers", type=int, default=4, help="processes that read images (default 4)")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate of AdamW (default 0.001)")
    parser.add_argument("--resume", type=Path, help="a checkpoint.pt to go on from")
    parser.add_argument("--no-amp", action="store_true", help="float32 (TF32) instead of mixed bfloat16")
    parser.add_argument("--no-compile", action="store_true", help="eager mode; on a CPU always")
    run = common.start(parser, "train_resnet50")
    models = common.need("torchvision", "ResNet-50").models

    classes, batches = (1000, synthetic(run)) if run.options.data is None else image_folder(run)
    make = models.resnet18 if run.tiny else models.resnet50
    model = make(num_classes=classes).to(run.device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.options.lr, fused=run.device == "cuda")
    done = load(run.options.resume, model, optimizer, run.device) if run.options.resume else 0
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)

    # The model is compiled and the loop is not: fused AdamW is one kernel already, and checkpoints stay ordinary.
    fast = model if run.options.no_compile or run.device == "cpu" else torch.compile(model)

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.autocast(run.device, torch.bfloat16, enabled=not run.options.no_amp):
            loss = loss_of(fast(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def checkpoint(steps: int) -> None:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": steps}
        common.save(run.folder / "checkpoint.pt", lambda path: torch.save(state, path))

    writer = run.writer()
    losses, begin, timed = [], time.perf_counter(), 0
    for number in common.bar(range(done + 1, done + run.options.steps + 1), "training"):
        loss = step(*next(batches))
        if number == done + 1:
            first = loss.item()
            print(f"first step: {time.perf_counter() - begin:.1f} s, with the compilation")
            begin, timed = time.perf_counter(), -1
        timed += 1
        if number % 10 == 0 or run.tiny or number == done + run.options.steps:
            losses.append(loss.item())  # .item() waits for the GPU: not at every step
            if writer:
                writer.add_scalar("loss", losses[-1], number)
        if number % run.options.save_every == 0 or number == done + run.options.steps:
            paused = time.perf_counter()
            checkpoint(number)
            begin += time.perf_counter() - paused
    rate = timed * run.options.batch / (time.perf_counter() - begin)
    if writer:
        writer.close()
    if not torch.isfinite(torch.tensor(losses)).all():
        raise common.Stop(
            "the loss is not finite: use a smaller --lr, or --no-amp to see whether precision is the cause."
        )
    words = f"{rate:.0f} images/s, loss {first:.2f} to {losses[-1]:.2f}, {common.peak_gib():.1f} GiB"
    run.finish(words, images_per_second=rate, loss=losses, steps=done + run.options.steps, peak_gib=common.peak_gib())


if __name__ == "__main__":
    common.main(main)
