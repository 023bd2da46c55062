"""The parts of a Machine, as plain frozen data.

Sizes are bytes, clocks MHz, power watts, CUDA versions 1000 * major + 10 * minor as the driver gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNLIMITED = -1


@dataclass(frozen=True)
class System:
    """Kernel, distribution and processor."""

    kernel: str = ""
    os_id: str = ""
    os_version: str = ""
    libc: str = ""
    arch: str = ""
    cpu_model: str = ""
    cpus: int = 0
    cpus_usable: int = 0
    memory: int = 0
    memory_available: int = 0


@dataclass(frozen=True)
class Container:
    """How this container was started. `engine` is "" outside one; limits are None when there is none."""

    engine: str = ""
    hints: tuple[str, ...] = ()
    init: str = ""
    cgroup: int = 0
    cpu_limit: float | None = None
    memory_limit: int | None = None
    pids_limit: int | None = None
    memory_kills: int | None = None
    memlock: int = UNLIMITED
    nofile: int = UNLIMITED
    nproc: int = UNLIMITED
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    user: str = ""
    infiniband: bool = False


@dataclass(frozen=True)
class Disk:
    """A folder that matters and the file system it is on. `writable` and `executable` come from really trying."""

    name: str
    path: str
    exists: bool
    mount: str = ""
    fstype: str = ""
    total: int = 0
    free: int = 0
    inodes_free: int | None = None
    readonly: bool = False
    noexec: bool = False
    writable: bool = False
    owner: int = 0
    problem: str = ""


@dataclass(frozen=True)
class DeviceNode:
    """A file under /dev; `access` is "ok" or the errno's name (EPERM is a cgroup rule, EACCES a mode)."""

    path: str
    access: str
    major: int = 0
    minor: int = 0


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver as this container sees it: the kernel's half and the user-space libraries that answer.

    `libcuda` is the file that was mapped when libcuda.so.1 was loaded. Codes are CUresult and nvmlReturn_t, None when
    the library could not be asked. `xids` are the numbers of the driver's errors in the kernel's log, oldest first,
    None when this process may not read the log.
    """

    kernel_module: str = ""
    open_module: bool | None = None
    nodes: tuple[DeviceNode, ...] = ()
    libcuda: str = ""
    libcuda_size: int = 0
    libcuda_mounted: bool | None = None
    libcuda_in_ldconfig: bool = False
    libcuda_linkable: bool = False
    cuda: int | None = None
    cuinit: int | None = None
    devices: int | None = None
    nvml_library: str = ""
    nvml_code: int | None = None
    version: str = ""
    preload: tuple[str, ...] = ()
    xids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU. None means: this card or driver does not say."""

    index: int
    name: str
    sm: str = ""
    sm_count: int | None = None
    memory: int | None = None
    memory_used: int | None = None
    clock: int | None = None
    clock_max: int | None = None
    memory_clock: int | None = None
    memory_clock_max: int | None = None
    memory_bus: int | None = None
    l2: int | None = None
    power: float | None = None
    power_limit: float | None = None
    power_default: float | None = None
    power_max: float | None = None
    temperature: int | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pci_device: str = ""
    ecc: bool | None = None
    ecc_errors: int | None = None
    mig: bool | None = None
    throttle: tuple[str, ...] = ()
    processes: int | None = None
    processes_memory: int | None = None
    compute_mode: str = ""


@dataclass(frozen=True)
class Toolkit:
    """Compilers: paths are "" and versions "" when the program is absent.

    `host_compiler` is the g++ nvcc calls, `host_compiler_limit` the newest GCC major its own header accepts.
    """

    home: str = ""
    nvcc: str = ""
    version: str = ""
    ptxas: str = ""
    host_compiler: str = ""
    host_compiler_version: str = ""
    host_compiler_limit: int | None = None
    gcc: str = ""
    gcc_version: str = ""
    gxx: str = ""
    gxx_version: str = ""


@dataclass(frozen=True)
class Python:
    """The interpreter and its packages, by wheel metadata alone; nothing of them was imported.

    `packages` is normalised name → version, `requires` the raw requirement lines of the packages that must match torch,
    `torch_cuda` what torch's version.py says, `xformers_*` what the wheel says of its own build.
    """

    version: str = ""
    executable: str = ""
    prefix: str = ""
    include: str = ""
    header: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    conflicts: tuple[str, ...] = ()
    site: str = ""
    torch_cuda: str = ""
    xformers_torch: str = ""
    xformers_archs: str = ""
    xformers_flash_min: str = ""
    xformers_flash_max: str = ""
    bitsandbytes_cuda: tuple[str, ...] = ()
