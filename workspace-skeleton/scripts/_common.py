"""What every recipe here shares: the device, sizes that fit it, a folder for the results, errors in one sentence.

Nothing here is special to this image; copy what you like into your own code.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

OUTPUT = Path(__file__).absolute().parent.parent / "output"


class Stop(Exception):
    """The end of a script with one sentence. Exit code 2: asked wrongly; 3: something is not installed here."""

    def __init__(self, sentence: str, code: int = 2) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True)
class Size:
    """A default that depends on the machine: `full` on a GPU with 24 GB, `tiny` on a CPU or with --tiny."""

    full: Any
    tiny: Any


@dataclass(frozen=True)
class Run:
    """One run of a recipe: where it computes, with what, and where its results go."""

    name: str
    options: argparse.Namespace
    device: str
    tiny: bool
    folder: Path

    @property
    def dtype(self) -> torch.dtype:
        """bfloat16 on a GPU, float32 on the CPU, where half precision is slow."""
        return torch.bfloat16 if self.device == "cuda" else torch.float32

    def writer(self) -> Any:
        """A TensorBoard writer of this run's folder, or None where TensorBoard is not installed."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            print("note: tensorboard is not installed, so there are no curves (pip install tensorboard).")
            return None
        return SummaryWriter(str(self.folder))

    def finish(self, sentence: str, **figures: Any) -> None:
        """Print the result, and keep it with the figures and the versions in result.json."""
        gpu = torch.cuda.get_device_name() if self.device == "cuda" else ""
        facts = {"script": self.name, "device": self.device, "gpu": gpu, "torch": torch.__version__, "tiny": self.tiny}
        options = {key: str(value) for key, value in vars(self.options).items()}
        text = json.dumps(facts | {"result": sentence, "figures": figures, "options": options}, indent=1)
        save(self.folder / "result.json", lambda path: path.write_text(text + "\n"))
        print(f"result: {sentence}\nin {self.folder}")


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The options that all recipes have."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="default: the GPU if there is one"
    )
    made.add_argument("--tiny", action="store_true", help="the smallest sizes that still work; on a CPU always")
    made.add_argument("--output", type=Path, default=OUTPUT, help=f"where results go (default {OUTPUT})")
    made.add_argument("--seed", type=int, default=0, help="of weights and synthetic data (default 0)")
    return made


def size(made: argparse.ArgumentParser, flag: str, full: int, tiny: int, words: str) -> None:
    """An option that is a positive whole number with a default for a 24 GB GPU and one for --tiny."""
    text = f"{words} (default {full}; tiny {tiny})"
    made.add_argument(flag, type=positive, default=Size(full, tiny), metavar="N", help=text)


def positive(text: str) -> int:
    """For argparse: a whole number above zero."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(text)


def start(made: argparse.ArgumentParser, name: str) -> Run:
    """Read the command line, choose the device and the sizes, and make the folder <output>/<name>/<time>."""
    options = made.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise Stop("there is no usable GPU here: leave out --device cuda, or see what `verify doctor` says.")
    device = "cuda" if options.device != "cpu" and torch.cuda.is_available() else "cpu"
    tiny = options.tiny or device == "cpu"
    for key, value in vars(options).items():
        if isinstance(value, Size):
            setattr(options, key, value.tiny if tiny else value.full)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")  # TF32 for float32 products, as convolutions have it by default
    where = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    print(f"{name} on {where}, torch {torch.__version__}" + (", tiny sizes: figures mean nothing" if tiny else ""))
    return Run(name, options, device, tiny, new_folder(options.output / name))


def new_folder(parent: Path) -> Path:
    """<parent>/<time>, made; a second run in the same second gets a number."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{n}" for n in range(2, 100))):
        folder = parent / (stamp + suffix)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.is_dir():
                raise Stop(
                    f"{parent} is a file, so no results can go there: name another folder with --output."
                ) from None
        except OSError as error:
            raise Stop(f"{parent} cannot be written ({error.strerror}): name another folder with --output.") from None
        else:
            return folder
    raise Stop(f"{parent} has a hundred runs of this second: wait for the next one.")


def save(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all: an interruption leaves the one before."""
    part = path.with_name(f".{path.name}.part")
    try:
        write(part)
        os.replace(part, path)
    except (OSError, RuntimeError) as error:  # torch.save on a full disk raises RuntimeError
        raise Stop(f"{path} could not be written ({error}): free some space, or use another --output.") from error
    finally:
        part.unlink(missing_ok=True)


def need(module: str, for_what: str, package: str = "") -> Any:
    """Import an optional package, or stop with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Stop(
            f"{for_what} needs {module}, which cannot be imported ({error}): pip install {package or module}.", 3
        ) from None


def seconds(call: Callable[[], object], repeat: int, warmup: int = 3) -> float:
    """Median seconds of a call. A GPU works on after a call returns, so the clock waits for it, before and after."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    for _ in range(warmup):
        call()
    times = []
    for _ in range(repeat):
        wait()
        begin = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def peak_gib() -> float:
    """The most GPU memory that tensors have held since `torch.cuda.reset_peak_memory_stats()`, GiB; 0 without a GPU."""
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


def bar(steps: Iterable[int], words: str) -> Any:
    """A progress bar where tqdm is installed and somebody watches."""
    try:
        from tqdm import tqdm
    except ImportError:
        return steps
    return tqdm(steps, desc=words, disable=not sys.stderr.isatty())


def table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns that line up: the first to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *cells]))


def main(function: Callable[[], None]) -> None:
    """Run a recipe; what a person can mend ends in one sentence instead of a traceback."""
    try:
        function()
    except Stop as stop:
        print(f"error: {stop}", file=sys.stderr)
        sys.exit(stop.code)
    except torch.OutOfMemoryError as error:
        first = str(error).partition(". ")[0]
        print(
            f"error: the GPU's memory ran out ({first}): use smaller sizes (--help), or end what else runs there.",
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
