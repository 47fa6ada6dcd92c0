"""The command ``uopc``, also as ``python -m uopc``."""

import signal
import sys

from ._uopc import main as _main


def main() -> int:
    """Runs the command with the arguments of this process and returns its exit code."""
    # The program deals with Ctrl-C itself, or ends.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _main(["uopc", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
