"""`python -m verify`."""

from __future__ import annotations

import sys

from verify.cli import main

if __name__ == "__main__":
    sys.exit(main())
