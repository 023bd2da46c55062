"""Every workload at a size a CPU runs in a second: the builder, its check and its closures work. No figure is looked at."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from verify import child, core

REASON = "NOT PROVEN HERE: torch is not installed"
torch = pytest.importorskip("torch", reason=REASON)
core.discover("verify.bench")
