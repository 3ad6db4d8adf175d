"""Memory of the C library's `malloc`."""

from __future__ import annotations

import ctypes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: Fields of glibc's `struct mallinfo2`.
_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Information(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


def information() -> Callable[[], Any] | None:
    """Function for what glibc's malloc has allocated (`uordblks`, and `hblkhd` in mapped blocks) and free (`fordblks`), in bytes;
    ``None`` elsewhere. It visits all free blocks."""
    try:
        read = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    read.restype = _Information
    return read
