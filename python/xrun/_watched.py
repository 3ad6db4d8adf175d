"""Reports of a trainer to ``xrun watch``: steps, phases, and the bytes of owners.

They are JSON lines in the pipe that ``XRUN_REPORTS`` names. A write never waits: the trainer is as fast as without a watcher, and
runs on when the watcher is gone.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    T = TypeVar("T")

_VARIABLE = "XRUN_REPORTS"
#: Cap on the owners, as in ``xrun watch``.
OWNERS_MAX = 16
#: Cap on the phases, as in ``xrun watch``.
PHASES_MAX = 16
#: Cap on the values of a step, as in ``xrun watch``.
VALUES_MAX = 32
_NAME_MAX = 40
#: Bytes that a pipe takes in one piece (``PIPE_BUF``), however many processes write.
_LINE_MAX = 4096
#: Seconds between two measurements of the owners, and their largest part of the time, as its inverse.
_EVERY = 0.2
_COST_FACTOR = 100.0


def step(number: int, /, **values: Any) -> None:
    """Reports that a step is done, with its ``loss`` and other numbers.

    ``learning_rate`` (or ``lr``) is the learning rate; other names stay as they are. Values are converted by ``float``, which
    waits for a GPU where a value is a tensor on it; NaN and infinity are left out.
    """
    if _reports is not None:
        _reports.step(number, values)


def _held() -> int:
    """Memory in use of this process in bytes, 0 where the system does not tell: anonymous memory without what `malloc` has free.

    The pages of a large buffer that a phase has freed are used by the phase that follows, whose growth would count as that of the first.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE") - _free_of_malloc()


def _free_of_malloc() -> int:
    """Bytes that the C library has free for further allocations, 0 where it does not tell. Replaces itself at its first call."""
    global _free_of_malloc
    # Not at the import of this module, which is part of the start of every trainer.
    from ._malloc import information

    read = information()
    _free_of_malloc = int if read is None else lambda: int(read().fordblks)
    return _free_of_malloc()


