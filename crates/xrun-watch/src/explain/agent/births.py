"""Tracebacks of objects that were born in the window, by `tracemalloc`."""

import sys

# Python 3.11 looks for the traceback of an object whose dictionary it manages at the wrong address: it forgets two words before the
# header.
FORGETS = sys.version_info[:2] == (3, 11)
MANAGED_DICT = 1 << 4
HEADER_BYTES = 32
# Largest number of objects whose tracebacks are looked at.
TRACED_MAX = 10_000
compress, operator = load("itertools").compress, load("_operator")

# Of the type itself, as a metaclass may have an attribute of that name.
_flags = type.__dict__["__flags__"].__get__


def managed(objects):
    """Returns the objects of which `tracemalloc` looks for the traceback at the wrong address."""
    kinds = {kind for kind in set(map(type, objects)) if FORGETS and _flags(kind) & MANAGED_DICT}
    return list(compress(objects, map(kinds.__contains__, map(type, objects))))


def _traceback_at():
    """Returns the function that finds the traceback of a block by its address; `None` where C functions cannot be called."""
    try:
        ctypes = load("_ctypes")
        address = ctypes.dlsym(ctypes.dlopen(None, 0), "_PyTraceMalloc_GetTraceback")
    except (ImportError, OSError):
        return lambda one: None
    # The package `ctypes` would import further modules of Python.
    anything = type("anything", (ctypes._SimpleCData,), {"_type_": "O"})
    word = type("word", (ctypes._SimpleCData,), {"_type_": "L"})
    flags = ctypes.FUNCFLAG_CDECL | ctypes.FUNCFLAG_PYTHONAPI
    function = type("function", (ctypes.CFuncPtr,), {"_flags_": flags, "_restype_": anything})(address)
    function.argtypes = (word, word)
    return lambda one: function(0, id(one) - HEADER_BYTES)


class Born:
    """Objects that were born in the window, with the lines of the program that created them. Does not need `tracemalloc` afterwards."""

    def __init__(self, objects, tensors):
        self.tracked, self.traces, lines = {}, traces, {}
        if not traces:
            return
        self.unknown = managed(objects)
        # Of the others it is only asked whether they were born.
        lined = managed(tensors)
        for some, find in ((objects, tracemalloc._get_object_traceback), (lined, _traceback_at() if lined else None)):
            born = list(compress(some, map(find, some)))
            every = len(born) // TRACED_MAX + 1
            for at, one in enumerate(born):
                frames = None if at % every else find(one)
                if frames is None:
                    self.tracked[id(one)] = ()
                elif not sources.is_own(frames):
                    # A traceback is larger than most objects.
                    line = sources.user_frames(frames)
                    self.tracked[id(one)] = lines.setdefault(line, line)

    def add_unknown(self):
        """Adds the objects of which `tracemalloc` does not tell that they were born, once it has ended: comparing them allocates."""
        if self.traces:
            known = frozenset(before)
            for one in compress(self.unknown, map(operator.not_, map(known.__contains__, map(id, self.unknown)))):
                self.tracked.setdefault(id(one), ())
            self.unknown = None

    def frames(self, one):
        """Returns the lines at which an object was created; `None` if it was born before or is none that the collector tracks."""
        return self.tracked.get(id(one)) if self.traces else ()
