"""The folders that matter and the file systems under them; every claim comes from really trying."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from verify.facts import Disk

WORKSPACE = ("models", "data", "output", "scripts")
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HOME", "PIP_CACHE_DIR", "XDG_CACHE_HOME")


def mount_table(path: Path = Path("/proc/self/mountinfo")) -> dict[str, tuple[str, str]]:
    """Mount point → (file system type, options); the last mount on a point is the one in sight."""
    found = {}
    for line in path.read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, after = left.split(), right.split()
        # Spaces and tabs in paths are octal escapes.
        target = fields[4].encode().decode("unicode_escape")
        found[target] = (after[0], f"{fields[5]},{after[2] if len(after) > 2 else ''}")
    return found


def mounts() -> tuple[str, ...]:
    """The mounts a diagnosis asks about, as "target type ro|rw"."""
    wanted = ("/workspace", "/tmp", "/dev/shm", "/proc/driver/nvidia", "/dev/nvidia", "/home", "/root", "/run/nvidia")
    return tuple(
        f"{target} {kind} {'ro' if 'ro' in options.split(',') else 'rw'}"
        for target, (kind, options) in mount_table().items()
        if target == "/" or target.startswith(wanted) or "nvidia" in target or "libcuda" in target
    )


def under(path: str, table: Mapping[str, tuple[str, str]]) -> str:
    """The mount point `path` lies on."""
    return max((t for t in table if path == t or path.startswith(t.rstrip("/") + "/")), key=len, default="")


def try_folder(path: Path) -> tuple[bool, bool, str]:
    """(writable, code from here can be mapped executable, why not) by writing, mapping and removing one small file."""
    try:
        handle, name = tempfile.mkstemp(prefix=".verify-", dir=path)
    except OSError as error:
        return False, True, errno.errorcode.get(error.errno or 0, str(error))
    try:
        os.write(handle, b"\0" * mmap.PAGESIZE)
        try:
            mmap.mmap(handle, mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
        except PermissionError:
            return True, False, ""
        return True, True, ""
    except OSError as error:
        return False, True, errno.errorcode.get(error.errno or 0, str(error))
    finally:
        os.close(handle)
        with suppress(OSError):
            os.unlink(name)


def look(name: str, path: str, table: Mapping[str, tuple[str, str]]) -> Disk:
    """One folder. Of one that is not there yet, the nearest existing parent says whether it could be made."""
    place = Path(path)
    try:
        exists = place.is_dir()
        near = next(p for p in (place, *place.parents) if p.is_dir())
        real = os.path.realpath(near)
        space = os.statvfs(real)
        writable, executable, problem = try_folder(near)
        mount = under(real, table)
        kind, options = table.get(mount, ("", ""))
        return Disk(
            name=name,
            path=path,
            exists=exists,
            mount=mount,
            fstype=kind,
            total=space.f_blocks * space.f_frsize,
            free=space.f_bavail * space.f_frsize,
            inodes_free=space.f_favail if space.f_files else None,
            readonly=bool(space.f_flag & os.ST_RDONLY),
            noexec=not executable or "noexec" in options.split(","),
            writable=writable,
            owner=near.stat().st_uid,
            problem=problem,
        )
    except (OSError, StopIteration, ValueError) as error:
        return Disk(name=name, path=path, exists=False, problem=str(error) or type(error).__name__)


def read(env: Mapping[str, str], workspace: str = "/workspace") -> tuple[Disk, ...]:
    """Root, temporary folder, shared memory, the workspace and its parts, home and the caches the environment names."""
    with suppress(OSError):
        table = mount_table()
        wanted = {"root": "/", "tmp": env.get("TMPDIR") or "/tmp", "shm": "/dev/shm", "workspace": workspace}
        wanted |= {name: f"{workspace}/{name}" for name in WORKSPACE}
        wanted["home"] = env.get("HOME") or os.path.expanduser("~")
        wanted |= {name: env[name] for name in CACHES if env.get(name)}
        return tuple(look(name, path, table) for name, path in wanted.items())
    return ()
