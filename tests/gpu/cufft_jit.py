"""Which Fourier transforms need the driver's PTX compiler: `python tests/gpu/cufft_jit.py`, on a GPU, about 40 s.

cuFFT ships many kernels as PTX alone and lets the driver compile them when a plan is made. The driver keeps the result
in CUDA_CACHE_PATH, so that CUDA_DISABLE_PTX_JIT=1 hurts only while that cache is cold. The table shows each transform
with the compiler on and off, cache cold and warm, and what libcufft holds for this card; $OUT/cufft_jit.json has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Powers of two, small primes' products, a large prime (Bluestein), long and two-dimensional ones.
SIZES = ((256,), (1024,), (1000,), (509,), (4096,), (65536,), (1 << 20,), (10007,), (256, 256), (480, 360))
KINDS = ("complex64", "complex128", "float32", "float16")
# name → (compiler off, which cache folder). The order matters: a warm cache is what an earlier column left.
MODES = {
    "off cold": (True, "a"),
    "on cold": (False, "b"),
    "on warm": (False, "b"),
    "off warm": (True, "b"),
    "off cold, reversed": (True, "c"),
}


def child(order: str) -> None:
    """Run every transform; one JSON object: "size kind" → "ok" or the error's first line."""
    import torch

    said = {}
    for size in SIZES[:: -1 if order == "reversed" else 1]:
        for kind in KINDS:
            if kind == "float16" and any(n & (n - 1) for n in size):
                continue  # half precision is for powers of two only
            name = f"{'x'.join(map(str, size))} {kind}"
            try:
                x = torch.randn(*((4,) if len(size) == 1 else ()), *size, device="cuda").to(getattr(torch, kind))
                if x.is_complex() or kind == "float16":
                    torch.fft.fftn(x, dim=tuple(range(-len(size), 0)))
                else:
                    torch.fft.rfftn(x, dim=tuple(range(-len(size), 0)))
                torch.cuda.synchronize()
                said[name] = "ok"
            except RuntimeError as error:
                said[name] = str(error).split("\n")[0].replace("cuFFT error: ", "")[:40]
    device = torch.cuda.get_device_capability()
    print(json.dumps({"said": said, "sm": device[0] * 10 + device[1], "torch": torch.__version__}))


def contents(sm: int) -> dict[str, int]:
    """What libcufft holds: kind of code → containers."""
    import torch

    sys.path.insert(0, str(ROOT))
    from verify import audit

    site = Path(torch.__file__).parents[1]
    found: Counter[str] = Counter()
    for path in site.glob("nvidia/**/libcufft.so*"):
        for group in audit.read_library(path, site).groups:
            kinds = {code.kind for code in group.codes}
            if "sass" in kinds and not any(c.kind == "sass" and c.arch == sm for c in group.codes):
                continue  # for another card
            found[", ".join(code.label for code in group.codes)] += group.count
    return dict(found)


def main() -> int:
    table: dict[str, dict[str, str]] = {}
    facts: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as caches:
        for mode, (off, folder) in MODES.items():
            cache = Path(caches, folder)
            env = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_DISABLE")}
            env |= {"CUDA_CACHE_PATH": str(cache), **({"CUDA_DISABLE_PTX_JIT": "1"} if off else {})}
            command = [sys.executable, __file__, "child", "reversed" if "reversed" in mode else "forward"]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
            if done.returncode:
                print(f"{mode}: ended with {done.returncode}: {done.stderr[-400:]}")
                continue
            answer = json.loads(done.stdout.splitlines()[-1])
            for name, said in answer["said"].items():
                table.setdefault(name, {})[mode] = said
            size = sum(p.stat().st_size for p in cache.rglob("*") if p.is_file())
            facts |= {"torch": answer["torch"], "sm": answer["sm"], f"cache bytes after {mode}": size}
    if not table:
        return 1
    facts["libcufft"] = contents(int(str(facts["sm"])))
    for name, value in facts.items():
        print(f"{name}: {value}")
    print(f"\n{'transform':22}" + "".join(f"{m:>28}" for m in MODES))
    for name, row in table.items():
        print(f"{name:22}" + "".join(f"{row.get(m, '-')[:26]:>28}" for m in MODES))
    if out := os.environ.get("OUT"):
        Path(out, "cufft_jit.json").write_text(json.dumps({"facts": facts, "table": table}, indent=1))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2])
    else:
        sys.exit(main())
