"""How this container was started: engine, cgroup limits (v1 and v2), resource limits, user."""

from __future__ import annotations

import os
import pwd
import resource
from collections.abc import Mapping
from pathlib import Path

from verify.child import memory_kills
from verify.facts import UNLIMITED, Container
from verify.probe import Problems, attempt

CGROUP = Path("/sys/fs/cgroup")
NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as the largest page-aligned number


def engine(root: Path, env: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The container engine, "" outside a container, and what told it."""
    group = (root / "proc/1/cgroup").read_text() if (root / "proc/1/cgroup").exists() else ""
    signs = {
        "kubernetes": [("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_HOST" in env), ("cgroup", "kubepods" in group)],
        "docker": [("/.dockerenv", (root / ".dockerenv").exists()), ("cgroup", "/docker" in group)],
        "podman": [("/run/.containerenv", (root / "run/.containerenv").exists()), ("cgroup", "libpod" in group)],
        "lxc": [("cgroup", "/lxc" in group)],
        env.get("container", "other"): [("container=", bool(env.get("container")))],
    }
    found = [(name, f"{name}: {sign}") for name, tests in signs.items() for sign, seen in tests if seen]
    # A RUN step of an image build has none of these; its root is an overlay and its process 1 is not an init.
    return (found[0][0] if found else ""), tuple(text for _, text in found)


def number(path: Path) -> int | None:
    """The number in a cgroup file; None for "max", v1's no-limit, or no such file."""
    try:
        text = path.read_text().split()[0]
        value = int(text) if text != "max" else NO_LIMIT
    except (OSError, ValueError, IndexError):
        return None
    return None if value >= NO_LIMIT or value < 0 else value


def cpu_limit(root: Path = CGROUP) -> float | None:
    """Cores this cgroup may use at once, None without a limit."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    amount, every = number(root / "cpu/cpu.cfs_quota_us"), number(root / "cpu/cpu.cfs_period_us")
    return amount / every if amount and every else None


def first(*paths: Path) -> int | None:
    """The first of several cgroup files that holds a limit."""
    return next((n for n in map(number, paths) if n is not None), None)


def limit(kind: int) -> int:
    """The soft limit of a resource, UNLIMITED (-1) without one."""
    soft = resource.getrlimit(kind)[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def user(uid: int) -> str:
    """The name of a user id, "" when it has no passwd entry."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def read(problems: Problems, root: Path = Path("/")) -> Container:
    """The container this process is in; also meaningful outside one (limits, user)."""
    name, hints = attempt(problems, "container.engine", lambda: engine(root, os.environ), ("", ()))
    return Container(
        engine=name,
        hints=hints,
        init=attempt(problems, "container.init", lambda: (root / "proc/1/comm").read_text().strip(), ""),
        cgroup=2 if (CGROUP / "cgroup.controllers").exists() else 1 if (CGROUP / "memory").is_dir() else 0,
        cpu_limit=cpu_limit(),
        memory_limit=first(CGROUP / "memory.max", CGROUP / "memory/memory.limit_in_bytes"),
        pids_limit=first(CGROUP / "pids.max", CGROUP / "pids/pids.max"),
        memory_kills=memory_kills(),
        memlock=limit(resource.RLIMIT_MEMLOCK),
        nofile=limit(resource.RLIMIT_NOFILE),
        nproc=limit(resource.RLIMIT_NPROC),
        uid=os.getuid(),
        gid=os.getgid(),
        groups=tuple(os.getgroups()),
        user=user(os.getuid()),
        infiniband=(root / "dev/infiniband").is_dir(),
    )
