import sys

from verify.slim.cli import main

if __name__ == "__main__":
    sys.exit(main())
