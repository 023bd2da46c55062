"""In a child process: load libcuda, say which file was mapped, then ask it. Each step is told before the next."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from verify.child import answer

# CUdevice_attribute, from cuda.h of toolkit 12.4.
SM_COUNT, CLOCK_KHZ, MEMORY_CLOCK_KHZ, BUS_BITS, L2_BYTES, ECC = 16, 13, 36, 37, 38, 32
MAJOR, MINOR, PCI_BUS, PCI_DEVICE, PCI_DOMAIN, COMPUTE_MODE = 75, 76, 33, 34, 50, 20
MODES = {0: "default", 2: "prohibited", 3: "exclusive process"}


def mapped(name: str, maps: Path = Path("/proc/self/maps")) -> str:
    """The path of the mapped file whose name starts with `name`."""
    for line in maps.read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.rpartition("/")[2].startswith(name):
            return path
    return ""


def device(lib: ctypes.CDLL, index: int) -> dict[str, Any]:
    """One device by the driver API; no context is made."""
    handle, name, memory = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    lib.cuDeviceGet(ctypes.byref(handle), index)
    lib.cuDeviceGetName(name, 256, handle)
    lib.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)

    def attribute(number: int) -> int | None:
        value = ctypes.c_int()
        return value.value if lib.cuDeviceGetAttribute(ctypes.byref(value), number, handle) == 0 else None

    def mhz(number: int) -> int | None:
        value = attribute(number)
        return value // 1000 if value else None

    domain, bus, slot = (attribute(n) or 0 for n in (PCI_DOMAIN, PCI_BUS, PCI_DEVICE))
    ecc = attribute(ECC)
    return {
        "address": f"{domain:08x}:{bus:02x}:{slot:02x}",
        "name": name.value.decode(errors="replace"),
        "sm": f"sm_{attribute(MAJOR)}{attribute(MINOR)}",
        "sm_count": attribute(SM_COUNT),
        "memory": memory.value,
        "clock_max": mhz(CLOCK_KHZ),
        "memory_clock_max": mhz(MEMORY_CLOCK_KHZ),
        "memory_bus": attribute(BUS_BITS),
        "l2": attribute(L2_BYTES),
        "ecc": None if ecc is None else bool(ecc),
        "compute_mode": MODES.get(attribute(COMPUTE_MODE) or 0, ""),
    }


def main() -> None:
    """Answer step by step: library, version, cuInit, devices."""
    said: dict[str, Any] = {}
    try:
        lib = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        answer({"problem": str(error)})
        return
    said["libcuda"] = mapped("libcuda.so")
    answer(said)
    value = ctypes.c_int()
    if lib.cuDriverGetVersion(ctypes.byref(value)) == 0:
        said["version"] = value.value
        answer(said)
    said["cuinit"] = lib.cuInit(0)
    answer(said)
    if said["cuinit"] == 0 and lib.cuDeviceGetCount(ctypes.byref(value)) == 0:
        said["devices"] = value.value
        answer(said)
        said["gpus"] = [device(lib, index) for index in range(value.value)]
        answer(said)


if __name__ == "__main__":
    main()
