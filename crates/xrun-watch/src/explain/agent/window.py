"""Window of a few steps: what is born in it and lives at its end, by line, by container, by tensor.

`tracemalloc` runs from its begin to its end, so an object with a traceback was born in the window. Both ends are a census of all objects,
during which no other thread of Python runs: it sees one moment, and no object ends in this thread. Only numbers are kept between them.
"""

import os
import sys
import time
import types

gc = load("gc")
try:
    tracemalloc = load("_tracemalloc")
except ImportError:
    tracemalloc = None
array = load("array").array
deque = load("_collections").deque
_thread, itertools, operator = load("_thread"), load("itertools"), load("_operator")

# Largest processor time of the census at the end in seconds, after which it answers with what it has found.
CENSUS_SECONDS = 3.0
# Number of seconds in which no other thread of Python runs during a census.
ALONE_SECONDS = 3.0
# Largest number of objects of a census; beyond it containers are not compared.
OBJECTS_MAX = 6_000_000
# Interval in which the memory of `tracemalloc` is checked.
CHECK_SECONDS = 0.1
CONTAINERS = (list, dict, set, deque)
# Of the type itself, as a metaclass may have an attribute of that name.
FLAGS = type.__dict__["__flags__"].__get__
HEAP_TYPE = 1 << 9


def length_function(kind):
    """Returns the function that counts the items of a container without calling code of the program; `None` for other types."""
    for base in CONTAINERS:
        if issubclass(kind, base):
            return base.__len__
    return None


def resident():
    """Returns the anonymous and shared memory of this process in bytes, with what is swapped; of pages that processes share its part, so that
    pages count which a forked process has copied."""
    for path, names in (("smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")), ("status", (b"RssAnon:", b"RssShmem:", b"VmSwap:"))):
        held = 0
        try:
            with open("/proc/self/" + path, "rb") as file:
                held = sum(int(line.split()[1]) * 1024 for line in file if line.startswith(names))
        except (OSError, ValueError):
            continue
        if held:
            return held
    return 0


def untracked_dictionaries(objects, variables):
    """Returns the dictionaries that the collector does not track, because they have numbers and texts only, among attributes, variables of
    modules and closures, and `variables`."""
    kinds, found = {dict: True, types.CellType: True}, {}
    for one in objects:
        kind = type(one)
        holds = kinds.get(kind)
        if holds is None:
            # Instances of classes, whose attributes may be in no dictionary.
            holds = kinds[kind] = bool(FLAGS(kind) & HEAP_TYPE) and not issubclass(kind, type)
        if holds:
            for value in dict.values(one) if kind is dict else gc.get_referents(one):
                if type(value) is dict and not gc.is_tracked(value):
                    found[id(value)] = value
    for value in variables:
        if type(value) is dict and not gc.is_tracked(value):
            found[id(value)] = value
    return list(found.values())


def tracked_objects():
    """Returns the objects that the collector tracks, without tuples: a tuple that a thread is building must have no other reference when
    Python resizes it."""
    objects = gc.get_objects()
    return list(itertools.compress(objects, map(operator.is_not, map(type, objects), itertools.repeat(tuple))))


class Alone:
    """Keeps other threads of Python and the collector from running for `ALONE_SECONDS`: a census sees one moment, and no object ends in this
    thread. Within it nothing may release the GIL, as reading a file does."""

    def __enter__(self):
        self.interval = sys.getswitchinterval()
        sys.setswitchinterval(ALONE_SECONDS)
        # A thread that already waits for the GIL does so by the interval before. Afterwards all wait by the new one.
        lock = _thread.allocate_lock()
        lock.acquire()
        lock.acquire(True, 4 * self.interval)
        self.collects = gc.isenabled()
        gc.disable()

    def __exit__(self, *_):
        if self.collects:
            gc.enable()
        sys.setswitchinterval(self.interval)


