"""Pictures with a Stable Diffusion 1.5 pipeline: seconds per picture and memory.

    python scripts/sample_diffusion.py --model models/stable-diffusion-v1-5 --prompt "a beautiful sunset over mountains"

Without --model the same architecture is built with random weights: the pictures are noise, time and memory are true.
"""

from __future__ import annotations

import inspect
import time
from typing import Any

import torch

import _common as common


def random_pipeline(run: common.Run, dtype: torch.dtype) -> Any:
    """The pipeline of Stable Diffusion 1.5 (with --tiny a small one) with random weights and no text encoder."""
    import diffusers

    unet: dict[str, Any] = {"sample_size": 64, "cross_attention_dim": 768}
    vae: dict[str, Any] = {"block_out_channels": (128, 256, 512, 512), "layers_per_block": 2, "sample_size": 512}
    if run.tiny:
        unet |= {"sample_size": 8, "cross_attention_dim": 32, "block_out_channels": (8, 8, 8, 8), "norm_num_groups": 4}
        unet |= {"attention_head_dim": 4}
        vae |= {"block_out_channels": (8, 8, 8, 8), "norm_num_groups": 4, "layers_per_block": 1, "sample_size": 64}
    levels = len(vae["block_out_channels"])
    vae |= {"down_block_types": ("DownEncoderBlock2D",) * levels, "up_block_types": ("UpDecoderBlock2D",) * levels}
    with torch.device(run.device):
        parts = {
            "unet": diffusers.UNet2DConditionModel(**unet).to(dtype),
            "vae": diffusers.AutoencoderKL(latent_channels=4, **vae).to(dtype),
        }
    betas = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    scheduler = diffusers.PNDMScheduler(**betas, steps_offset=1, skip_prk_steps=True)
    absent = {"text_encoder": None, "tokenizer": None, "safety_checker": None, "feature_extractor": None}
    return diffusers.StableDiffusionPipeline(**parts, scheduler=scheduler, **absent, requires_safety_checker=False)


def load(run: common.Run, dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
    """The pipeline, and what it is called with instead of or as a prompt."""
    diffusers = common.need("diffusers", "Stable Diffusion")
    if not run.options.model:
        pipeline = random_pipeline(run, dtype)
        text = torch.randn(1, 77, pipeline.unet.config.cross_attention_dim, device=run.device, dtype=dtype)
        return pipeline, {"prompt_embeds": text, "negative_prompt_embeds": torch.zeros_like(text)}
    try:
        pipeline = diffusers.StableDiffusionPipeline.from_pretrained(run.options.model, torch_dtype=dtype)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise common.Stop(
            f"--model {run.options.model} could not be loaded ({reason}): give a folder of a diffusers pipeline."
        ) from None
    return pipeline, {"prompt": run.options.prompt}


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--steps", 25, 2, "denoising steps")
    common.size(parser, "--batch", 1, 1, "pictures at once")
    common.size(parser, "--side", 512, 64, "height and width, a multiple of 8")
    parser.add_argument("--model", help="a folder, or the id of a model on a hub (default: random weights)")
    parser.add_argument("--prompt", default="a beautiful sunset over mountains, digital art", help="used with --model")
    parser.add_argument("--compile", action="store_true", help="compile the UNet: the first picture then takes minutes")
    run = common.start(parser, "sample_diffusion")
    o = run.options
    if o.side % 8:
        raise common.Stop(f"--side {o.side} is no multiple of 8.")
    pipeline, text = load(run, torch.float16 if run.device == "cuda" else torch.float32)
    pipeline = pipeline.to(run.device)
    pipeline.set_progress_bar_config(disable=True)
    if o.compile:
        from diffusers.utils import is_torch_version

        # Asked inside the UNet; torch 2.8's compiler cannot follow it, and its answer never changes.
        torch.compiler.assume_constant_result(inspect.unwrap(is_torch_version))
        pipeline.unet.to(memory_format=torch.channels_last)
        pipeline.unet = torch.compile(pipeline.unet)
    settings = {"num_inference_steps": o.steps, "height": o.side, "width": o.side, "num_images_per_prompt": o.batch}
    assert set(settings) <= set(inspect.signature(pipeline.__call__).parameters)

    times, images = [], []
    for number in range(1 if run.tiny else 3):  # the first one also loads kernels (and compiles)
        begin = time.perf_counter()
        images = pipeline(**text, **settings, generator=torch.Generator(run.device).manual_seed(o.seed + number)).images
        times.append(time.perf_counter() - begin)  # pictures have come back to the CPU: nothing is left to wait for
        for index, image in enumerate(images):
            image.save(run.folder / f"{number}-{index}.png")
    once = min(times) / o.batch
    words = (
        f"{once:.2f} s per picture ({o.side} x {o.side}, {o.steps} steps, batch {o.batch}), {common.peak_gib():.1f} GiB"
    )
    if not o.model:
        words += ", random weights"
    run.finish(words, seconds_per_picture=once, first=times[0], peak_gib=common.peak_gib())


if __name__ == "__main__":
    common.main(main)
