"""The known failures, by family. A new one is an Entry in the list of a file here."""

from __future__ import annotations

from verify.doctor.catalogue import (
    access,
    attention,
    build,
    build_tools,
    compile_,
    cuda_libraries,
    devices,
    disks,
    driver,
    engine,
    extensions,
    gpu_code,
    gpu_errors,
    harmless,
    launch,
    libraries,
    memory,
    multi_gpu,
    network,
    packages,
    resources,
    slimmed,
    speed,
    start,
    system,
    uncompiled,
)
from verify.doctor.entry import Entry

FAMILIES = (
    *(
        engine,
        launch,
        start,
        access,
        devices,
        driver,
        slimmed,
        gpu_code,
        gpu_errors,
        cuda_libraries,
        libraries,
        system,
        attention,
    ),
    *(
        packages,
        build,
        extensions,
        build_tools,
        network,
        compile_,
        uncompiled,
        memory,
        resources,
        disks,
        multi_gpu,
        speed,
    ),
    harmless,
)
ENTRIES: tuple[Entry, ...] = tuple(entry for family in FAMILIES for entry in family.ENTRIES)
BY_ID = {entry.id: entry for entry in ENTRIES}


def launch_entries() -> tuple[Entry, ...]:
    """What can keep the Docker engine from starting a container."""
    return (*engine.ENTRIES, *launch.ENTRIES, *start.ENTRIES, *(e for e in disks.ENTRIES if e.engine))
