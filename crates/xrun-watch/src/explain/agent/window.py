"""Window of a few steps: what is born in it and lives at its end, by line, by container, by tensor.

`tracemalloc` runs from its begin to its end, so an object with a traceback was born in the window. Both ends are a census of all objects,
during which no other thread of Python runs: it sees one moment, and no object ends in this thread. Only numbers are kept between them.
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
ALONE_SECONDS = 3.0
# Largest number of objects of a census; beyond it containers are not compared.
OBJECTS_MAX = 6_000_000
# Number of objects whose referents are looked at at a time.
CHUNK = 2048
# Interval in which the memory of `tracemalloc` is checked.
CHECK_SECONDS = 0.1
CONTAINERS = (list, dict, set, deque)


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


def containers(objects, variables):
    """Returns the containers among objects by their basic type, with the dictionaries that the collector does not track, because they have
    numbers and texts only, among what objects refer to and `variables`."""
    kinds, found = set(map(type, objects)), {}
    for base in CONTAINERS:
        members = {kind for kind in kinds if issubclass(kind, base)}
        found[base] = list(itertools.compress(objects, map(members.__contains__, map(type, objects))))
    for referents in itertools.chain(map(referents_of, chunks(objects)), [list(variables)]):
        dictionaries = itertools.compress(referents, map(operator.is_, map(type, referents), itertools.repeat(dict)))
        found[dict].extend(itertools.filterfalse(gc.is_tracked, dictionaries))
    return found


def chunks(objects):
    """Yields parts of a list: large blocks would leave pages behind."""
    for at in range(0, len(objects), CHUNK):
        yield objects[at:at + CHUNK]


def referents_of(objects):
    return gc.get_referents(*objects)


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
    tracked_objects, containers = staticmethod(tracked_objects), staticmethod(containers)

    def __init__(self, frames, bytes_max, forked):
        self.frames, self.bytes_max, self.forked = frames, bytes_max, forked
        self.traces = False
        self.notes = []
        self.cost = 0.0
        self.ended_by = "xrun"
        # Blocks and tensors by line, in the middle.
        self.middle, self.middle_tensors = {}, {}
        self.tensors = part("tensors")
        self.sources = part("sources")
        self.census = part("census", window=self, sources=self.sources, tensors=self.tensors, tracemalloc=tracemalloc, gc=gc)
        self.managed_objects = part("births", tracemalloc=None).managed
        self.paths = part("paths", gc=gc, sources=self.sources)
        self.cuda = part("cuda", find_user_frames=self.sources.user_frames)

    def begin(self):
        started = time.thread_time()
        self.started = time.perf_counter()
        self.collects = gc.isenabled()
        resident_before = resident()
        with Alone():
            objects = tracked_objects()
            # Built before `tracemalloc` begins, which slows each allocation of the agent too.
            self.ids, self.lengths, self.managed = array("Q"), array("Q"), array("Q")
            if len(objects) <= OBJECTS_MAX:
                for base, found in containers(objects, self.paths.all_variables(sys._current_frames())).items():
                    self.ids.extend(map(id, found))
                    self.lengths.extend(map(base.__len__, found))
                self.managed.extend(map(id, self.managed_objects(objects)))
            self.tensors_at_start = self.tensors.census(objects)[0]
            found = None
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
        self.left = self.resident - resident_before
        self.cuda.begin()
        self.cost += time.thread_time() - started

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
        """Notes in the middle of the window what each line has allocated so far, to tell what accumulates from the current step."""
        if not self.traces:
            return
        started = time.thread_time()
        with Alone():
            self.middle = self.census.lines()
            self.middle_tensors = self.census.tensors_by_line()
        self.cost += time.thread_time() - started

    def end(self):
        started = time.thread_time()
        seconds = time.perf_counter() - self.started
        cuda = self.cuda.end()
        traced = tracemalloc.get_tracemalloc_memory() if self.traces else 0
        resident_before = resident()
        grown = resident_before - self.resident - traced
        with Alone():
            frames, failure = dict(sys._current_frames()), None
            try:
                answer = self.census.answer(frames, CENSUS_SECONDS)
            except Exception as error:
                # Without its traceback, which refers to objects of the program, as nothing may beyond this.
                failure = place(error)
            frames.clear()
        if failure:
            raise RuntimeError(failure)
        self.close()
        self.left += resident() - resident_before + traced
        self.cost += time.thread_time() - started
        script = getattr(sys.modules.get("__main__"), "__file__", None)
        answer.update(
            script=script if isinstance(script, str) else None,
            process=os.getpid(), forked=self.forked, python="%d.%d.%d" % sys.version_info[:3], seconds=seconds,
            cost_seconds=self.cost, ended_by=self.ended_by, resident_growth=grown, collector=self.collects, notes=self.notes, cuda=cuda,
            left=self.left, hidden=getattr(gc, "get_freeze_count", int)(),
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
