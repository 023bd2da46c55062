"""Keep what torch.compile has compiled in one file, and start warm from it: here, or on the next machine like this.

    python scripts/warm_cache.py             # starts warm if the file fits this machine, and writes it if there is none
    python scripts/warm_cache.py --measure   # the first step cold and warm, each in a fresh process with empty caches

In your own training, before the first compiled call and after the last new one:

    import warm_cache                        # with /workspace/scripts on PYTHONPATH
    print(warm_cache.load(path)); …; print(warm_cache.keep(path))

The file holds code for one torch, Triton, Python, GPU and driver. On any other it is ignored, with a sentence. It is
loaded by pickle: take it from nobody you would not take a program from.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import _common as common

FORMAT = "torch.compile cache 1"
CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path(__file__).absolute().parent.parent / ".cache")


def machine() -> dict[str, str]:
    """All that the compiled code depends on."""
    import ctypes
    import importlib.metadata
    import platform

    facts = {"torch": torch.__version__, "Python": platform.python_version(), "processor": platform.machine()}
    try:
        facts["Triton"] = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        facts["Triton"] = "none"
    facts["GPU"], facts["driver"] = "none", "none"
    if torch.cuda.is_available():
        made = torch.cuda.get_device_properties(0)
        facts["GPU"] = f"{made.name}, sm_{made.major}{made.minor}, {made.multi_processor_count} SMs"
        name = ctypes.create_string_buffer(96)
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(name, 96) == 0:
            facts["driver"] = name.value.decode()
    return facts


def load(path: Path) -> str:
    """Fill torch's caches from a file of `keep`. Says what happened in one sentence; never fails."""
    try:
        with path.open("rb") as file:
            header, payload = json.loads(file.readline()), file.read()
        if header["format"] != FORMAT or hashlib.sha256(payload).hexdigest() != header["sha256"]:
            raise ValueError("it is damaged")
    except FileNotFoundError:
        return f"cold start: there is no {path}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"cold start: {path} is ignored, because it is no whole file of this script ({error})"
    for name, value in machine().items():
        saved = header["machine"].get(name)
        if saved != value:
            return f"cold start: {path} is ignored, because it was made with {name} {saved} and this is {value}"
    if torch.compiler.load_cache_artifacts(payload) is None:
        return f"cold start: torch did not take what is in {path}"
    return f"warm start: {len(payload) / 2**20:.1f} MiB from {path}"


def keep(path: Path) -> str:
    """Write what this process has compiled or loaded so far. Says what happened in one sentence."""
    made = torch.compiler.save_cache_artifacts()
    if made is None:
        return "nothing was compiled, so nothing is kept"
    payload = made[0]
    header = {"format": FORMAT, "machine": machine(), "sha256": hashlib.sha256(payload).hexdigest()}
    path.parent.mkdir(parents=True, exist_ok=True)
    common.save(path, lambda part: part.write_bytes(json.dumps(header).encode() + b"\n" + payload))
    return f"kept {len(payload) / 2**20:.1f} MiB in {path}"


def example(run: common.Run) -> float:
    """Seconds of the first compiled training step of a small Transformer; an eager step before it has loaded CUDA."""
    o = run.options
    layer = nn.TransformerEncoderLayer(o.width, o.width // 16, 4 * o.width, 0.0, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, o.layers, enable_nested_tensor=False).to(run.device)
    x = torch.randn(8, 16 if run.tiny else 512, o.width, device=run.device)

    def step(call: nn.Module) -> float:
        begin = time.perf_counter()
        with torch.autocast(run.device, torch.bfloat16):
            loss = call(x).square().mean()
        loss.backward()
        value = loss.item()
        model.zero_grad()
        if value != value:
            raise common.Stop("the loss is not a number.", 1)
        return time.perf_counter() - begin

    step(model)
    print(load(o.file))
    return step(torch.compile(model, mode=o.mode))


def measure(run: common.Run) -> None:
    """The first step in fresh processes: cold, then from the file, then from the caches that process left on disk."""
    o, times = run.options, {}
    kept = run.folder / "example.cache"
    print(f"compiling with mode={o.mode} in fresh processes, cold first: minutes where much is tuned", flush=True)
    with tempfile.TemporaryDirectory(dir=run.folder, prefix=".caches-") as scratch:
        for name, folder, file in (
            ("cold", "a", kept),
            ("warm", "b", kept),
            ("same caches", "b", kept.with_suffix(".no")),
        ):
            env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": f"{scratch}/{folder}"}
            env["TRITON_CACHE_DIR"] = f"{scratch}/{folder}/triton"
            command = [
                sys.executable,
                __file__,
                "--device",
                run.device,
                "--output",
                str(run.folder),
                "--file",
                str(file),
            ]
            command += ["--width", str(o.width), "--layers", str(o.layers), "--mode", o.mode]
            command += ["--tiny"] if run.tiny else []
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                raise common.Stop(f"the {name} start failed: {done.stderr.strip().splitlines()[-1]}", 1)
            if name == "warm" and "warm start:" not in done.stdout:
                raise common.Stop(f"the warm start was none: {done.stdout.strip()}", 1)
            times[name] = float(done.stdout.partition("first compiled step: ")[2].split()[0])
            print(f"{name:<12} {times[name]:7.2f} s {times['cold'] / times[name]:6.1f}x", flush=True)
    ratio, size = times["cold"] / times["warm"], kept.stat().st_size / 2**20
    words = f"{times['cold']:.1f} s to {times['warm']:.2f} s, file {size:.1f} MiB"
    run.finish(f"warm first step {ratio:.1f}x faster: {words}", ratio=ratio, seconds=times)


def main() -> None:
    parser = common.parser(__doc__)
    common.size(parser, "--width", 1024, 32, "features of the example's Transformer, a multiple of 16")
    common.size(parser, "--layers", 6, 1, "layers of the example's Transformer")
    parser.add_argument("--mode", help="of torch.compile (default max-autotune-no-cudagraphs; tiny default)")
    parser.add_argument("--file", type=Path, default=CACHES / "compile" / "example.cache", help="default %(default)s")
    parser.add_argument("--measure", action="store_true", help="compare a cold and a warm first step")
    run = common.start(parser, "warm_cache")
    run.options.mode = run.options.mode or ("default" if run.tiny else "max-autotune-no-cudagraphs")
    if run.options.measure:
        measure(run)
        return
    first = example(run)
    print(f"first compiled step: {first:.2f} s")
    kept = keep(run.options.file) if not run.options.file.exists() else ""
    run.finish(f"first compiled step {first:.1f} s" + (f"; {kept}" if kept else ""), seconds=first)


if __name__ == "__main__":
    common.main(main)
