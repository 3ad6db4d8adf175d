"""Tracebacks of objects that were born in the window, by `tracemalloc`."""

import sys

# Python 3.11 looks for the traceback of an object whose dictionary it manages at the wrong address: it forgets two words before the header.
FORGETS = sys.version_info[:2] == (3, 11)
MANAGED_DICT = 1 << 4
HEADER_BYTES = 32

# Of the type itself, as a metaclass may have an attribute of that name.
_flags = type.__dict__["__flags__"].__get__


def is_managed(kind):
    return FORGETS and _flags(kind) & MANAGED_DICT


def _traceback_at():
    """Returns the function that finds the traceback of a block by its address; `None` where C functions cannot be called."""
    try:
        ctypes = load("_ctypes")
        address = ctypes.dlsym(ctypes.dlopen(None, 0), "_PyTraceMalloc_GetTraceback")
    except (ImportError, OSError):
        return None
    # The package `ctypes` would import further modules of Python.
    anything = type("anything", (ctypes._SimpleCData,), {"_type_": "O"})
    word = type("word", (ctypes._SimpleCData,), {"_type_": "L"})
    flags = ctypes.FUNCFLAG_CDECL | ctypes.FUNCFLAG_PYTHONAPI
    function = type("function", (ctypes.CFuncPtr,), {"_flags_": flags, "_restype_": anything})(address)
    function.argtypes = (word, word)
    return lambda one: function(0, id(one) - HEADER_BYTES)


class Born:
    """Objects that were born in the window, with their tracebacks."""

    def __init__(self, objects):
        self.find = tracemalloc._get_object_traceback if traces else lambda one: None
        self.tracked, managed, at = {}, {}, _traceback_at() if FORGETS and traces else None
        known = frozenset() if at else frozenset(before)
        for one in objects:
            kind = type(one)
            special = managed.get(kind)
            if special is None:
                special = managed[kind] = bool(is_managed(kind))
            if not special:
                frames = self.find(one)
            elif at:
                frames = at(one)
            else:
                # Born in the window by its address, which none had before.
                frames = None if id(one) in known else ()
            if frames is not None and not sources.is_own(frames):
                self.tracked[id(one)] = frames

    def frames(self, one):
        """Returns the traceback of an object, `None` if it was born before."""
        frames = self.tracked.get(id(one))
        if frames is None and not gc.is_tracked(one):
            frames = self.find(one)
            if frames is not None and sources.is_own(frames):
                return None
        return frames
