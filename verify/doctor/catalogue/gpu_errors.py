"""The card itself fails, or a kernel does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from verify.doctor import facts
from verify.doctor.entry import Entry
from verify.xid import BY_FIRMWARE, BY_MEMORY, BY_PROGRAM, LINE, OFF_THE_BUS


def xid(among: set[int], *, others: bool = False) -> Callable[[str], Mapping[str, str] | None]:
    """A reader that takes an Xid line when its number is in `among` (or in none of the groups)."""
    named = BY_PROGRAM | BY_MEMORY | OFF_THE_BUS | BY_FIRMWARE

    def read(line: str) -> Mapping[str, str] | None:
        found = re.search(LINE, line, re.IGNORECASE)
        if not found:
            return {}  # another signature of the entry fits
        number = int(found["xid"])
        return {"xid": str(number)} if number in among or (others and number not in named) else None

    return read


ENTRIES = (
    Entry(
        id="gpu-lost",
        title="The GPU fell off the bus",
        layer="hardware",
        rank=1,
        cause="The host lost the connection to the GPU while it ran (Xid 79): power supply, riser, heat or PCIe are "
        "the usual reasons. No software in the container can bring it back.",
        fix="On the host read `dmesg` for Xid, check power cables and seat, limit power or clock, and reboot; on a "
        "rented machine change the machine.",
        command="sudo dmesg | grep -i xid",
        text=(
            LINE,
            r"fallen off the bus",
            r"GPU is lost",
            r"unable to determine the device handle",
            r"NVMLError_GpuIsLost",
            r"CUDA_ERROR_DEVICE_LOST",
            r"GPU requires reset",
            r"NVMLError_ResetRequired",
        ),
        read=xid(OFF_THE_BUS),
        facts=facts.lost,
        hides=("no-gpu-visible", "driver-not-in-container", "cuda-unknown-error", "gpu-access-taken-away", "xid-other"),
        source=("NVIDIA/nvidia-container-toolkit#846", "NVIDIA/open-gpu-kernel-modules#387"),
    ),
    Entry(
        id="gpu-memory-errors",
        title="The GPU's memory is defective",
        layer="hardware",
        rank=2,
        cause="The card reports memory errors it cannot correct (ECC{xid|}): results cannot be trusted.",
        fix="Reset the GPU or reboot so that bad rows are replaced, look at `nvidia-smi -q -d ECC,ROW_REMAPPER`; if "
        "it comes back, have the card replaced or change the machine.",
        command="nvidia-smi -q -d ECC,ROW_REMAPPER",
        text=(
            LINE,
            r"uncorrectable (?:NVLink |ECC |memory ){1,2}error",
            r"CUDA_ERROR_ECC_UNCORRECTABLE",
            r"cudaErrorECCUncorrectable",
            r"row remapp(?:ing|er) (?:failure|failed)",
            r"double[- ]bit ECC",
        ),
        read=xid(BY_MEMORY),
        facts=facts.memory_errors,
    ),
    Entry(
        id="gpu-firmware-stuck",
        title="The GPU's firmware does not answer",
        layer="hardware",
        rank=3,
        cause="The GPU's own processor stopped answering the driver (Xid {xid|119}), a known fault of some driver "
        "versions.",
        fix="Reset the GPU or reboot; if it comes back switch the GSP firmware off (NVreg_EnableGpuFirmware=0, "
        "proprietary module) or change the driver version.",
        command="sudo dmesg | grep -iE 'xid|gsp'",
        text=(
            LINE,
            r"timeout (?:after \S{1,8} )?(?:of )?waiting for RPC.{0,20}from GPU",
            r"GSP_LOCKDOWN_NOTICE",
            r"GSP RPC timeout",
        ),
        read=xid(BY_FIRMWARE),
    ),
    Entry(
        id="xid-by-program",
        title="A kernel of the program went wrong (Xid)",
        layer="program",
        rank=2,
        cause="The driver reports Xid {xid|13}: a kernel read or wrote memory that is not its own, or was ended. "
        "That comes from the program or an extension; only if it happens on one card alone is that card to blame.",
        fix="Run with CUDA_LAUNCH_BLOCKING=1 and compute-sanitizer to find the kernel; try the same on another card.",
        command="CUDA_LAUNCH_BLOCKING=1 compute-sanitizer python …",
        text=(LINE,),
        read=xid(BY_PROGRAM),
        fault="program",
    ),
    Entry(
        id="xid-other",
        title="The driver reports a fault of the GPU (Xid)",
        layer="hardware",
        rank=8,
        cause="The driver reports Xid {xid|}, which points to the card, its link or the driver; NVIDIA's Xid table "
        "says more.",
        fix="Note the number and the time, reset the GPU or reboot; if it comes back change the driver, then the "
        "machine.",
        command="sudo dmesg | grep -i xid",
        text=(LINE,),
        read=xid(set(), others=True),
    ),
    Entry(
        id="kernel-time-limit",
        title="A kernel ran into the display's time limit",
        layer="hardware",
        rank=9,
        cause="The GPU also drives a display, and the driver ends kernels that run for several seconds there.",
        fix='Use a GPU without a display, or switch the limit off on the host (Option "Interactive" "0" in xorg.conf).',
        text=(r"launch timed out and was terminated", r"CUDA_ERROR_LAUNCH_TIMEOUT", r"cudaErrorLaunchTimeout"),
    ),
    Entry(
        id="device-side-assert",
        title="An index is out of range in a GPU kernel of the program",
        layer="program",
        rank=5,
        cause="A kernel checked an index and found it out of range{what|}: a label not below the number of classes, "
        "or an index beyond the rows of an embedding. The GPU, the container and the stack are well.",
        fix="Compare the largest label or token id with the number of classes or rows; run on the CPU, or with "
        "CUDA_LAUNCH_BLOCKING=1, to see the line. The process has to be started anew.",
        command="CUDA_LAUNCH_BLOCKING=1 python …",
        text=(
            r"Assertion `?(?P<what>[^`']{3,120})[`'] failed",
            r"device-side assert",
            r"CUDA_ERROR_ASSERT",
            r"cudaErrorAssert\b",
        ),
        read=lambda line: {"what": ""} if re.search(r"\.cu|CUDA|device-side|cuda|block: ?\[", line) else None,
        hides=("cublas-failed", "illegal-memory-access", "cudnn-no-engine", "xid-by-program"),
        fault="program",
    ),
    Entry(
        id="illegal-memory-access",
        title="A kernel touched memory that is not its own",
        layer="program",
        rank=6,
        cause="A GPU kernel read or wrote outside its memory, and every later CUDA call of the process fails; the "
        "line Python shows is often a later one. The reason is an index of the program, or a defect of an "
        "extension's kernel.",
        fix="Run with CUDA_LAUNCH_BLOCKING=1 to see the real line, then under compute-sanitizer; try without custom "
        "kernels and with another version of the extension.",
        command="CUDA_LAUNCH_BLOCKING=1 compute-sanitizer --tool memcheck python …",
        text=(
            r"illegal memory access",
            r"CUDA_ERROR_ILLEGAL_ADDRESS",
            r"unspecified launch failure",
            r"misaligned address",
            r"CUDA_ERROR_LAUNCH_FAILED",
            r"an illegal instruction was encountered",
            r"invalid program counter",
            r"cudaErrorIllegalAddress",
        ),
        fault="program",
    ),
    Entry(
        id="cuda-in-forked-process",
        title="CUDA is used in a forked process",
        layer="program",
        rank=3,
        cause="The program used CUDA, then forked, and the child uses CUDA too, which CUDA does not allow.",
        fix="Start the workers with the spawn method (multiprocessing.set_start_method('spawn'), DataLoader's "
        "multiprocessing_context='spawn'), or keep CUDA out of the workers.",
        text=(
            r"re-initialize CUDA in forked subprocess",
            r"CUDA error: initialization error",
            r"cudaErrorInitializationError",
        ),
        fault="program",
    ),
    Entry(
        id="too-many-resources-for-launch",
        title="A kernel asks for more than the GPU has",
        layer="program",
        rank=4,
        cause="A kernel asks for more registers, threads or shared memory than this GPU gives one block.",
        fix="Use smaller blocks or fewer stages (Triton: BLOCK sizes, num_stages), or a release of the library with a "
        "configuration for this card.",
        text=(
            r"too many resources requested for launch",
            r"out of resource: shared memory",
            r"OutOfResources: ",
            r"invalid configuration argument",
            r"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        ),
        fault="program",
    ),
    Entry(
        id="adapter-init-failed",
        title="The driver cannot start the card",
        layer="hardware",
        rank=4,
        cause="The kernel module is loaded and fails to start the GPU: firmware, memory window (BAR), power or a "
        "card passed through to a virtual machine the wrong way.",
        fix="On the host read `dmesg`, power the machine off and on, check 'Above 4G decoding' in its firmware "
        "settings, and update the driver.",
        command="sudo dmesg | grep -i nvrm",
        text=(
            r"RmInitAdapter failed",
            r"rm_init_adapter failed",
            r"NVRM: This PCI I/O region assigned",
            r"NVRM: BAR\d is 0M",
            r"NVRM: The system BIOS may have misconfigured",
        ),
        hides=("no-gpu-visible", "kernel-module-not-loaded"),
    ),
    Entry(
        id="kernel-module-variant",
        title="The other variant of the NVIDIA kernel module is needed",
        layer="hardware",
        rank=5,
        cause="NVIDIA's kernel module exists in an open and a proprietary variant, and this card needs the other "
        "one: cards before Turing the proprietary, Blackwell the open one.",
        fix="On the host install the other variant of the same driver (nvidia-open or nvidia-driver).",
        text=(
            r"not supported by open nvidia\.ko",
            r"requires use of the NVIDIA open kernel modules",
            r"does not include the required GPU System Processor",
        ),
        hides=("no-gpu-visible", "kernel-module-not-loaded"),
    ),
)
