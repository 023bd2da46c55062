"""ResNet-50 training, Stable-Diffusion-1.5-shaped sampling and YOLOv8 training, random weights. Child side."""

from __future__ import annotations

import importlib
import importlib.util
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from verify.claims.meter import MISSING, Notes, NotHere, fresh, out_of_memory, peak, seconds

STEPS, GUIDANCE, SCALE = 25, 7.5, 0.18215  # the article's steps; Stable Diffusion's defaults
WORDS, TEXT = 77, 768


def resnet_step(device: str, batch: int, size: int, amp: bool) -> Any:
    """A training step of ResNet-50 with SGD and momentum, NCHW, as torchvision's reference trains it."""
    import torch
    from torchvision.models import resnet50

    with torch.device(device):
        net = resnet50(weights=None).train()
        x, y = torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16) if amp else nullcontext():
            loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()

    return step


def resnet(notes: Notes, device: str, tiny: bool) -> None:
    """Images a second and memory at batch 256, and what TF32 and autocast gain at batch 64."""
    import torch

    size = 64 if tiny else 224
    repeats, wait = (1, 1) if tiny else (8, 3)
    forms = (("fp32", False, False), ("tf32", True, False), ("amp", True, True))
    took: dict[str, float] = {}
    for batch in (2, 4) if tiny else (64, 256):
        for name, tf32, amp in forms:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
            fresh(device)
            try:
                step = resnet_step(device, batch, size, amp)
                for _ in range(wait):
                    step()
                per_step = seconds(step, repeats, device)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                if batch in (4, 256):
                    notes.add(f"rate_{name}", None, "images/s", "does not fit into this card")
                    notes.add(f"gb_{name}", None, "GB", "more than this card has")
                continue
            finally:
                step = None
            if batch in (2, 64):
                took[name] = per_step
                continue
            held, reserved = peak(device)
            notes.add(f"rate_{name}", batch / per_step, "images/s")
            if name != "tf32":
                notes.add(f"gb_{name}", reserved, "GB", "taken from the driver")
                notes.add(f"held_{name}", held, "GB", "of tensors")
        if batch in (2, 64) and len(took) == len(forms):
            notes.add("tf32_over_fp32", took["fp32"] / took["tf32"], "×", f"(batch {batch})")
            notes.add("amp_over_tf32", took["tf32"] / took["amp"], "×", f"(batch {batch})")


def imports(name: str) -> bool:
    """Whether a package is here and really imports: a broken one is as good as none, its own check says so."""
    try:
        importlib.import_module(name)
    except Exception:
        return False
    return True


def unet(device: str, kind: Any, tiny: bool) -> tuple[Any, str]:
    """The noise predictor as a function of latents, step and text, and where it comes from."""
    import torch

    if imports("diffusers"):
        from diffusers import UNet2DConditionModel

        small = {"block_out_channels": (32, 32, 32, 32), "norm_num_groups": 8, "attention_head_dim": 2} if tiny else {}
        with torch.device(device):
            net = UNet2DConditionModel(sample_size=64, cross_attention_dim=TEXT, **small)
        net = net.to(kind).eval().requires_grad_(False)
        return lambda x, t, words: net(x, t, words, return_dict=False)[0], "diffusers"
    if not importlib.util.find_spec("verify.speed.unet"):
        raise NotHere(f"diffusers is {MISSING}.")
    own = importlib.import_module("verify.speed.unet")
    with torch.device(device):
        made = own.build((32, 32, 32, 32), text=TEXT, heads=2, groups=8) if tiny else own.build()
    made = made.to(kind).eval().requires_grad_(False)
    return lambda x, t, words: made(x, t.expand(x.shape[0]), words), "own UNet, no image decoder"


def decoder(device: str, kind: Any, tiny: bool) -> Any:
    """Stable Diffusion's image decoder; None without diffusers."""
    if not imports("diffusers"):
        return None
    import torch
    from diffusers import AutoencoderKL

    widths = (32, 32, 32, 32) if tiny else (128, 256, 512, 512)
    with torch.device(device):
        net = AutoencoderKL(
            block_out_channels=widths,
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            latent_channels=4,
        )
    net = net.to(kind).eval().requires_grad_(False)
    return lambda x: net.decode(x / SCALE, return_dict=False)[0]


def sampling(notes: Notes, device: str, tiny: bool) -> None:
    """25 guided steps and the decoding of the image: seconds and memory, for one image and for four."""
    import torch

    kind = torch.float16 if device == "cuda" else torch.bfloat16
    predict, name = unet(device, kind, tiny)
    decode, steps = decoder(device, kind, tiny), 2 if tiny else STEPS
    side = 8 if tiny else 64
    times = torch.linspace(999, 0, steps, device=device)

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def draw(images: int) -> Any:
        words = torch.randn(2 * images, WORDS, TEXT, device=device, dtype=kind)
        x = torch.randn(images, 4, side, side, device=device, dtype=kind)
        for t in times:
            without, guided = predict(torch.cat([x, x]), t, words).chunk(2)
            x = x - (without + GUIDANCE * (guided - without)) / steps
        return decode(x) if decode else x

    draw(1)
    for images, suffix in ((1, ""), (4, "_4")):
        fresh(device)
        try:
            draw(images)
            took = seconds(lambda: draw(images), 1 if tiny else 3, device)  # noqa: B023 - called at once
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            notes.add(f"gb{suffix}", None, "GB", f"{images} images do not fit into this card")
            continue
        held, reserved = peak(device)
        notes.add(f"seconds{suffix}", took, "s", f"(fp16, {name}, without the safety checker, random weights)")
        notes.add(f"gb{suffix}", reserved, "GB", f"taken from the driver, {images} at once")
        if images == 1:
            notes.add("steps", steps / took, "steps/s", "")
            notes.add("held", held, "GB", "of tensors")


def yolo(notes: Notes, device: str, tiny: bool) -> None:
    """YOLOv8-large's training step (the model and its own loss), 640 px, batch 16, autocast; ten boxes an image."""
    if not importlib.util.find_spec("ultralytics"):
        raise NotHere(f"ultralytics is {MISSING} (AGPL-3.0, so never a part of this project).")
    import torch
    from ultralytics.nn.tasks import DetectionModel

    batch, size, boxes = (2, 64, 2) if tiny else (16, 640, 10)
    net = DetectionModel("yolov8n.yaml" if tiny else "yolov8l.yaml", nc=80, verbose=False).to(device).train()
    net.args = SimpleNamespace(box=7.5, cls=0.5, dfl=1.5)  # ultralytics' defaults
    given = {
        "img": torch.rand(batch, 3, size, size, device=device),
        "batch_idx": torch.arange(batch, device=device).repeat_interleave(boxes).float(),
        "cls": torch.randint(0, 80, (batch * boxes, 1), device=device).float(),
        "bboxes": torch.rand(batch * boxes, 4, device=device) * 0.4 + 0.3,
    }
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.937)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            loss = net(given)[0].sum()
        loss.backward()
        optimizer.step()

    for _ in range(1 if tiny else 3):
        step()
    notes.add("rate", batch / seconds(step, 1 if tiny else 10, device), "images/s", "(data already on the card)")
