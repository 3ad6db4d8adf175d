"""Lines at which the objects of the window were born, by `tracemalloc`."""

import sys

# Python 3.11 looks for the traceback of an object whose dictionary it manages at the wrong address: it forgets two words before the
# header.
FORGETS = sys.version_info[:2] == (3, 11)
MANAGED_DICT = 1 << 4
HEADER_BYTES = 32
# Largest number of objects of each sort whose tracebacks are looked at; of more it is every second, third and so on.
TRACED_MAX = 3_000
itertools, operator = load("itertools"), load("_operator")

# Of the type itself, as a metaclass may have an attribute of that name.
_flags = type.__dict__["__flags__"].__get__


class Born:
    """Objects that were born in the window, with the lines of the program that created them: those with a traceback, or all where nothing
    traces. Does not need `tracemalloc` afterwards."""

    def __init__(self, objects):
        self.tracked, self.traces = {}, traces
        if not traces:
            self.tracked.update(zip(map(id, objects), itertools.repeat(())))
            return
        kinds, lines = {kind for kind in set(map(type, objects)) if FORGETS and _flags(kind) & MANAGED_DICT}, {}
        managed = list(itertools.compress(objects, map(kinds.__contains__, map(type, objects))))
        others = list(itertools.filterfalse(lambda one: type(one) in kinds, objects)) if kinds else objects
        # By the address of the block.
        find_managed = native("_PyTraceMalloc_GetTraceback", "O", 2) if managed else None
        traceback_at = lambda one: find_managed and find_managed(0, id(one) - HEADER_BYTES)
        for some, find in ((others, tracemalloc._get_object_traceback), (managed, traceback_at)):
            some = list(itertools.compress(some, map(operator.is_not, map(find, some), itertools.repeat(None))))
            self.tracked.update(dict.fromkeys(map(id, some), ()))
            for one in some[::len(some) // TRACED_MAX + 1]:
                frames = find(one)
                if frames not in lines:
                    lines[frames] = () if frames is None else None if sources.is_own(frames) else sources.user_frames(frames)
                self.tracked[id(one)] = lines[frames]

    def frames(self, one):
        """Returns the lines at which an object was created; `None` if it was born before or is none that the collector tracks."""
        return self.tracked.get(id(one))
