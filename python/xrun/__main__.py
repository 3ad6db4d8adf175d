"""``python -m xrun``: the program of the wheel."""

import os
import sys

from ._program import ProgramError, program


def main() -> int:
    """Replaces this process by the program."""
    try:
        path = program()
    except ProgramError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    os.execv(path, ["xrun", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
