"""The parent's side of the probes: one child process for each file, and an Outcome for whatever happens in it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

from verify import child, runner
from verify.core import Outcome, Status, fail, skip, warn
from verify.gpu.probes import Context
from verify.machine import Machine
from verify.scratch import RECORDED, place

TIMEOUT = 240.0  # for one file of probes with cold caches
# Files that share a process: to import torch and to open the device takes longer than most probes (9 s a process beside
# an H200, with 16 cores). A probe that leaves a sticky error ends its process, and the rest get a new one.
MOST = ("computes", "memory", "attention_sdpa", "attention_flash", "attention_xformers")
TOGETHER = {
    **dict.fromkeys(("devices", "load", "runtime"), "devices+load+runtime"),
    **dict.fromkeys(MOST, "+".join(MOST)),
}
# Everything must run from machine code: a driver older than the toolkit cannot compile that toolkit's PTX.
NO_JIT = {"CUDA_DISABLE_PTX_JIT": "1"}
# cudaErrorJitCompilationDisabled (223), cudaErrorUnsupportedPtxVersion (222), cudaErrorNoKernelImageForDevice (209).
JIT = re.compile(r"PTX JIT compilation was disabled|JIT_COMPILATION_DISABLED|\berror:? 223\b", re.IGNORECASE)
PTX = re.compile(r"unsupported toolchain|UNSUPPORTED_PTX_VERSION|\berror:? 222\b", re.IGNORECASE)
NO_CODE = re.compile(r"no kernel image is available|NO_BINARY_FOR_GPU|\berror:? 209\b", re.IGNORECASE)
MEMORY = re.compile(r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED", re.IGNORECASE)
# Probes of libraries that ship PTX on purpose, old enough for every driver of their CUDA major, and have the driver
# compile it when first used. With the compiler off they work only from the driver's cache (CUDA_CACHE_PATH). cuFFT of
# CUDA 12.8: 8,115 fat binaries of PTX ISA 7.0 and 7.5 for sm_89; cuFFT API reference, "Plan Initialization Time".
BY_DRIVER = {"computes.fourier": "cuFFT ships kernels as PTX and had the driver compile them, as it is made to"}
DRIVER = re.compile(
    r"Found no NVIDIA driver|No CUDA GPUs are available|CUDA unknown error|cudaGetDeviceCount|CUDA driver init"
    r"|busy or unavailable",
    re.IGNORECASE,
)


def context(m: Machine) -> Context:
    """What the probes are told of `m`."""
    sm = m.gpus[0].sm if m.gpus else ""
    digits = re.sub(r"\D", "", sm)
    disabled = ((m.image or {}).get("flash_attn") or {}).get("disabled") or ()
    built = [int(n) for n in m.python.torch_cuda.split(".")[:2] if n.isdigit()]
    jit = m.driver.cuda is not None and len(built) == 2 and m.driver.cuda >= 1000 * built[0] + 10 * built[1]
    return Context(int(digits or 0), len(m.gpus), m.toolkit.nvcc, place(m), tuple(disabled), jit)


def ask(m: Machine, file: str, name: str) -> Outcome:
    """The outcome of probe `name` of verify/gpu/`file`; the first question runs the whole process."""
    if m.recorded:
        return skip(RECORDED)
    answers = collect(TOGETHER.get(file, file), json.dumps(asdict(context(m)), sort_keys=True))
    return answers[f"{file}.{name}"] if f"{file}.{name}" in answers else answers["*"]


@cache
def collect(file: str, context_json: str, timeout: float = TIMEOUT) -> Mapping[str, Outcome]:
    """All outcomes of a file; "*" is what holds for every probe when not even the first could start.

    What stopped with an exception is tried once more with the driver's compiler on: if that helps, it is the cause.
    """
    found = rounds(file, context_json, timeout)
    stopped = [n for n, o in found.items() if n != "*" and "raised" in o.data]
    if stopped:
        again = rounds(file, context_json, timeout / 2, stopped, jit=True)  # all within the checks' own 2 · TIMEOUT
        jit = bool(json.loads(context_json)["jit"])
        found |= {n: by_driver(n, again[n]) for n in stopped if n in again and n in BY_DRIVER}
        helped = [n for n in stopped if n in again and n not in BY_DRIVER and again[n].status is Status.PASS]
        # Off once more, so that a fault that comes and goes is not taken for the compiler's absence.
        sure = rounds(file, context_json, timeout / 2, helped) if helped else {}
        found |= {n: needs_jit(found[n], jit) for n in helped if n in sure and "raised" in sure[n].data}
    return found


def rounds(
    file: str, context_json: str, timeout: float, names: Sequence[str] = (), *, jit: bool = False
) -> dict[str, Outcome]:
    """Run probes in one process, and what is left in a new one when a probe ends it or leaves a sticky CUDA error.

    `jit` lets the driver compile PTX.
    """
    found: dict[str, Outcome] = {}
    env = {k: v for k, v in child.environment().items() if k not in NO_JIT} if jit else child.environment(NO_JIT)
    left = list(names)
    while left or not found:
        argv = [sys.executable, "-m", "verify.gpu.worker", file, context_json, *left]
        ended = child.run(argv, timeout=timeout, env=env)
        said = child.last_answer(ended)
        if not isinstance(said, dict):
            return {**found, "*": ending(file, ended)}
        found |= {name: outcome(one) for name, one in said["done"].items()}
        if said["now"]:
            found[said["now"]] = ending(said["now"], ended)
        left = [name for name in said["order"] if name not in found]
    return found


def by_driver(name: str, again: Outcome) -> Outcome:
    """A probe of BY_DRIVER with the driver's compiler on: what it says then is the verdict."""
    if again.status is not Status.PASS:
        return again
    message = f"{again.message.rstrip('.')} ({BY_DRIVER[name]})."
    return Outcome(again.status, message, again.hint, {**again.data, "compiled_by_driver": True})


