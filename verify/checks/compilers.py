"""What can be compiled here: C, a Python extension, CUDA, Triton and torch.compile. Nothing of it needs a GPU."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from verify import child
from verify.core import Outcome, check, fail, pass_, skip
from verify.machine import Machine
from verify.scratch import NOWHERE, RECORDED, folder, place

SOURCES = Path(__file__).parent.parent / "sources"
DEFAULT_TARGETS = ("sm_89",)
APT = "apt-get install gcc g++ libc6-dev"
# CUDA → newest GCC major, where the toolkit's own header is not there to be read (CUDA installation guide, table 2).
NEWEST_GCC = {(12, 0): 12, (12, 4): 13, (12, 8): 14, (13, 0): 15}


def targets(m: Machine) -> tuple[str, ...]:
    """The GPUs the image is declared for."""
    return tuple((m.image or {}).get("targets") or DEFAULT_TARGETS)


def cause(ended: child.Child) -> str:
    """The line of a compiler's output that says why, cut to one sentence."""
    lines = [" ".join(line.split()) for line in ended.tail.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"error|cannot|No such|not found|undefined|fatal", line, re.IGNORECASE)]
    text = (told or lines or [ended.ending[1]])[0] if not ended.timed_out else ended.ending[1]
    return text[:300].rstrip(".")


def build(argv: Sequence[str], where: str, timeout: float = 120) -> child.Child:
    """Run a compiler in `where`, with its temporary files there too."""
    return child.run(argv, timeout=timeout, cwd=where, env={**child.environment(), "TMPDIR": where, "LC_ALL": "C"})


def blocked(m: Machine) -> Outcome | None:
    """A skip where nothing can be compiled for reasons that are not the compiler's."""
    if m.recorded:
        return skip(RECORDED)
    return None if place(m) else skip(NOWHERE)


@check()
def c_compiler(m: Machine) -> Outcome:
    """gcc and g++ compile a program that runs.

    torch.compile and Triton compile small host modules at run time: without gcc they fail at their first call.
    """
    missing = [n for n, p in (("gcc", m.toolkit.gcc), ("g++", m.toolkit.gxx)) if not p]
    if missing:
        subject = " and ".join(missing) + (" are" if len(missing) > 1 else " is")
        return fail(
            f"{subject} not on PATH, so torch.compile and Triton cannot build their host code.",
            hint=f"Install it ({APT}); every target of the image has it.",
        )
    if stop := blocked(m):
        return stop
    with folder(m) as where:
        for program, source in ((m.toolkit.gcc, "program.c"), (m.toolkit.gxx, "program.cpp")):
            ended = build([program, str(SOURCES / source), "-o", f"{where}/program"], where)
            ran = ended if ended.ending[0] else build([f"{where}/program"], where)
            if ran.ending[0]:
                return fail(
                    f"{program} {'compiles' if ran is not ended else 'does not compile'} a ten-line program"
                    f"{' that does not run' if ran is not ended else ''}: {cause(ran)}.",
                    hint=f"Install the compiler with its C library headers ({APT}).",
                    data={"output": ran.tail},
                )
    return pass_(f"gcc {m.toolkit.gcc_version} and g++ {m.toolkit.gxx_version} compile programs that run.")


@check()
def python_headers(m: Machine) -> Outcome:
    """A Python extension compiles against this interpreter's headers and can be imported.

    A virtual environment has no headers of its own: they come with the base interpreter.
    """
    series = ".".join(m.python.version.split(".")[:2])
    if not m.python.header:
        return fail(
            f"{m.python.include}/Python.h does not exist, so Triton cannot build its launcher.",
            hint=f"Install the headers of this very Python (apt-get install python{series}-dev).",
        )
    if need := m.unmet("gcc"):
        return skip(need, hint=m.remedy("gcc"))
    if stop := blocked(m):
        return stop
    with folder(m) as where:
        made = f"{where}/verify_probe.so"
        argv = [m.toolkit.gcc, "-shared", "-fPIC", f"-I{m.python.include}", str(SOURCES / "extension.c"), "-o", made]
        ended = build(argv, where)
        if ended.ending[0]:
            return fail(
                f"A Python extension does not compile: {cause(ended)}.",
                hint=f"Install the headers of this very Python (apt-get install python{series}-dev) and {APT}.",
                data={"output": ended.tail},
            )
        ran = build([m.python.executable, "-c", "import verify_probe; assert verify_probe.answer() == 42"], where)
        if ran.ending[0]:
            return fail(
                f"A Python extension compiles and cannot be imported: {cause(ran)}.",
                hint=f"The headers in {m.python.include} belong to another Python; install python{series}-dev.",
                data={"output": ran.tail},
            )
    return pass_(f"An extension for Python {m.python.version} compiles and imports.")


def newest_gcc(m: Machine) -> int | None:
    """The newest GCC major nvcc accepts: by its own header, else by the table."""
    if m.toolkit.host_compiler_limit is not None:
        return m.toolkit.host_compiler_limit
    version = tuple(int(n) for n in m.toolkit.version.split(".")[:2] if n.isdigit())
    return NEWEST_GCC[max(v for v in NEWEST_GCC if v <= version)] if version >= min(NEWEST_GCC) else None