class phase:
    """Context whose time, and whose growth of memory, count as those of a phase of the training, such as ``validation``."""

    __slots__ = ("_begun", "_held", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = 0.0
        self._held: int | None = None

    def __enter__(self) -> phase:
        if _reports is not None:
            self._held = _reports.begin_phase(self._name)
            self._begun = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if _reports is not None and self._begun:
            _reports.end_phase(self._name, time.monotonic() - self._begun, self._held)
            self._begun = 0.0


def own(name: str, owner: T) -> T:
    """Declares an object whose bytes the verdict on memory may name, such as a replay buffer; returns the object.

    The object is referenced weakly. A list, a dictionary or another object without weak references is let go at the next step
    after its last other reference. A second object of the same name replaces the first. Sizes are measured at steps and at the
    ends of phases, for at most 1 % of the time: tensors and arrays by their storage, other objects by ``sys.getsizeof``, large
    containers by a sample of their items. At most 16 objects are measured.
    """
    if _reports is not None:
        _reports.own(name, owner)
    return owner


def is_watched() -> bool:
    """Returns whether ``xrun watch`` runs this process."""
    return _reports is not None


def _reference(owner: Any) -> Callable[[], Any]:
    """Reference that keeps nothing alive, or a strong one that is let go when it is the only one."""
    import weakref

    try:
        return weakref.ref(owner)
    except TypeError:
        return _LastReference(owner)


def _references(held: list[Any]) -> int:
    return sys.getrefcount(held[0])


#: References that are counted where the list is the only holder.
_ALONE = _references([object()])


class _LastReference:
    """Reference to an object without weak references."""

    __slots__ = ("_held",)

    def __init__(self, owner: Any) -> None:
        self._held = [owner]

    def __call__(self) -> Any:
        if self._held and _references(self._held) <= _ALONE:
            self._held.clear()
        return self._held[0] if self._held else None


class _Reports:
    """Writer of the reports of this process."""

    def __init__(self, pipe: int) -> None:
        # Not at the import of this module, which is part of the start of every trainer.
        import json
        import threading

        self._pipe = pipe
        self._new_lock = threading.RLock
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        self._lock = self._new_lock()
        self._owners: dict[str, Callable[[], Any]] = {}
        #: Count, total and longest microseconds, and growth in bytes of each phase that was not reported yet.
        self._phases: dict[str, list[int]] = {}
        #: Time from which on the memory of a phase is measured again, and how often it was not.
        self._unmeasured: dict[str, tuple[float, int]] = {}
        #: Newest of the numbers by which pauses between measurements differ.
        self._draw = 0
        self._due = 0.0

    def step(self, number: int, values: dict[str, Any]) -> None:
        report: dict[str, Any] = {"step": int(number)}
        for name, value in values.items():
            try:
                value = float(value)
            except (TypeError, ValueError):
                continue
            # JSON has neither NaN nor infinity.
            if value - value == 0.0 and len(report) <= VALUES_MAX:
                report[name] = value
        if not self._write(report) and "loss" in report:
            self._write({"step": report["step"], "loss": report["loss"]})
        self._report_rest()

    def begin_phase(self, name: str) -> int | None:
        """Returns the memory in use, `None` where measuring it would take more than its part of the time."""
        due, _ = self._unmeasured.get(name, (0.0, 0))
        return _held() if time.monotonic() >= due else None

    def end_phase(self, name: str, seconds: float, held: int | None) -> None:
        spent, grown = int(seconds * 1e6), 0
        with self._lock:
            due, missed = self._unmeasured.get(name, (0.0, 0))
            if held is None:
                missed += 1
            else:
                begun = time.thread_time()
                # Those that were not measured have grown alike.
                grown, missed = (_held() - held) * (missed + 1), 0
                # A fixed pause would miss the same part of every step.
                self._draw = (self._draw * 75 + 74) % 65537
                pause = _COST_FACTOR * (1 + 2 * self._draw / 65537)
                due = time.monotonic() + pause * (time.thread_time() - begun)
            if name in self._unmeasured or len(self._unmeasured) < PHASES_MAX:
                self._unmeasured[name] = due, missed
            name = name[:_NAME_MAX]
            if name in self._phases or len(self._phases) < PHASES_MAX:
                times = self._phases.setdefault(name, [0, 0, 0, 0])
                times[0] += 1
                times[1] += spent
                times[2] = max(times[2], spent)
                times[3] += grown
        self._report_rest()

    def own(self, name: str, owner: Any) -> None:
        with self._lock:
            name = name[:_NAME_MAX]
            if name not in self._owners and len(self._owners) >= OWNERS_MAX:
                self._owners = {name: reference for name, reference in self._owners.items() if reference() is not None}
            if name in self._owners or len(self._owners) < OWNERS_MAX:
                self._owners[name] = _reference(owner)

    def _report_rest(self) -> None:
        """Reports owners and phases where they are due."""
        now = time.monotonic()
        if now < self._due or not (self._owners or self._phases) or not self._lock.acquire(blocking=False):
            return
        # Processor time: on a busy machine a measurement waits, which costs nothing.
        begun = time.thread_time()
        try:
            self._report_owners_and_phases()
        finally:
            self._due = now + max(_EVERY, _COST_FACTOR * (time.thread_time() - begun))
            self._lock.release()

    def _report_owners_and_phases(self, ending: bool = False) -> None:
        report: dict[str, Any] = {"xrun_process": os.getpid()}
        if self._owners and not ending:
            from ._sizes import measure

            # An owner that is gone has no bytes; its series continues.
            found = [(name, reference()) for name, reference in self._owners.items()]
            report["owners"] = dict(zip(self._owners, measure([owner for _, owner in found])))
        if self._phases:
            report["phases"] = {
                name: {"count": count, "total_us": total, "longest_us": longest, "grown": grown}
                for name, (count, total, longest, grown) in self._phases.items()
            }
        if self._write(report):
            self._phases.clear()

    def finish(self) -> None:
        """Reports the rest of the phases at the end of the process."""
        with self._lock:
            if self._phases:
                self._report_owners_and_phases(ending=True)

    def forget(self) -> None:
        """Forgets what the parent process reports."""
        self._lock = self._new_lock()
        self._owners = {}
        self._phases = {}
        self._unmeasured = {}

    def _write(self, report: dict[str, Any]) -> bool:
        """Writes a line; returns whether there was room for it."""
        global _reports
        line = self._encode(report).encode("utf-8", "replace") + b"\n"
        if len(line) > _LINE_MAX:
            return False
        try:
            os.write(self._pipe, line)
        except BlockingIOError:
            return False
        except OSError:
            # The watcher is gone.
            _reports = None
        return True


def _open() -> _Reports | None:
    path = os.environ.get(_VARIABLE)
    if not path:
        return None
    try:
        reports = _Reports(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return None
    import atexit

    os.register_at_fork(after_in_child=reports.forget)
    atexit.register(reports.finish)
    return reports


_reports: _Reports | None = _open()
