"""pytest plugin: a test with ``@pytest.mark.xrun_bounded(steps=200)`` is called that often, and fails if its memory grows.

Each call is a step. Memory is what Python and the C library have allocated and not freed after the step; ``xrun verdict`` judges it.
Tracing of allocations makes the test slower, and shows the lines that allocated what grew.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import subprocess
import tempfile
import tracemalloc
from typing import Any

import pytest

from ._malloc import information
from ._program import ProgramError, program

_MARKER = "xrun_bounded"
#: Fewest steps that allow a verdict, with those of a warm-up.
_STEPS_MIN = 100
_GROWTH_MIN = 64 * 1024
#: Verdicts that fail a test.
_GROWS = ("growing", "slowing", "retained", "exceeded")
#: Lines of code that the explanation names.
_LINES_SHOWN = 5
_FRAMES = 8


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(steps=200, growth_min={_GROWTH_MIN}): call the test that often, and fail it if its memory grows by "
        "`growth_min` bytes or more",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    marker = pyfuncitem.get_closest_marker(_MARKER)
    if marker is None:
        return None
    unknown = set(marker.kwargs) - {"steps", "growth_min"}
    steps = marker.kwargs.get("steps", marker.args[0] if marker.args else 200)
    if unknown or not isinstance(steps, int) or steps < _STEPS_MIN:
        pytest.fail(f"@pytest.mark.{_MARKER} takes `steps`, at least {_STEPS_MIN}, and `growth_min`", pytrace=False)
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        pytest.fail(f"@pytest.mark.{_MARKER} cannot call a coroutine function", pytrace=False)
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    measured = _Measured(steps)
    with measured:
        for step in range(steps):
            pyfuncitem.obj(**arguments)
            measured.add(step)
    explanation = _explanation(measured, int(marker.kwargs.get("growth_min", _GROWTH_MIN)))
    if explanation is not None:
        pytest.fail(explanation, pytrace=False)
    return True


class _Measured:
    """Memory after each step."""

    def __init__(self, steps: int) -> None:
        # One for each of the steps that the marker declares, as the verdict needs all of them.
        self.rows: list[tuple[int, int, int]] = []
        self.lines: list[str] = []
        # The first third warms up caches.
        self._from = steps // 3
        self._first: tracemalloc.Snapshot | None = None
        self._malloc = information()

    def __enter__(self) -> None:
        self._was_tracing = tracemalloc.is_tracing()
        if not self._was_tracing:
            tracemalloc.start(_FRAMES)
        gc.collect()
        # Collections after each step then look at objects of the test only.
        gc.freeze()

    def add(self, step: int) -> None:
        gc.collect()
        malloc = self._malloc() if self._malloc else None
        allocated = malloc.uordblks + malloc.hblkhd if malloc else 0
        self.rows.append((step, tracemalloc.get_traced_memory()[0], allocated))
        if step == self._from:
            self._first = self._snapshot()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._first is not None and kind is None:
            differences = self._snapshot().compare_to(self._first, "lineno")
            for one in [one for one in differences if one.size_diff > 0][:_LINES_SHOWN]:
                self.lines.append(f"{one.traceback[0]}: +{_size(one.size_diff)} in {one.count_diff:+d} objects")
        gc.unfreeze()
        if not self._was_tracing:
            tracemalloc.stop()

    def _snapshot(self) -> tracemalloc.Snapshot:
        own = [tracemalloc.Filter(False, tracemalloc.__file__), tracemalloc.Filter(False, __file__)]
        return tracemalloc.take_snapshot().filter_traces(own)


def _explanation(measured: _Measured, growth_min: int) -> str | None:
    """Explanation of growth; ``None`` where memory does not grow."""
    _, python_first, c_first = min(measured.rows, key=lambda row: row[1])
    c_first = min(row[2] for row in measured.rows)
    # Growth counts from 1 % of the level on, which the memory of the imported modules would raise.
    lines = [f"{step},{python - python_first + 1},{c - c_first + 1}" for step, python, c in measured.rows]
    with tempfile.TemporaryDirectory(prefix="xrun-") as directory:
        table = os.path.join(directory, "memory.csv")
        with open(table, "w", encoding="utf-8") as file:
            file.write("\n".join(["step,python_bytes,c_library_bytes", *lines, ""]))
        try:
            ended = subprocess.run(
                [program(), "verdict", table, "--json", "--growth-min", str(growth_min)], capture_output=True, encoding="utf-8", check=False
            )
            verdict: dict[str, Any] = json.loads(ended.stdout)
        except ProgramError as error:
            return f"@pytest.mark.{_MARKER}: {error}"
        except ValueError:
            return f"@pytest.mark.{_MARKER}: {ended.stderr.strip()}"
    if verdict["verdict"] not in _GROWS:
        return None
    explained = [f"{verdict['message']}  [{verdict['verdict']}, {len(measured.rows)} steps]"]
    if measured.lines:
        explained += ["", "allocated since a third of the steps and still held:", *(f"  {line}" for line in measured.lines)]
    return "\n".join(explained)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024.0:
            return f"{size:.1f} {unit}" if unit != "B" else f"{size:.0f} B"
        size /= 1024.0
    return f"{size:.1f} GiB"