class Window:
    length_function = staticmethod(length_function)
    tracked_objects, untracked_dictionaries = staticmethod(tracked_objects), staticmethod(untracked_dictionaries)

    def __init__(self, frames, bytes_max, forked):
        self.frames, self.bytes_max, self.forked = frames, bytes_max, forked
        self.traces = False
        self.notes = []
        self.cost = 0.0
        self.ended_by = "xrun"
        self.middle = {}
        self.tensors = part("tensors")
        self.sources = part("sources")
        self.census = part("census", window=self, sources=self.sources, tensors=self.tensors, tracemalloc=tracemalloc, gc=gc)
        self.is_managed = part("births", tracemalloc=None).is_managed
        self.paths = part("paths", gc=gc, sources=self.sources)
        self.cuda = part("cuda", find_user_frames=self.sources.user_frames)

    def begin(self):
        started = time.thread_time()
        self.started = time.perf_counter()
        self.collects = gc.isenabled()
        with Alone():
            objects = tracked_objects()
            # Built before `tracemalloc` begins, which slows each allocation of the agent too.
            self.lengths, self.managed = {}, array("Q")
            if len(objects) <= OBJECTS_MAX:
                self.count(objects)
                self.count(untracked_dictionaries(objects, self.paths.all_variables(sys._current_frames())))
            self.tensors_at_start = self.tensors.census(objects, None)
            del objects
            self.threads = set(sys._current_frames())
            if tracemalloc is None:
                self.notes.append("this Python has no tracemalloc")
            elif tracemalloc.is_tracing():
                self.notes.append("the program uses tracemalloc itself")
            else:
                tracemalloc.start(self.frames)
                self.traces = True
        # Afterwards: a census in a forked process copies pages.
        self.resident = resident()
        self.cuda.begin()
        self.cost += time.thread_time() - started

    def count(self, objects):
        """Records the number of items of all containers, and the objects whose birth `tracemalloc` does not tell."""
        functions, lengths = {}, self.lengths
        for one in objects:
            kind = type(one)
            try:
                function, managed = functions[kind]
            except KeyError:
                function, managed = functions[kind] = length_function(kind), self.is_managed(kind)
            if function is not None:
                lengths[id(one)] = function(one)
            if managed:
                self.managed.append(id(one))

    def wait(self, seconds, line):
        """Waits for xrun to end the window, for its time, or for the limit on the memory of `tracemalloc`. Returns false if xrun has gone."""
        end = time.perf_counter() + seconds
        while True:
            left = end - time.perf_counter()
            if left <= 0:
                self.ended_by = "time"
                return True
            said = line(min(CHECK_SECONDS, max(left, 0.001)))
            if said in ("end", "gone"):
                return said == "end"
            if said == "middle":
                self.look()
            if self.traces and tracemalloc.get_tracemalloc_memory() > self.bytes_max:
                self.ended_by = "memory"
                self.notes.append("tracemalloc reached its limit on memory")
                return True

    def look(self):
        """Notes the largest block of each line in the middle of the window, to recognise arrays that are replaced by larger ones."""
        if not self.traces:
            return
        started = time.thread_time()
        with Alone():
            for _, size, frames, *_ in tracemalloc._get_traces():
                if size >= 1 << 16:
                    key = self.sources.user_frames(frames)[:1]
                    self.middle[key] = max(size, self.middle.get(key, 0))
        self.cost += time.thread_time() - started

    def end(self):
        started = time.thread_time()
        seconds = time.perf_counter() - self.started
        deadline = time.thread_time() + CENSUS_SECONDS
        cuda = self.cuda.end()
        traced = tracemalloc.get_tracemalloc_memory() if self.traces else 0
        grown = resident() - self.resident - traced
        with Alone():
            frames, failure = dict(sys._current_frames()), None
            try:
                answer = self.census.answer(frames, deadline)
            except Exception as error:
                # Without its traceback, which refers to objects of the program, as nothing may beyond this.
                failure = place(error)
            frames.clear()
        if failure:
            raise RuntimeError(failure)
        self.close()
        self.cost += time.thread_time() - started
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        answer.update(
            script=script if isinstance(script, str) else None,
            process=os.getpid(), forked=self.forked, python="%d.%d.%d" % sys.version_info[:3], seconds=seconds,
            cost_seconds=self.cost, ended_by=self.ended_by, resident_growth=grown, collector=self.collects, notes=self.notes, cuda=cuda,
        )
        return answer

    def close(self):
        if self.traces:
            self.traces = False
            tracemalloc.stop()
        self.cuda.stop()

    def abandon(self):
        """Ends the window in a forked child, where it has no thread."""
        if self.traces:
            self.traces = False
            tracemalloc.stop()
