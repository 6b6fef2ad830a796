"""``python -m evenhand`` is the command ``evenhand``."""

import sys

from evenhand.cli import main

if __name__ == "__main__":
    sys.exit(main())
