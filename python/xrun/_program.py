"""The program ``xrun``: where it is, and its commands as functions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ._results import PathLike, Run, Sweep

Event = dict[str, Any]
#: Environment variable with the path of the program, in place of that of the wheel.
_VARIABLE = "XRUN_PROGRAM"
#: Cap on the lines of stderr without an event that an error shows.
_LINES_MAX = 20
# Characters of standard output that are kept; the table of a sweep has a line for each run.
_OUTPUT_MAX = 64 * 1024 * 1024
#: Seconds that the program may take to end after its output.
_WAIT = 60.0


class ProgramError(Exception):
    """The program is missing, or has refused or failed before there was a result."""

    def __init__(self, message: str, exit_code: int | None = None, problems: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        #: Problems of the experiment file, as of :func:`check`.
        self.problems = problems or []


def program() -> str:
    """Returns the path of the program: ``XRUN_PROGRAM``, that of the wheel, or the one in ``PATH``.

    Raises ``ProgramError`` if there is none.
    """
    named = os.environ.get(_VARIABLE)
    user = f"{os.name}_user"
    schemes = [None, user] if user in sysconfig.get_scheme_names() else [None]
    scripts = [sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts") for scheme in schemes]
    beside = [os.path.dirname(sys.executable), *scripts]
    candidates = [named] if named else [os.path.join(directory, "xrun") for directory in beside if directory]
    for path in candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = None if named else shutil.which("xrun")
    if found is None:
        where = f"{_VARIABLE}={named} is no program" if named else "there is no program `xrun`"
        raise ProgramError(f"{where}; install it by `pip install xrun` or `cargo install xrun`, or set {_VARIABLE}")
    return found


def check(path: PathLike, /, **overrides: Any) -> list[dict[str, Any]]:
    """Returns the problems of an experiment file and of its data: each with ``key``, ``message``, ``help``, ``line`` and
    ``column``. No problem: an empty list.

    ``limits__workers=2`` sets ``limits.workers`` first.
    """
    answer = _json("check", "--json", os.fspath(path), *_settings(overrides))
    return [problem for file in answer for problem in file["problems"]]


def schema(record: str) -> dict[str, Any]:
    """Returns the JSON Schema of a record, such as ``verdict``, or of the ``experiment``."""
    answer: dict[str, Any] = _json("generate", "schema", record)
    return answer


def start(path: PathLike, /, *, options: tuple[str, ...] | list[str] = (), **overrides: Any) -> Process:
    """Starts a run and returns its process, whose events can be iterated.

    ``training__max_steps=20`` sets ``training.max_steps``; ``options`` are those of the command line, such as ``["--smoke"]``.
    """
    return Process(["run", os.fspath(path), "--progress", "json", *options, *_settings(overrides)])


def run(
    path: PathLike,
    /,
    *,
    on_event: Callable[[Event], object] | None = None,
    options: tuple[str, ...] | list[str] = (),
    **overrides: Any,
) -> Run:
    """Runs an experiment to its end and returns its results; the arguments are those of :func:`start`.

    ``on_event`` is called with each event: ``started``, ``step``, ``validated``, ``ended`` and others (docs/results.md, Events).
    Raises ``ProgramError`` if there are no results. A run that failed has some: see ``run.summary``.
    """
    process = start(path, options=options, **overrides)
    for event in process:
        if on_event is not None:
            on_event(event)
    return process.result()


def sweep(
    path: PathLike,
    /,
    *,
    on_event: Callable[[Event], object] | None = None,
    options: tuple[str, ...] | list[str] = (),
    results: PathLike = "results",
    **overrides: Any,
) -> Sweep:
    """Runs an experiment for many values and returns the results: ``training__batch_size=[16, 64]`` tries both sizes.

    A text may have a range: ``optimizer__adamw__learning_rate="1e-4..1e-2:5:log"``. ``on_event`` is called with an event for each
    run. Raises ``ProgramError`` if nothing was run.
    """
    arguments = ["sweep", os.fspath(path), "--progress", "json", "--json", "--results", os.fspath(results), *options]
    process = Process([*arguments, *_settings(overrides, several=True)], keep_output=True)
    for event in process:
        if on_event is not None:
            on_event(event)
    try:
        table = json.loads(process.output)
        return Sweep(Path(results, table["experiment"], "sweeps", table["sweep"]).resolve())
    except (ValueError, KeyError):
        raise process.error() from None


class Process:
    """Running ``xrun``. Iterating yields its events until it ends."""

    def __init__(self, arguments: list[str], keep_output: bool = False) -> None:
        self._process = subprocess.Popen(
            [program(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if keep_output else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self._lines: deque[str] = deque(maxlen=_LINES_MAX)
        self._last: dict[str, Event] = {}
        #: Standard output, once it has ended, up to a maximum.
        self.output = ""
        self._reader: threading.Thread | None = None
        if keep_output:
            # A full pipe would block the program while its events are read.
            self._reader = threading.Thread(target=self._read_output, daemon=True)
            self._reader.start()

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        self.output = self._process.stdout.read(_OUTPUT_MAX)
        while self._process.stdout.read(_OUTPUT_MAX // 1024):
            pass

    def __iter__(self) -> Iterator[Event]:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                event = json.loads(line)
                kind = event["event"]
            except (ValueError, KeyError, TypeError):
                self._lines.append(line.rstrip("\n"))
                continue
            if kind in ("started", "ended", "error", "problems"):
                self._last[kind] = event
            yield event
        if self._reader is not None:
            self._reader.join()
        self._process.wait(_WAIT)

    @property
    def exit_code(self) -> int | None:
        """Exit code; ``None`` while it runs."""
        return self._process.poll()

    @property
    def run(self) -> Run | None:
        """Results so far; ``None`` before they are begun."""
        event = self._last.get("ended") or self._last.get("started")
        return Run(os.path.abspath(event["run"])) if event and event.get("run") else None

    def stop(self) -> None:
        """Requests a stop with a checkpoint, as Ctrl-C does."""
        self._process.terminate()

    def result(self) -> Run:
        """Waits for the end and returns the results; raises ``ProgramError`` if there are none."""
        for _ in self:
            pass
        found = self.run
        if found is None:
            raise self.error()
        return found

    def error(self) -> ProgramError:
        """Error without a result, with the reason that the program gave."""
        problems = self._last.get("problems", {}).get("problems", [])
        told = [problem.get("message", "") for problem in problems] or [self._last.get("error", {}).get("message", "")]
        message = "; ".join(text for text in told if text) or "\n".join(self._lines)
        code = self._process.poll()
        return ProgramError(message or f"xrun ended with exit code {code} and no result", code, problems)


def _json(*arguments: str) -> Any:
    """Output of a command as JSON. Exit codes of a file with problems are no failure where there is output."""
    ended = subprocess.run(
        [program(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    try:
        return json.loads(ended.stdout)
    except ValueError:
        message = ended.stderr.strip().removeprefix("error: ")
        raise ProgramError(message or f"xrun ended with exit code {ended.returncode}", ended.returncode) from None


def _settings(overrides: Mapping[str, Any], several: bool = False) -> list[str]:
    """Options ``-s`` of keyword arguments."""
    arguments = []
    for key, value in overrides.items():
        values = value if several and isinstance(value, (list, tuple)) else [value]
        text = ",".join(_toml(one, several) for one in values)
        arguments += ["-s", f"{key.replace('__', '.')}={text}"]
    return arguments


def _toml(value: Any, bare: bool = False) -> str:
    """Value in TOML. A text of a sweep stays bare, as it may be a range."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(name))} = {_toml(one)}" for name, one in value.items()) + "}"
    return str(value) if bare else json.dumps(str(value), ensure_ascii=False)
