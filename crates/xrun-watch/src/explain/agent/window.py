"""Window of a few steps: what is born in it and lives at its end, by line, by container, by tensor.

`gc.freeze` puts all objects aside at its begin: those that the collector has at its end were born in the window. `tracemalloc` runs in it, for
their lines. Both ends are a census of all objects that hold others, during which no other thread of Python runs: it sees one moment, and no
object ends in this thread. Only numbers are kept between them.
"""

import os
import sys
import time

gc = load("gc")
try:
    tracemalloc = load("_tracemalloc")
except ImportError:
    tracemalloc = None
array = load("array").array
deque = load("_collections").deque
_thread, itertools, operator = load("_thread"), load("itertools"), load("_operator")

# Largest processor time of the census at the end in seconds, after which it answers with what it has found; `tracemalloc` has ended then.
CENSUS_SECONDS = 1.0
# Number of seconds in which no other thread of Python runs during a census.
ALONE_SECONDS = 2.0
# Memory of `tracemalloc` from which on the lines of a few steps are enough: it takes ten microseconds to read each block of some 60 bytes.
TRACED_BYTES_ENOUGH = 1 << 20
# Interval in which the memory of `tracemalloc` is checked.
CHECK_SECONDS = 0.1
CONTAINERS = (list, dict, set, deque)


def native(name, result, count):
    """Returns a C function of numbers, which keeps the GIL; its result is an object (`O`) or a number (`L`). `None` where C functions cannot be
    called."""
    try:
        ctypes = load("_ctypes")
        address = ctypes.dlsym(ctypes.dlopen(None, 0), name)
    except (ImportError, OSError):
        return None
    # The package `ctypes` would import further modules of Python.
    kinds = {letter: type(letter, (ctypes._SimpleCData,), {"_type_": letter}) for letter in (result, "L")}
    flags = ctypes.FUNCFLAG_CDECL | ctypes.FUNCFLAG_PYTHONAPI
    function = type("function", (ctypes.CFuncPtr,), {"_flags_": flags, "_restype_": kinds[result]})(address)
    function.argtypes = count * (kinds["L"],)
    return function


class Resident:
    """Anonymous and shared memory of this process in bytes, with what is swapped. Of pages that a forked process shares it is its part, so that
    pages count which it has copied; the kernel takes long to sum those up."""

    def __init__(self, forked):
        path, self.names = "/proc/self/status", (b"RssAnon:", b"RssShmem:", b"VmSwap:")
        if forked and os.access("/proc/self/smaps_rollup", os.R_OK):
            path, self.names = "/proc/self/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
        self.file = os.open(path, os.O_RDONLY)
        # Python's own function lets other threads run, whose growth would count as that of the agent.
        self.read = native("pread", "L", 4)

    def bytes(self):
        text = bytes(8192)
        # Behind the head of an object.
        length = self.read(self.file, id(text) + sys.getsizeof(b"") - 1, len(text), 0) if self.read else 0
        return sum(int(line.split()[1]) * 1024 for line in text[:max(0, length)].splitlines() if line.startswith(self.names))

    def close(self):
        file, self.file = self.file, None
        if file is not None:
            os.close(file)


def among(objects, kinds):
    return list(itertools.compress(objects, map(kinds.__contains__, map(type, objects))))


def census(untracked):
    """Returns the containers among all objects by their basic type, and all tensors. Dictionaries with numbers and texts only, which the
    collector does not track, are added to it."""
    objects = gc.get_objects()
    kinds = set(map(type, objects))
    members = {base: {kind for kind in kinds if issubclass(kind, base) and kind is not tensors.Table} for base in CONTAINERS}
    every = set().union(*members.values())
    tensor_kinds = tensors.Readers().among(kinds)
    objects = among(objects, every.union(tensor_kinds))
    found_tensors = among(objects, tensor_kinds)
    objects = among(objects, every)
    found = {base: among(objects, of_base) for base, of_base in members.items()}
    found[dict].extend(untracked)
    return found, found_tensors


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


tensors = part("tensors")


