"""Train a small diffusion model: guess the noise in noisy pictures, eager and (on a GPU) compiled.

The pictures are synthetic (coloured discs on a grey ground); put your own loader in place of `pictures`.
"""

from __future__ import annotations

import inspect
import time

import torch
from torch.nn import functional

import _common as common


def pictures(batch: int, side: int, device: str) -> torch.Tensor:
    """(batch, 3, side, side) in -1 … 1: one disc each, of any place, size and colour."""
    axis = torch.linspace(-1, 1, side, device=device)
    x, y, radius = (torch.rand(batch, 1, 1, device=device) for _ in range(3))
    inside = (axis[None, None, :] - 2 * x + 1) ** 2 + (axis[None, :, None] - 2 * y + 1) ** 2 < (0.2 + 0.4 * radius) ** 2
    colour = torch.rand(batch, 3, 1, 1, device=device) * 2 - 1
    return torch.where(inside[:, None], colour, torch.zeros_like(colour))


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--batch", 32, 2, "pictures per step")
    common.size(parser, "--side", 64, 16, "height and width, a multiple of 8")
    common.size(parser, "--width", 128, 8, "features of the first level, a multiple of 8")
    common.size(parser, "--steps", 30, 3, "steps of each, eager and compiled")
    run = common.start(parser, "train_diffusion")
    o = run.options
    if o.side % 8 or o.width % 8:
        raise common.Stop(
            "--side and --width must be multiples of 8: the UNet halves the picture and groups its features."
        )
    diffusers = common.need("diffusers", "the UNet")
    # Asked inside the UNet; torch 2.8's compiler cannot follow it, and its answer never changes.
    torch.compiler.assume_constant_result(inspect.unwrap(diffusers.utils.is_torch_version))
    noise_of = diffusers.DDPMScheduler(num_train_timesteps=1000)
    writer = run.writer()

    def train(compiled: bool) -> tuple[float, float, float]:
        """Pictures per second, seconds of the first step, last loss."""
        torch.manual_seed(o.seed)
        widths = (o.width, 2 * o.width, 2 * o.width)
        model = diffusers.UNet2DModel(
            sample_size=o.side,
            block_out_channels=widths,
            down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=8,
        ).to(run.device, memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=run.device == "cuda")
        fast = torch.compile(model) if compiled else model
        kind, times, loss = "compiled" if compiled else "eager", [], torch.zeros(())
        for number in common.bar(range(o.steps), kind):
            begin = time.perf_counter()
            clean = pictures(o.batch, o.side, run.device)
            noise, step = torch.randn_like(clean), torch.randint(0, 1000, (o.batch,), device=run.device)
            noisy = noise_of.add_noise(clean, noise, step).to(memory_format=torch.channels_last)
            with torch.autocast(run.device, torch.bfloat16):
                guess = fast(noisy, step, return_dict=False)[0]
            loss = functional.mse_loss(guess.float(), noise)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if writer:
                writer.add_scalar(f"loss/{kind}", loss.item(), number)
            loss = loss.detach()
            loss.item()  # waits for the GPU, so that the time is this step's
            times.append(time.perf_counter() - begin)
        usual = sorted(times[1:] or times)[len(times[1:]) // 2]
        return o.batch / usual, times[0], loss.item()

    rows = [("", "pictures/s", "first step s", "last loss")]
    results = {}
    for name in ("eager", "compiled") if run.device == "cuda" else ("eager",):  # C++ for a UNet takes minutes
        results[name] = train(name == "compiled")
        rows.append((name, f"{results[name][0]:.1f}", f"{results[name][1]:.1f}", f"{results[name][2]:.3f}"))
    if writer:
        writer.close()
    common.table(rows)
    best = max(results, key=lambda name: results[name][0])
    words = f"{best} is faster: {results[best][0] / results['eager'][0]:.2f}x eager" if len(results) > 1 else "eager"
    words += f", {results[best][0]:.0f} pictures/s, {common.peak_gib():.1f} GiB"
    run.finish(
        words, pictures_per_second={name: value[0] for name, value in results.items()}, peak_gib=common.peak_gib()
    )


if __name__ == "__main__":
    common.main(main)
