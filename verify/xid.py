"""Xid errors: the driver's numbered reports in the kernel's log, and what each number is about.

Numbers and their meaning: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors).
"""

from __future__ import annotations

import re

# What a program causes, what memory causes, a lost card, its firmware; the rest is the card, its link or its driver.
BY_PROGRAM = {13, 31, 32, 43, 45, 68}
BY_MEMORY = {48, 63, 64, 92, 94, 95, 140, 160, 161}
OFF_THE_BUS = {79, 137}
BY_FIRMWARE = {61, 62, 109, 119, 120, 121}
# Of BY_MEMORY, what needs nothing done: a row was replaced, single-bit errors were frequent and corrected.
MENDED = {63, 92}
LINE = r"\bXid\b ?\(PCI:[^)]{1,40}\): ?(?P<xid>\d{1,3})"


def numbers(log: str) -> tuple[int, ...]:
    """The Xid numbers in a kernel log, oldest first."""
    return tuple(int(found["xid"]) for found in re.finditer(LINE, log))