@check(needs="nvcc")
def nvcc_host_compiler(m: Machine) -> Outcome:
    """nvcc accepts the g++ it calls."""
    t, limit = m.toolkit, newest_gcc(m)
    if not t.host_compiler:
        return fail("nvcc finds no g++.", hint="Install g++-13 and set NVCC_CCBIN to it.")
    major = int(t.host_compiler_version.split(".")[0]) if t.host_compiler_version else None
    if limit is None or major is None:
        why = m.problems.get("toolkit.host_compiler", "the versions are not known")
        return skip(f"Whether nvcc {t.version} accepts {t.host_compiler} cannot be told: {why}.")
    if major > limit:
        return fail(
            f"nvcc {t.version} calls {t.host_compiler} {t.host_compiler_version}, it accepts g++ up to {limit}.",
            hint=f"Install g++-{limit} and set NVCC_CCBIN=/usr/bin/g++-{limit}.",
        )
    return pass_(f"nvcc {t.version} calls g++ {t.host_compiler_version}, it accepts up to {limit}.")


@check(needs=("nvcc", "torch"))
def nvcc_matches_torch(m: Machine) -> Outcome:
    """nvcc and torch are of one CUDA major version, which is all an extension needs.

    torch.utils.cpp_extension refuses another major. Toolkit 12.4 with a torch of CUDA 12.8 is as it should be.
    """
    toolkit, torch = m.toolkit.version, m.python.torch_cuda
    if not toolkit or not torch:
        why = m.problems.get("toolkit.nvcc") or "torch was built without CUDA"
        return skip(f"The two versions cannot be compared: {why}.")
    if toolkit.split(".")[0] != torch.split(".")[0]:
        return fail(
            f"nvcc ({m.toolkit.nvcc}) is of CUDA {toolkit}, torch of CUDA {torch}: extensions do not build.",
            hint="Set CUDA_HOME to a CUDA 12 toolkit (/usr/local/cuda in the image) and put its bin first on PATH.",
        )
    return pass_(f"nvcc {toolkit}, torch built with CUDA {torch}: one major.")


def is_elf(path: Path) -> bool:
    """Whether a file is there and starts as machine code does."""
    return path.is_file() and path.read_bytes()[:4] == b"\x7fELF"


@check(needs="nvcc", timeout=240)
def nvcc_compiles(m: Machine) -> Outcome:
    """nvcc compiles a kernel to machine code for every declared GPU."""
    if stop := blocked(m):
        return stop
    with folder(m) as where:
        for target in targets(m):
            made = f"{where}/{target}.cubin"
            argv = [m.toolkit.nvcc, "-cubin", f"-arch={target}", str(SOURCES / "kernel.cu"), "-o", made]
            ended = build(argv, where)
            if ended.ending[0] or not is_elf(Path(made)):
                why = cause(ended) if ended.ending[0] else "it ends well and writes no machine code"
                return fail(
                    f"nvcc {m.toolkit.version} does not compile a kernel for {target}: {why}.",
                    hint="The line names what is missing: a header of the toolkit, or a host compiler nvcc accepts.",
                    data={"output": ended.tail},
                )
    return pass_(f"nvcc {m.toolkit.version} compiles for {', '.join(targets(m))}.")


@check(needs="torch", timeout=240)
def triton_compiles(m: Machine) -> Outcome:
    """Triton compiles a kernel to machine code for every declared GPU."""
    if stop := blocked(m):
        return stop
    with folder(m) as where:
        numbers = [re.sub(r"\D", "", t) for t in targets(m)]
        env = {"TRITON_CACHE_DIR": where, "TMPDIR": where}
        ended, said = script("triton_kernel.py", *numbers, timeout=200, env=env)
    return judge_script(ended, said, "Triton", "Reinstall triton in the version torch pins (torch 2.8: triton==3.4.0).")


@check(needs=("torch", "gcc"), timeout=300)
def torch_compile(m: Machine) -> Outcome:
    """torch.compile compiles a function for the CPU, without falling back to eager, and its result is right."""
    if stop := blocked(m):
        return stop
    with folder(m) as where:
        names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR")
        # One compile thread: a pool of workers takes longer to start than to work. VEC_ISA_OK: torch takes the vector
        # instructions /proc/cpuinfo names instead of compiling a program for each, which halves the time.
        env = {**dict.fromkeys(names, where), "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "1"}
        ended, said = script("compiled_function.py", timeout=280, env=env)
    return judge_script(
        ended,
        said,
        "torch.compile",
        "The line names the cause; the other checks of this file try gcc, g++ and the headers alone.",
    )


def script(name: str, *args: str, timeout: float, env: dict[str, str]) -> tuple[child.Child, object]:
    """Run a file of verify/sources in a child (Triton reads a kernel's source from its file)."""
    argv = [sys.executable, str(SOURCES / name), *args]
    ended = child.run(argv, timeout=timeout, env=child.environment(env))
    return ended, child.last_answer(ended)


def judge_script(ended: child.Child, said: object, what: str, hint: str) -> Outcome:
    """The verdict on a script that answers {"message": …} when well."""
    if ended.ending[0]:
        lines = [line for line in ended.stderr.splitlines() if line.strip()] or [ended.ending[1]]
        named = [ln for ln in lines if re.search(r"(fatal )?error: |Error: |KeyError|cannot find", ln)]
        text = ended.ending[1] if ended.timed_out else (named or lines)[-1].strip()
        text = re.sub(r"\S*/verify-[^/\s]+/(?:\S*/)?", "", text)  # the scratch folder's name says nothing
        return fail(f"{what} does not compile here: {text[:300].rstrip('.')}.", hint=hint, data={"output": ended.tail})
    if not isinstance(said, dict):
        return fail(f"{what} ended without a result.", hint=hint, data={"output": ended.tail})
    return pass_(str(said["message"]), data=said)