class Window:
    def __init__(self, frames, bytes_max, forked):
        self.frames, self.bytes_max, self.forked = frames, bytes_max, forked
        self.traces, self.freezes = False, False
        self.notes = []
        self.cost = 0.0
        self.ended_by = "xrun"
        # Blocks and tensors by line, in the middle.
        self.middle, self.middle_tensors = {}, {}
        self.resident = Resident(forked)
        self.tensors = tensors
        self.sources = part("sources")
        self.census = part("census", window=self, take=census, native=native, sources=self.sources, tensors=self.tensors, tracemalloc=tracemalloc, gc=gc)
        self.paths = part("paths", gc=gc, sources=self.sources, Entry=tensors.Entry, Table=tensors.Table)
        self.cuda = part("cuda", find_user_frames=self.sources.user_frames)

    def begin(self):
        started = time.thread_time()
        self.started = time.perf_counter()
        self.collects = gc.isenabled()
        with Alone():
            resident_before = self.resident.bytes()
            # Built before `tracemalloc` begins, which slows each allocation of the agent too.
            self.ids, self.lengths = array("Q"), array("Q")
            paths = self.paths.Paths(sys._current_frames())
            found, kept = census(paths.untracked)
            paths.clear()
            for base, group in found.items():
                self.ids.extend(map(id, group))
                self.lengths.extend(map(base.__len__, group))
            self.tensors_at_start = self.tensors.census(kept)
            paths = found = group = kept = None
            self.threads = set(sys._current_frames())
            if tracemalloc is None:
                self.notes.append("this Python has no tracemalloc")
            elif tracemalloc.is_tracing():
                self.notes.append("the program uses tracemalloc itself")
            else:
                tracemalloc.start(self.frames)
                self.traces = True
            # With those that the program has frozen it would go on unfrozen.
            self.freezes = not gc.get_freeze_count()
            if self.freezes:
                gc.freeze()
            # Afterwards: a census in a forked process copies pages.
            self.resident_at_start = self.resident.bytes()
        self.left = self.resident_at_start - resident_before
        self.cuda.begin()
        self.cost += time.thread_time() - started

    def wait(self, seconds, line):
        """Waits for xrun to end the window, for its time, or for the limit on the memory of `tracemalloc`. Returns false if xrun has gone."""
        end, has_steps, enough = time.perf_counter() + seconds, False, self.bytes_max
        while True:
            left = end - time.perf_counter()
            if left <= 0:
                self.ended_by = "time"
                return True
            said = line(min(CHECK_SECONDS, max(left, 0.001)))
            if said in ("end", "gone"):
                return said == "end"
            traced = tracemalloc.get_tracemalloc_memory() if self.traces else 0
            has_steps = has_steps or said in ("steps", "middle")
            if said == "middle" or has_steps and traced > TRACED_BYTES_ENOUGH:
                if not self.middle:
                    self.look()
                    enough = max(2 * traced, TRACED_BYTES_ENOUGH)
            if traced > min(enough, self.bytes_max):
                self.ended_by = "memory"
                return True

    def look(self):
        """Notes in the middle of the window what each line has allocated so far, to tell what accumulates from the current step."""
        if not self.traces:
            return
        started = time.thread_time()
        with Alone():
            self.middle = self.census.lines()
            self.middle_tensors = self.census.tensors_by_line()
        self.cost += time.thread_time() - started

    def born(self):
        """Returns the objects that were born in the window, without tuples: a tuple that a thread is building must have no other reference when
        Python resizes it. Where the program has frozen objects itself it is all objects."""
        objects = gc.get_objects()
        return list(itertools.compress(objects, map(operator.is_not, map(type, objects), itertools.repeat(tuple))))

    def end(self):
        started = time.thread_time()
        seconds = time.perf_counter() - self.started
        cuda = self.cuda.end()
        with Alone():
            traced = tracemalloc.get_tracemalloc_memory() if self.traces else 0
            resident_before = self.resident.bytes() - traced
            frames, failure = dict(sys._current_frames()), None
            try:
                answer = self.census.answer(frames, CENSUS_SECONDS)
            except Exception as error:
                # Without its traceback, which refers to objects of the program, as nothing may beyond this.
                failure = place(error)
            frames.clear()
            self.stop_tracing()
            self.left += self.resident.bytes() - resident_before
        self.close()
        if failure:
            raise RuntimeError(failure)
        self.cost += time.thread_time() - started
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        answer.update(
            script=script if isinstance(script, str) else None,
            process=os.getpid(), forked=self.forked, python="%d.%d.%d" % sys.version_info[:3], seconds=seconds,
            cost_seconds=self.cost, ended_by=self.ended_by, resident_growth=resident_before - self.resident_at_start, collector=self.collects, notes=self.notes, cuda=cuda,
            left=self.left, hidden=gc.get_freeze_count(),
        )
        return answer

    def stop_tracing(self):
        if self.traces:
            self.traces = False
            tracemalloc.stop()
        if self.freezes:
            gc.unfreeze()
            self.freezes = False

    def close(self):
        self.stop_tracing()
        self.resident.close()
        self.cuda.stop()

    def abandon(self):
        """Ends the window in a forked child, where it has no thread."""
        self.stop_tracing()
        self.resident.close()
