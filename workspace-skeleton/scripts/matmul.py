"""How fast is one large matrix product, in each precision? The simplest measure of a GPU.

torch.set_float32_matmul_precision chooses how float32 products are computed: "highest" is float32, "high" is TF32
(10 bits of mantissa, on the Tensor Cores), "medium" is bfloat16. The clock starts and stops only when the GPU has
nothing left to do; otherwise it measures how fast Python can ask.
"""

from __future__ import annotations

import torch

import _common as common

KINDS = {
    "float32": (torch.float32, "highest"),
    "TF32": (torch.float32, "high"),
    "float16": (torch.float16, "highest"),
    "bfloat16": (torch.bfloat16, "highest"),
}


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--size", 15000, 256, "rows and columns")
    common.size(parser, "--repeat", 5, 2, "timed products")
    run = common.start(parser, "matmul")
    n = run.options.size
    a, b = (torch.randn(n, n, device=run.device) for _ in range(2))
    exact = a[:16].double() @ b.double()

    rows = [("precision", "seconds", "TFLOP/s", "relative error")]
    speeds: dict[str, float] = {}
    for name, (dtype, precision) in KINDS.items():
        torch.set_float32_matmul_precision(precision)
        left, right = a.to(dtype), b.to(dtype)
        once = common.seconds(lambda: left @ right, run.options.repeat, warmup=2)  # noqa: B023
        error = ((left @ right)[:16].double() - exact).abs().max() / exact.abs().max()
        speeds[name] = 2 * n**3 / once / 1e12
        rows.append((name, f"{once:.4f}", f"{speeds[name]:.1f}", f"{error.item():.0e}"))
    common.table(rows)
    run.finish(
        f"{n} x {n}: " + ", ".join(f"{name} {speed:.1f}" for name, speed in speeds.items()) + " TFLOP/s", tflops=speeds
    )


if __name__ == "__main__":
    common.main(main)
