"""In a child process: what NVML says of the driver and of each GPU, through nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from verify.child import answer
from verify.probe.cuda import mapped

# nvmlClocksEventReasons, from nvml.h; 1 is "idle", which is no throttling.
THROTTLE = {
    0x2: "applications clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}


def gpu(nv: Any, handle: Any) -> dict[str, Any]:
    """One GPU; None wherever the card or the driver does not answer."""

    def ask(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except Exception:  # NVMLLibraryMismatchError, of a binding newer than the driver, is no NVMLError
            return None

    pci, memory = ask(lambda: nv.nvmlDeviceGetPciInfo(handle)), ask(lambda: nv.nvmlDeviceGetMemoryInfo(handle))
    sm = ask(lambda: nv.nvmlDeviceGetCudaComputeCapability(handle))
    reasons = ask(lambda: nv.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
    running = ask(lambda: nv.nvmlDeviceGetComputeRunningProcesses(handle))
    ecc, mig = ask(lambda: nv.nvmlDeviceGetEccMode(handle)), ask(lambda: nv.nvmlDeviceGetMigMode(handle))
    name = ask(lambda: nv.nvmlDeviceGetName(handle)) or ""
    limits = ask(lambda: nv.nvmlDeviceGetPowerManagementLimitConstraints(handle))

    def watts(read: Callable[[], Any]) -> float | None:
        value = ask(read)
        return None if value is None else value / 1000

    return {
        "address": f"{pci.domain:08x}:{pci.bus:02x}:{pci.device:02x}" if pci else "",
        "name": name.decode() if isinstance(name, bytes) else name,
        "sm": f"sm_{sm[0]}{sm[1]}" if sm else "",
        "memory": memory.total if memory else None,
        "memory_used": memory.used if memory else None,
        "clock": ask(lambda: nv.nvmlDeviceGetClockInfo(handle, nv.NVML_CLOCK_SM)),
        "clock_max": ask(lambda: nv.nvmlDeviceGetMaxClockInfo(handle, nv.NVML_CLOCK_SM)),
        "memory_clock": ask(lambda: nv.nvmlDeviceGetClockInfo(handle, nv.NVML_CLOCK_MEM)),
        "memory_clock_max": ask(lambda: nv.nvmlDeviceGetMaxClockInfo(handle, nv.NVML_CLOCK_MEM)),
        "power": watts(lambda: nv.nvmlDeviceGetPowerUsage(handle)),
        "power_limit": watts(lambda: nv.nvmlDeviceGetEnforcedPowerLimit(handle)),
        "power_default": watts(lambda: nv.nvmlDeviceGetPowerManagementDefaultLimit(handle)),
        "power_max": limits[1] / 1000 if limits else None,
        "busy": ask(lambda: nv.nvmlDeviceGetUtilizationRates(handle).gpu),  # per cent; for `gpu`
        "temperature": ask(lambda: nv.nvmlDeviceGetTemperature(handle, nv.NVML_TEMPERATURE_GPU)),
        "pcie_gen": ask(lambda: nv.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        "pcie_gen_max": ask(lambda: nv.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        "pcie_width": ask(lambda: nv.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        "pcie_width_max": ask(lambda: nv.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        "pci_device": f"{pci.pciDeviceId >> 16:04x}" if pci else "",
        "ecc": bool(ecc[0]) if ecc else None,
        "ecc_errors": ask(
            lambda: nv.nvmlDeviceGetTotalEccErrors(handle, nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC)
        ),
        "mig": bool(mig[0]) if mig else None,
        "throttle": [text for bit, text in THROTTLE.items() if reasons & bit],
        "processes": None if running is None else len(running),
        "processes_memory": None if running is None else sum(p.usedGpuMemory or 0 for p in running),
    }


def main() -> None:
    """Answer with the code of nvmlInit, the library's path, the driver's version and the GPUs."""
    try:
        import pynvml as nv
    except ImportError:
        answer({"problem": "nvidia-ml-py is not installed for this Python"})
        return
    try:
        nv.nvmlInit()
    except nv.NVMLError as error:
        code = getattr(error, "value", None)
        answer({"code": code, "library": mapped("libnvidia-ml.so"), "problem": f"NVML {code}: {error}"})
        return
    version = nv.nvmlSystemGetDriverVersion()
    said: dict[str, Any] = {
        "code": 0,
        "library": mapped("libnvidia-ml.so"),
        "driver": version.decode() if isinstance(version, bytes) else version,
        "gpus": [],
    }
    with suppress(nv.NVMLError, AttributeError):
        said["cuda"] = nv.nvmlSystemGetCudaDriverVersion_v2()
    answer(said)
    for index in range(nv.nvmlDeviceGetCount()):
        try:
            said["gpus"].append(gpu(nv, nv.nvmlDeviceGetHandleByIndex(index)))
        except nv.NVMLError as error:  # noqa: PERF203 - one lost card must not hide the others
            said["problem"] = f"NVML does not show GPU {index}: {error}"
    answer(said)


if __name__ == "__main__":
    main()
