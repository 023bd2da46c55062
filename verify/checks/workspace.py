"""/workspace: its folders, who may write them, and the caches that live in it."""

from __future__ import annotations

from verify.core import Outcome, check, fail, pass_, skip, warn
from verify.machine import Disk, Machine
from verify.probe.folders import CACHES, WORKSPACE

# Inductor and Triton load the machine code they put there.
LOADED_FROM = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def _why(d: Disk) -> str:
    if d.readonly:
        return "mounted read-only"
    return {
        "EACCES": f"it belongs to user {d.owner}",
        "ENOSPC": "the disk is full",
        "EDQUOT": "the quota is used up",
    }.get(d.problem, d.problem or "not writable")


def _mount(m: Machine) -> str:
    if m.container.uid == 0:
        return "Mount a volume on /workspace, without :ro: -v $PWD/workspace:/workspace."
    return (
        f"Mount a folder that user {m.container.uid} may write on /workspace, or start as root with "
        "-e PUID=$(id -u) -e PGID=$(id -g) instead of --user."
    )


@check(needs="image", about="container")
def folders(m: Machine) -> Outcome:
    """/workspace has the folders models, data, output and scripts."""
    top = m.disk("workspace")
    if top is None or not top.exists:
        return fail(
            "/workspace does not exist.",
            hint="Start the container through its entrypoint, with a volume: -v $PWD/workspace:/workspace.",
        )
    missing = [name for name in WORKSPACE if not (d := m.disk(name)) or not d.exists]
    if missing:
        hint = f"The entrypoint makes them; by hand: mkdir {' '.join(f'/workspace/{n}' for n in missing)}."
        return fail(
            f"/workspace has no {', '.join(missing)}"
            + ("." if top.writable else f" and cannot be written: {_why(top)}."),
            hint=hint if top.writable else _mount(m),
            data={"missing": missing},
        )
    return pass_(f"/workspace ({top.fstype}) has {', '.join(WORKSPACE)}.")


@check(needs="image", about="container")
def writable(m: Machine) -> Outcome:
    """Results can be written to /workspace/output.

    models and data are often mounted read-only on purpose; that is said and is no fault.
    """
    out = m.disk("output") or m.disk("workspace")
    if out is None:
        return skip("/workspace was not looked at.")
    if not out.writable:
        user = m.container.user or m.container.uid
        return fail(
            f"{out.path} cannot be written by user {user}: {_why(out)}.",
            hint=_mount(m),
            data={"owner": out.owner, "uid": m.container.uid},
        )
    closed = [n for n in ("models", "data", "scripts") if (d := m.disk(n)) and d.exists and not d.writable]
    return pass_(f"{out.path} can be written" + (f"; {', '.join(closed)} can only be read." if closed else "."))


@check(needs="image", about="container")
def caches(m: Machine) -> Outcome:
    """Every cache folder the environment names can be written, and compiled code can be loaded from it.

    The entrypoint moves the caches below /tmp when /workspace cannot be written; a container started with another
    --entrypoint keeps the image's own values.
    """
    named = [d for name in CACHES if (d := m.disk(name))]
    if not named:
        return warn(
            "No cache folder is set, so caches go to the home folder and are lost with the container.",
            hint="Start the container with the image's own environment: TORCHINDUCTOR_CACHE_DIR, HF_HOME and so on.",
        )
    closed = [d for d in named if not d.writable]
    if closed:
        listed = "; ".join(f"{d.name}={d.path}: {_why(d)}" for d in closed)
        return fail(
            f"A cache folder cannot be written: {listed}.",
            hint="Start the container through its entrypoint, which falls back to a folder below /tmp, "
            "or set the variable to a folder that can be written.",
            data={"closed": [d.name for d in closed]},
        )
    locked = [d for d in named if d.name in LOADED_FROM and d.noexec]
    if locked:
        listed = ", ".join(f"{d.name}={d.path}" for d in locked)
        return fail(
            f"Code cannot be loaded from {listed}: mounted noexec.",
            hint="Mount that file system with exec (--tmpfs /tmp:exec), or set the variable to another folder.",
        )
    return pass_(f"{len(named)} cache folders can be written.", data={d.name: d.path for d in named})
