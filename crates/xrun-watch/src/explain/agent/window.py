"""Window of a few steps: what is born in it and lives at its end, by line, by container, by tensor.

The collector appends new objects, and those of a younger generation to an older one: until it collects all generations, what was born in the
window is behind a mark from its begin. `tracemalloc` runs in it, for their lines. Both ends are a census of all objects, during which no other
thread of Python runs: it sees one moment, and no object ends in this thread. Only numbers are kept between them.
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
# Number of seconds in which no other thread of Python runs during a census, far more than it takes on a busy machine; and the largest one to wait
# for a thread that computes.
ALONE_SECONDS, WAIT_SECONDS = 20.0, 1.0
# Number of objects that are looked at at a time, which the processor's cache holds.
CHUNK = 2048
# Interval in which the memory of `tracemalloc` is checked.
CHECK_SECONDS = 0.1
# Number of bytes beyond which the free pages of `malloc` go back at the end.
LEFT_MAX = 1 << 20
# Number of bytes of `tracemalloc` up to which the memory of the program is known.
TRACED_MAX = 4 << 20
# What the agent needs while it looks at all objects, which it does not measure.
CENSUS = -1
CONTAINERS = (list, dict, set, deque)
MEMORY = (b"RssAnon:", b"RssShmem:", b"VmSwap:", b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")


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


# Python's own functions let other threads run, whose growth would count as that of the agent.
_open, _read, _close = (native(*one) for one in (("open", "L", 2), ("read", "L", 3), ("close", "L", 1)))
# Gives the free pages of `malloc` back, where it is glibc's.
_trim = native("malloc_trim", "L", 1)


def resident(forked):
    """Returns the anonymous and shared memory of this process in bytes, with what is swapped. Of pages that a forked process shares it is its
    part, so that pages count which it has copied; the kernel takes long to sum those up."""
    for path in (b"/proc/self/smaps_rollup", b"/proc/self/status")[0 if forked and _read else 1:]:
        text, head = bytes(8192), sys.getsizeof(b"") - 1
        if _read:
            file = _open(id(path) + head, os.O_RDONLY)
            _read(file, id(text) + head, len(text))
            _close(file)
        else:
            with open(path, "rb") as file:
                text = file.read()
        held = sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(MEMORY))
        if held:
            return held
    return 0


def among(objects, kinds):
    return list(itertools.compress(objects, map(kinds.__contains__, map(type, objects))))


def census(look, untracked):
    """Calls `look` with a basic type and some containers of it until it has seen all containers. Returns all tensors. Dictionaries with numbers
    and texts only, which the collector does not track, are `untracked`."""
    objects, readers, found = gc.get_objects(), tensors.Readers(), []
    known, groups, kept = set(), {base: set() for base in CONTAINERS}, set()
    while objects:
        # To look at an object is to wait for memory: each of them once, from behind, as the list then moves nothing.
        some = objects[-CHUNK:]
        del objects[-CHUNK:]
        for kind in set(map(type, some)).difference(known):
            known.add(kind)
            group = next((group for base, group in groups.items() if issubclass(kind, base)), kept if readers.of(kind) else None)
            if group is not None:
                group.add(kind)
        wanted = among(some, kept.union(*groups.values()))
        found += among(wanted, kept)
        for base, group in groups.items():
            look(base, among(wanted, group))
    look(dict, untracked)
    return found


class Alone:
    """Keeps other threads of Python and the collector from running for `ALONE_SECONDS`: a census sees one moment, no object ends in this
    thread, and the program does not see the collector off. Within it nothing may release the GIL, as reading a file does."""

    def __enter__(self):
        self.interval = sys.getswitchinterval()
        sys.setswitchinterval(WAIT_SECONDS)
        # A thread that already waits for the GIL does so by the interval before. Afterwards all wait by the new one.
        lock = _thread.allocate_lock()
        lock.acquire()
        lock.acquire(True, 4 * self.interval)
        sys.setswitchinterval(ALONE_SECONDS)
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
        self.traces = False
        self.notes = []
        self.cost = 0.0
        # Blocks and tensors by line, in the middle.
        self.middle, self.middle_tensors = {}, {}
        self.sources = part("sources")
        self.census = part("census", window=self, take=census, native=native, sources=self.sources, tensors=tensors, tracemalloc=tracemalloc, gc=gc)
        self.paths = part("paths", gc=gc, sources=self.sources, Entry=tensors.Entry, CONTAINERS=CONTAINERS)
        self.cuda = part("cuda", find_user_frames=self.sources.user_frames)

    def begin(self):
        """Returns the mark, which the caller is to keep in a variable: what only other objects hold the collector moves behind later ones."""
        started = time.thread_time()
        self.started = time.perf_counter()
        self.collects = gc.isenabled()
        with Alone():
            resident_before = resident(self.forked)
            # Built before `tracemalloc` begins, which slows each allocation of the agent too.
            self.ids, self.lengths = array("Q"), array("Q")
            paths = self.paths.Paths(sys._current_frames())
            self.tensors_at_start = tensors.census(census(self.note, paths.untracked))
            del paths
            self.threads = set(sys._current_frames())
            if tracemalloc is None:
                self.notes.append("this Python has no tracemalloc")
            elif tracemalloc.is_tracing():
                self.notes.append("the program uses tracemalloc itself")
            else:
                tracemalloc.start(self.frames)
                self.traces = True
            # Afterwards: a census in a forked process copies pages.
            self.resident_at_start = resident(self.forked)
            self.left = self.resident_at_start - resident_before
            mark, self.collections = [], gc.get_stats()[2]["collections"]
        self.cuda.begin()
        self.cost += time.thread_time() - started
        return mark

    def note(self, base, some):
        self.ids.extend(map(id, some))
        self.lengths.extend(map(base.__len__, some))

    def wait(self, seconds, line, tell, mark):
        """Waits for xrun to end the window, for its time, or for the limit on the memory of `tracemalloc`, and tells what the agent needs
        meanwhile. Returns false if xrun has gone."""
        end, said = time.perf_counter() + seconds, ""
        while said != "end" and time.perf_counter() < end:
            traced = tracemalloc.get_tracemalloc_memory() if self.traces else 0
            if traced > self.bytes_max:
                self.notes.append("tracemalloc reached its limit on memory")
                break
            # Of many blocks `tracemalloc` needs several times what it counts.
            tell(max(self.left + traced, 0) if traced <= TRACED_MAX else CENSUS)
            said = line(CHECK_SECONDS)
            if said == "gone":
                return False
            if said == "middle":
                tell(CENSUS)
                self.look(mark)
        tell(CENSUS)
        return True

    def look(self, mark):
        """Notes in the middle of the window what each line has allocated so far, to tell what accumulates from the current step."""
        if not self.traces:
            return
        started = time.thread_time()
        with Alone():
            self.middle = self.census.lines()
            self.middle_tensors = self.census.tensors_by_line(self.born(mark))
        self.cost += time.thread_time() - started

    def born(self, mark):
        """Returns what was born in the window and some older objects, without tuples: a tuple that a thread is building must have no other
        reference when Python resizes it."""
        # A full collection puts the newest objects in front of older ones, and that of Python 3.14 has no order.
        if gc.get_stats()[2]["collections"] != self.collections or sys.version_info >= (3, 14):
            mark = None
        found = []
        for generation in range(3):
            objects = gc.get_objects(generation=generation)
            is_mark = map(operator.is_, reversed(objects), itertools.repeat(mark))
            behind = next(itertools.compress(itertools.count(), is_mark), None)
            found += objects if behind is None else objects[len(objects) - behind:]
            if behind is not None:
                break
        return list(itertools.compress(found, map(operator.is_not, map(type, found), itertools.repeat(tuple))))

    def end(self, mark):
        started = time.thread_time()
        seconds = time.perf_counter() - self.started
        cuda = self.cuda.end()
        with Alone():
            traced = tracemalloc.get_tracemalloc_memory() if self.traces else 0
            resident_before = resident(self.forked) - traced
            frames, failure = dict(sys._current_frames()), None
            try:
                answer = self.census.answer(frames, self.born(mark), CENSUS_SECONDS)
            except Exception as error:
                # Without its traceback, which refers to objects of the program, as nothing may beyond this.
                failure = place(error)
            frames.clear()
            self.stop_tracing()
            left = resident(self.forked) - resident_before
            # The program would use what is left, and seem to grow no more until it is used up.
            if _trim and self.left + left > LEFT_MAX:
                _trim(0)
                left = resident(self.forked) - resident_before
            self.left += left
        self.close()
        if failure:
            raise RuntimeError(failure)
        self.cost += time.thread_time() - started
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        answer.update(
            script=script if isinstance(script, str) else None,
            process=os.getpid(), forked=self.forked, python="%d.%d.%d" % sys.version_info[:3], seconds=seconds,
            cost_seconds=self.cost, resident_growth=resident_before - self.resident_at_start,
            collector=self.collects, notes=self.notes, cuda=cuda, left=self.left, hidden=getattr(gc, "get_freeze_count", int)(),
        )
        return answer

    def stop_tracing(self):
        if self.traces:
            self.traces = False
            tracemalloc.stop()

    def close(self):
        self.stop_tracing()
        self.cuda.stop()

    def abandon(self):
        """Ends the window in a forked child, where it has no thread."""
        self.stop_tracing()
