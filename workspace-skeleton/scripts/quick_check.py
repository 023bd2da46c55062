"""Is this machine ready for PyTorch? Prints what is here and tries a matmul and torch.compile. Exit code 0 means yes.

`verify run` looks far deeper; this is short enough to read, change and learn from.
"""

import argparse
import ctypes
import re
import shutil
import subprocess
import sys
import time

import torch


def driver_cuda() -> str:
    """The CUDA version that the NVIDIA driver supports, or "none" without a driver."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return "none (no NVIDIA driver in this container)"
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


def toolkit() -> str:
    """The version of nvcc, which compiles extensions; torch itself does not use it."""
    if shutil.which("nvcc") is None:
        return "none (this image has no nvcc)"
    text = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V([\d.]+)", text)
    return found.group(1) if found else "unknown"


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"torch          {torch.__version__} on Python {sys.version.split()[0]}")
    print(f"runtime CUDA   {torch.version.cuda} (came with torch)")
    print(f"driver CUDA    {driver_cuda()}")
    print(f"toolkit        {toolkit()}")

    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    if gpu:
        properties = torch.cuda.get_device_properties(0)
        print(f"GPU            {properties.name}, {properties.total_memory / 2**30:.1f} GiB, ", end="")
        print(f"sm_{properties.major}{properties.minor}, {torch.cuda.device_count()} in all")
    else:
        print("GPU            none: give the container one with --gpus all, on a host with NVIDIA's driver and toolkit")

    n, dtype = (8192, torch.bfloat16) if gpu else (512, torch.float32)
    a = torch.randn(n, n, device=device, dtype=dtype)
    product = a @ a
    wanted = a[:64].double() @ a[:, :64].double()
    error = (product[:64, :64].double() - wanted).abs().max() / wanted.abs().max()
    speed = ""
    if gpu:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            a @ a
        torch.cuda.synchronize()
        speed = f", {20 * 2 * n**3 / (time.perf_counter() - start) / 1e12:.0f} TFLOP/s (a rough figure)"
    kind = str(dtype).removeprefix("torch.")
    print(f"matmul         {n} x {n} {kind} on {device}: largest relative error {error:.1e}{speed}")

    def gelu(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x * 2 + 1)

    x = torch.randn(4096, device=device)
    start = time.perf_counter()
    difference = (torch.compile(gelu)(x) - gelu(x)).abs().max().item()
    seconds = time.perf_counter() - start
    print(f"torch.compile  {seconds:.1f} s on {device}: largest difference to eager {difference:.1e}")

    if error > 1e-2 or difference > 1e-5:
        print("\nNot ready: a result is wrong. `verify run` finds out why.")
        return 1
    print("\nReady." if gpu else "\nNot ready: everything works, but on the CPU, because there is no GPU here.")
    return 0 if gpu else 1


if __name__ == "__main__":
    sys.exit(main())
