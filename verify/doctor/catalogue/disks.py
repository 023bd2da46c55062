"""Disks and folders: full, read-only, foreign, failing."""

from __future__ import annotations

import re
from collections.abc import Mapping

from verify.doctor import facts_stack
from verify.doctor.entry import Entry


def place(line: str) -> Mapping[str, str]:
    """The path that a full disk's line names."""
    found = re.search(r"['\"]?(/[\w./@+-]{2,160})['\"]?", line)
    return {"path": found[1]} if found else {}


def elsewhere(line: str) -> Mapping[str, str] | None:
    """The path of a line about room, when it is not shared memory."""
    return None if re.search(r"/dev/shm|torch_\d|\bshm\b|psm_|nccl-", line) else place(line)


def workspace(line: str) -> Mapping[str, str] | None:
    """The path of a permission error, when it is a volume's or a home's; None for the program's own files."""
    found = re.search(
        r"(?:['\" ])(/(?:workspace|root|home|data|mnt|opt/venv|output|models)\b[^'\" :]{0,200})['\":]", line
    )
    return {"path": found[1]} if found else None


ENTRIES = (
    Entry(
        id="engine-disk-full",
        title="The disk below Docker's folder is full",
        layer="launch",
        rank=50,
        cause="The disk below Docker's folder is full, so the image or the container cannot be stored.",
        fix="Make room (`docker system df` shows where it went, `docker system prune` gives it back), or move "
        "Docker's data-root.",
        command="docker system df && docker system prune",
        text=(
            (
                r"(?:/var/lib/(?:docker|containerd)|overlay2|buildkit|failed to register layer|copying blob"
                r"|snapshotter|extracting).{0,300}no space left on device"
            ),
            r"failed to register layer.{0,200}no space",
            r"no space left on device.{0,80}(?:/var/lib/docker|overlay2)",
        ),
        engine=(r"no space left on device",),
        hides=("disk-full",),
    ),
    Entry(
        id="disk-full",
        title="A disk is full",
        layer="resources",
        rank=4,
        cause="The file system of {path|a folder the program writes to} has no room left (in bytes or in inodes).",
        fix="See which one: `df -h . /tmp /dev/shm /workspace` and `df -i`; clear /workspace/.cache or old "
        "checkpoints, or mount a larger volume. If /dev/shm is the full one, start with --shm-size=8g.",
        command="df -h . /tmp /dev/shm /workspace; df -i .",
        text=(
            r"no space left on device",
            r"\[Errno 28\]",
            r"disk quota exceeded",
            r"not enough free disk space",
            r"os error 28\b",
            r"enospc\b",
            r"unexpected pos \d{1,20} vs \d",
            r"file write failed.{0,60}(?:disk|space)",
            r"there is not enough (?:free )?(?:disk )?space",
            r"not enough space on the disk",
            r"PytorchStreamWriter failed writing",
        ),
        read=elsewhere,
        facts=facts_stack.full_disk,
        checks=("container.disk_space",),
        hides=("jit-failed", "pip-hash-mismatch", "process-aborted"),
    ),
    Entry(
        id="folder-not-writable",
        title="A folder may not be written by this user",
        layer="resources",
        rank=10,
        cause="{path|A mounted folder} belongs to another user than the one in the container.",
        fix="Start the container with `-e PUID=$(id -u) -e PGID=$(id -g)` (or --user), or give the folder to that "
        "user on the host.",
        command="docker run -e PUID=$(id -u) -e PGID=$(id -g) …",
        text=(r"['\"]?: permission denied", r"permission denied: ['\"]", r"permission denied: '/workspace"),
        read=workspace,
        checks=("workspace.writable",),
    ),
    Entry(
        id="read-only",
        title="The file system is read-only",
        layer="resources",
        rank=11,
        cause="The program writes to {path|a file system} that is read-only: the container was started with "
        "--read-only, the volume with :ro, or the kernel found a fault of the disk.",
        fix="Mount a writable volume there (or --tmpfs /tmp:exec), drop :ro; on the host look at `dmesg` for disk "
        "faults.",
        command="mount | grep -w ro",
        text=(r"read-only file system", r"\[Errno 30\]"),
        read=place,
    ),
    Entry(
        id="disk-fault",
        title="The disk or the network file system fails",
        layer="resources",
        rank=12,
        cause="Reading or writing failed below the file system: a failing disk, a lost network mount, or a damaged "
        "image layer.",
        fix="Look at `dmesg` on the host and at the mount; copy what is needed away first.",
        command="sudo dmesg | tail -50",
        text=(
            r"\[Errno 5\]",
            r"input/output error",
            r"stale (?:NFS )?file handle",
            r"transport endpoint is not connected",
        ),
        unless=(r"CUDA error",),
    ),
    Entry(
        id="owner-cannot-be-changed",
        title="The owner of a mounted folder cannot be changed",
        layer="resources",
        rank=13,
        cause="The volume does not let root of the container change owners: a network share with root squash, a "
        "Windows drive, or a rootless engine.",
        fix="Give the folder to the user on the server or the host, and start the container as that user (--user).",
        text=(r"chown: (?:changing ownership of|cannot)", r"chown \S{1,120}: operation not permitted"),
    ),
)