def needs_jit(first: Outcome, jit: bool) -> Outcome:
    """A probe that stops with CUDA_DISABLE_PTX_JIT=1 and passes without it. `jit`: this driver compiles torch's PTX."""
    message = f"This works only when the driver compiles PTX at run time; without that: {first.message}"
    if jit:
        return warn(
            message,
            hint="Nothing to do on this machine: its driver is as new as torch's CUDA. An older one would fail here.",
            data=first.data,
        )
    return fail(
        message,
        hint="This driver is older than torch's CUDA and cannot compile its PTX reliably: update the driver, or "
        "install a build with machine code for this card (`verify run binaries` names the library).",
        data=first.data,
    )


def outcome(said: Mapping[str, Any]) -> Outcome:
    """What one probe answered, as an Outcome; its seconds go into the data."""
    seconds = {"seconds": said.get("seconds", 0.0)}
    if "raised" in said:
        made = explain(said["raised"], said["message"], said.get("trace", ""))
        return Outcome(made.status, made.message, made.hint, {**made.data, **seconds})
    return Outcome(Status(said["status"]), said["message"], said["hint"], {**said["data"], **seconds})


def explain(kind: str, text: str, trace: str = "") -> Outcome:
    """An exception of a probe: a cause that is known is a failure of the machine, all else an error of the check."""
    first = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), kind)[:200].rstrip(".")
    data = {"raised": kind, "trace": trace[-child.TAIL :]}
    if kind in {"ImportError", "ModuleNotFoundError"}:
        return fail(
            f"A package does not import: {first}.",
            hint="`verify run imports libraries` names the guilty one and the fix.",
            data={"trace": trace[-child.TAIL :]},  # no "raised": the driver's compiler cannot help
        )
    if JIT.search(text):
        return fail(
            "This needs the driver to compile PTX, because a library has no machine code for this card.",
            hint="`verify run binaries` names the library; install a build with code for this GPU. Compiling at run "
            "time works only with a driver as new as the library's toolkit.",
            data=data,
        )
    if PTX.search(text):
        return fail(
            "A kernel was compiled to PTX by a toolkit newer than this driver can read (error 222).",
            hint="Build it for this GPU's own machine code with CUDA 12.4, or update the driver.",
            data=data,
        )
    if NO_CODE.search(text):
        return fail(
            "A library has no code at all for this card (error 209).",
            hint="`verify run binaries` names the library; install a build for this GPU, or set TORCH_CUDA_ARCH_LIST.",
            data=data,
        )
    if MEMORY.search(text):
        return fail(
            f"The card has too little free memory for a small test: {first}.",
            hint="`verify run condition` shows who holds it; stop the other processes on this card.",
            data=data,
        )
    if DRIVER.search(text):
        return fail(
            f"torch cannot use the GPU: {first}.",
            hint="`verify run visibility` names the cause and the fix.",
            data=data,
        )
    return runner.raised(kind, text, trace)


def ending(what: str, ended: child.Child) -> Outcome:
    """A process that ended in the middle of `what`."""
    name, phrase = ended.ending
    data = {"ending": name, "output": ended.tail}
    known = explain(name or "exit", ended.tail, ended.tail)
    if known.status is Status.FAIL:
        return known
    return Outcome(
        Status.ERROR,
        f"The process running {what} ended by {phrase or 'exit code 0 without an answer'}.",
        runner.HINTS.get(name, "The end of its output is in the JSON report."),
        data,
    )
