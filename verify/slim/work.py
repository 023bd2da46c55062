"""Slims the files of a site-packages one by one, with a manifest that is written ahead of every change.

A run that was killed leaves every file either as it was or finished, and the manifest knows both hashes of each; the
next run goes on, and makes the RECORD files true at its end. A run on a finished tree changes nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from verify import elf
from verify.audit import elf_files
from verify.core import UsageError
from verify.slim import decide, edit, wheels
from verify.slim.decide import Plan
from verify.slim.manifest import Dropped, File, Manifest, load
from verify.slim.wheels import Wheel

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Report:
    """A run's manifest, what could not be done, and what changed (nothing in a dry run)."""

    manifest: Manifest
    failed: tuple[str, ...] = ()
    changed: int = 0


@dataclass(frozen=True)
class _Job:
    part: Path
    path: str
    wheel: Wheel
    plan: Plan


def slim(
    parts: Sequence[Path],
    targets: Sequence[int],
    place: Path,
    *,
    dry_run: bool = False,
    measure: bool = True,
    progress: Progress = lambda _done, _all, _name: None,
) -> Report:
    """Slims the site-packages that lies in `parts` for sm_<target> each; `place` is the manifest's file.

    Raises UsageError when nothing could be begun. What goes wrong with a file is in the report; it stays as it was.
    """
    owners = wheels.owners(parts)
    if not owners:
        raise UsageError(f"No *.dist-info/RECORD lies below {parts[0]}: give a site-packages, or all parts of one.")
    names = tuple(f"sm_{target}" for target in targets)
    before = load(place)
    manifest = replace(before, targets=names) if before else Manifest(names)
    files = [(part, os.path.relpath(path, part)) for part in parts for path in elf_files(part)]
    jobs, manifest, failed = _plan(files, owners, targets, manifest)
    state = _State(place, manifest, dry_run, measure)
    for part in parts:
        failed += _drop(part, owners, targets, state)
    jobs = [job for job in jobs if (job.part / job.path).exists() and not decide.left_out(job.path, targets)]
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        biggest_first = sorted(jobs, key=lambda job: -(job.part / job.path).stat().st_size)
        for done, said in enumerate(pool.map(state.edit, biggest_first)):
            progress(done + 1, len(jobs), biggest_first[done].path)
            failed += [said] if said else []
    if not dry_run:
        failed += _records(owners, parts, state.manifest)
        state.save()
    return Report(state.manifest, tuple(failed), 0 if dry_run else state.changed)


def _plan(
    files: Iterable[tuple[Path, str]], owners: dict[str, Wheel], targets: Sequence[int], manifest: Manifest
) -> tuple[list[_Job], Manifest, list[str]]:
    jobs, failed = [], []
    alone: dict[str, tuple[str, ...]] = {}
    untouched: dict[str, str] = {}
    for part, path in files:
        wheel = owners.get(path)
        why = wheel.forbids(path) if wheel else "no wheel claims it"
        if wheel is None or why:
            if wheel and wheel.name.startswith("nvidia-"):
                untouched[wheel.title] = why
            elif wheel is None or wheel.name in wheels.EDITABLE:
                alone[path] = (why,)
            continue
        try:
            with elf.mapped(part / path) as data:
                plan = decide.plan(data, targets)
        except (elf.ElfError, OSError) as error:
            alone[path] = (str(error),)
            continue
        if plan.left_alone:
            alone[path] = plan.left_alone
        if plan.lost:
            failed.append(f"{path} {plan.lost[0]}: reinstall {wheel.title}, or name the targets it was slimmed for.")
        elif plan.spans:
            jobs.append(_Job(part, path, wheel, plan))
    return jobs, replace(manifest, left_alone=alone, untouched=dict(sorted(untouched.items()))), failed


def _drop(part: Path, owners: dict[str, Wheel], targets: Sequence[int], state: _State) -> list[str]:
    failed = []
    patterns = {rule.pattern for rule in decide.LEAVE_OUT}
    for file in sorted({file for pattern in patterns for file in part.glob(pattern)}):
        path = os.path.relpath(file, part)
        why = decide.left_out(path, targets)
        if why and path in owners and file.resolve().is_relative_to(part):  # never through a link to another tree
            try:
                state.drop(file, Dropped(path, owners[path].title, file.stat().st_size, why))
            except OSError as error:
                failed.append(f"{path} could not be left out: {error.strerror}.")
    return failed


@dataclass
class _State:
    """The manifest while it grows; every change goes to its file first."""

    place: Path
    manifest: Manifest
    dry_run: bool
    measure: bool
    changed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def save(self) -> None:
        self.place.parent.mkdir(parents=True, exist_ok=True)
        partial = self.place.with_name(f".{self.place.name}.partial")
        partial.write_text(self.manifest.text())
        os.replace(partial, self.place)

    def note(self, file: File) -> None:
        others = [f for f in self.manifest.files if f.path != file.path]
        self.manifest = replace(self.manifest, files=tuple(sorted([*others, file], key=lambda f: f.path)))

    def forget(self, path: str, earlier: File | None) -> None:
        others = [f for f in self.manifest.files if f.path != path]
        self.manifest = replace(self.manifest, files=(*others, *([earlier] if earlier else [])))

    def drop(self, file: Path, item: Dropped) -> None:
        item = replace(item, compressed=edit.compressed(file) if self.measure else None)
        others = [d for d in self.manifest.dropped if d.path != item.path]
        self.manifest = replace(self.manifest, dropped=tuple(sorted([*others, item], key=lambda d: d.path)))
        if not self.dry_run:
            self.save()
            file.unlink()
            self.changed += 1

    def edit(self, job: _Job) -> str:
        """Slims one file; "" or what went wrong."""
        file = job.part / job.path
        plan = job.plan
        made = File(
            job.path, job.wheel.title, job.wheel.licence, file.stat().st_size, "", "", plan.containers, plan.freed
        )
        if self.dry_run:
            with self.lock:
                self.note(made)
            return ""
        earlier = next((f for f in self.manifest.files if f.path == job.path), None)
        packed = edit.compressed(file) if self.measure else None
        made = replace(made, compressed_before=packed)

        def announce(before: str, after: str) -> None:
            nonlocal made
            made = replace(made, sha256_before=before, sha256_after=after)
            with self.lock:
                if earlier and earlier.sha256_after == before:  # slimmed further: what it was at first stays known
                    freed = dict(earlier.freed)
                    for label, size in made.freed.items():
                        freed[label] = freed.get(label, 0) + size
                    made = replace(
                        made,
                        sha256_before=earlier.sha256_before,
                        freed=freed,
                        compressed_before=earlier.compressed_before,
                    )
                self.note(made)
                self.save()

        try:
            edit.zeroed(file, plan.spans, announce)
        except OSError as error:
            with self.lock:
                self.forget(job.path, earlier)
            return f"{job.path} could not be rewritten and is what it was: {error.strerror or error}."
        with self.lock:
            self.changed += 1
            self.note(replace(made, compressed_after=edit.compressed(file) if self.measure else None))
        return ""


def _records(owners: dict[str, Wheel], parts: Sequence[Path], manifest: Manifest) -> list[str]:
    """Makes the RECORDs of all wheels in the manifest true."""
    failed = []
    gone = [d.path for d in manifest.dropped if not any((part / d.path).exists() for part in parts)]
    changed = {f.path: (f.sha256_after, f.size) for f in manifest.files}
    touched = {owners[path].record: owners[path].title for path in (*changed, *gone) if path in owners}
    for record, title in sorted(touched.items()):
        try:
            wheels.update(record, changed, gone)
        except OSError as error:  # noqa: PERF203 - the others are made true all the same
            failed.append(f"The RECORD of {title} could not be rewritten: {error.strerror}.")
    return failed
