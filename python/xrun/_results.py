"""Results that xrun leaves on disk. No reader needs the program, and each reads the results of an active or a killed run."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import sys
import warnings
import zlib
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Union

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

#: Version of the records that this module reads (``schemas/``).
VERSION = 1
PathLike = Union[str, "os.PathLike[str]"]
Row = dict[str, Any]

_RUN_NAME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}_[0-9a-f]{6}(-\d+)?")
#: Verdict at the beginning of its record.
_VERDICT = re.compile(rb'"verdict": "(\w+)"')
_HEAD_BYTES = 256
#: Largest record and longest line, as those of the program (``crates/xrun-results/src/read.rs``).
_RECORD_BYTES_MAX = 64 * 1024 * 1024
_LINE_BYTES_MAX = 1024 * 1024
#: Deepest nesting of fields, in dots of a name.
_DEPTH_MAX = 100
#: Characters of the time in the name of a run.
_TIME_LENGTH = 19


class ResultError(Exception):
    """A result that does not exist or cannot be read."""


class DamagedError(ResultError):
    """A file that is no record: its checksum does not fit, it is too large, or it is no regular file."""


class Rows(list[Row]):
    """Rows of a table. Nested fields have names with dots: ``host.rss``."""

    def where(self, **fields: Any) -> Rows:
        """Returns the rows with these values: ``run.metrics.where(kind="validation")``."""
        return Rows(row for row in self if all(row.get(name) == value for name, value in fields.items()))

    def columns(self) -> dict[str, list[Any]]:
        """Returns the table by columns; a value that a row lacks is ``None``."""
        names = dict.fromkeys(name for row in self for name in row)
        return {name: [row.get(name) for row in self] for name in names}

    def frame(self) -> pandas.DataFrame:
        """Returns the table as a frame of pandas, which must be installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("`frame` needs pandas: pip install pandas; `columns` needs nothing") from error
        return pandas.DataFrame(self.columns())


def runs(results: PathLike = "results", experiment: str | None = None, count: int | None = None) -> list[Run]:
    """Returns the runs below a directory of results, newest first: of one experiment where it is named, and ``count`` of them.

    Runs of sweeps and reproductions are not among them, as in ``xrun ls``. A record is read when it is first used.
    """
    root = Path(results)
    names = [experiment] if experiment is not None else _directories(root)
    found: list[tuple[str, bool, str, str]] = []
    for name in names:
        directory = os.path.join(root, name)
        newest = _link(os.path.join(directory, "latest"))
        names_of_runs = sorted(_recorded(root, name, newest) or _directories(directory), reverse=True)
        last = "~"
        if newest in names_of_runs:
            # The link names the newest run, even if the clock of another was ahead.
            last = newest[:_TIME_LENGTH]
            names_of_runs.remove(newest)
            names_of_runs.insert(0, newest)
        newest_of_all = islice(filter(_RUN_NAME.fullmatch, names_of_runs), count)
        found += [(min(run[:_TIME_LENGTH], last), run == newest, run, directory) for run in newest_of_all]
    return [Run(os.path.join(directory, run)) for _, _, run, directory in sorted(found, reverse=True)[:count]]


def load(name: PathLike, results: PathLike = "results") -> Run | Sweep:
    """Returns a run or a sweep.

    The name is a directory, ``EXPERIMENT/RUN``, ``EXPERIMENT`` or ``EXPERIMENT/latest`` for its newest run, ``latest`` for the
    newest of all, or the first or last six characters of a run's name; ``~2`` at the end is the second run before it.
    """
    text, _, back = os.fspath(name).partition("~")
    back_by = int(back) if back.isdigit() else 0
    root = Path(results)
    for path in (Path(text), root / text):
        if (path / "sweep.toml").is_file():
            return Sweep(path.resolve())
        if (path / "manifest.json").is_file() and not back_by:
            return Run(path.resolve())
    experiment, _, rest = text.partition("/")
    if text == "latest":
        found = runs(root, count=back_by + 1)
    elif rest in ("", "latest") and (root / experiment).is_dir():
        found = runs(root, experiment, back_by + 1)
    else:
        of = experiment if rest else None
        found = [run for run in runs(root, of) if run.name.startswith(rest or text) or run.name.endswith(rest or text)]
        if len(found) > 1:
            raise ResultError(f"`{text}` names {len(found)} runs below {root}; use more characters of the name")
    if back_by >= len(found):
        raise ResultError(f"there is no run `{os.fspath(name)}` below {root}; `xrun.runs()` lists all runs")
    return found[back_by]


class _Directory:
    """Directory with records."""

    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    @property
    def name(self) -> str:
        """Name of the directory: the time of the start and the beginning of the fingerprint."""
        return os.path.basename(self.path)

    @property
    def is_active(self) -> bool:
        """``True`` while a process writes into the directory; where locks of other machines are not seen, one of this machine."""
        try:
            with _open(os.path.join(self.path, "run.lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (OSError, DamagedError):
            pass
        return False

    def record(self, name: str) -> dict[str, Any] | None:
        """Returns a JSON record, such as ``manifest.json``, after a check of its checksum; ``None`` if it is missing."""
        path = os.path.join(self.path, name)
        text = _read(path)
        if text is None:
            return None
        record = _parse(text, path)
        at = text.rfind(b",", 0, text.rfind(b'"sha256"'))
        if "sha256" in record and hashlib.sha256(text[:at]).hexdigest() != record["sha256"]:
            raise DamagedError(f"{path}: the checksum does not fit; the file was damaged or edited")
        return record

    def _toml(self, name: str) -> dict[str, Any] | None:
        try:
            tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        except ImportError as error:
            raise ImportError("TOML files need Python 3.11, or tomli: pip install tomli") from error
        path = os.path.join(self.path, name)
        text = _read(path)
        try:
            values: dict[str, Any] | None = None if text is None else tomllib.loads(text.decode())
        except (ValueError, RecursionError) as error:
            raise DamagedError(f"{path}: no TOML: {error}") from error
        return values


class Run(_Directory):
    """Results of a run. Fields of files that do not exist, or do not exist yet, are ``None`` or have no rows."""

    @property
    def experiment(self) -> str:
        """Name of the experiment, by the directory."""
        above = self.path.split(os.sep)[:-1]
        if above[-1:] == ["trials"]:
            above = above[:-3]
        elif above[-1:] == ["reproductions"]:
            above = above[:-1]
        return above[-1] if above else ""

    @property
    def state(self) -> str:
        """``running``, ``killed`` if no process has written its end, or the outcome, such as ``finished``."""
        if self.summary is not None:
            if "outcome" not in self.summary:
                raise DamagedError(f"{os.path.join(self.path, 'summary.json')}: no outcome")
            return str(self.summary["outcome"])
        return "running" if self.is_active else "killed"

    @cached_property
    def manifest(self) -> dict[str, Any] | None:
        """Program, machine and data of the run."""
        return self.record("manifest.json")

    @property
    def plan(self) -> dict[str, Any] | None:
        """Plan of the memory: every buffer with its cap."""
        return self.record("plan.json")

    @property
    def summary(self) -> dict[str, Any] | None:
        """Summary, written at the end; read again until it exists."""
        if self._summary is None:
            self._summary = self.record("summary.json")
        return self._summary

    _summary: dict[str, Any] | None = None

    @property
    def verdict(self) -> dict[str, Any] | None:
        """Verdict on memory, written at the end. ``xrun verdict RUN`` judges a run without one."""
        return self.record("verdict.json")

    @property
    def config(self) -> dict[str, Any] | None:
        """The experiment with all values, as in ``resolved.toml``; ``None`` for a command of ``xrun watch``."""
        return self._toml("resolved.toml")

    @property
    def metrics(self) -> Rows:
        """Training steps and validations, by ``kind``."""
        return Rows(_flat(line) for line in self.lines("metrics.jsonl"))

    @property
    def memory(self) -> Rows:
        """Samples of memory."""
        return Rows(_flat(line) for line in self.lines("memory.jsonl"))

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Yields the lines of a ``.jsonl`` file one by one. Damaged lines are left out with a warning; an unfinished last line,
        as a killed run leaves it, without one. A warning at the end says how many lines are missing, doubled or out of order."""
        path = os.path.join(self.path, name)
        damaged = 0
        try:
            file = _open(path)
        except FileNotFoundError:
            return
        # First, because a running process only appends.
        check = _LineCheck(*self._written(name))
        with file:
            while text := file.readline(_LINE_BYTES_MAX):
                if len(text) == _LINE_BYTES_MAX and not text.endswith(b"\n"):
                    raise DamagedError(f"{path}: a line has more than {_LINE_BYTES_MAX} bytes")
                try:
                    line = _parse(text, path)
                except DamagedError:
                    damaged += text.endswith(b"\n")
                    check.add(text, None)
                    continue
                at = text.rfind(b',"crc32"')
                if at >= 0 and line.get("crc32") != f"{zlib.crc32(text[:at]):08x}":
                    damaged += 1
                    check.add(text, None)
                    continue
                check.add(text, line)
                line.pop("crc32", None)
                yield line
        if damaged:
            warnings.warn(f"{path}: {damaged} damaged line{'' if damaged == 1 else 's'} left out", stacklevel=2)
        if (what := check.damage(damaged)) is not None:
            warnings.warn(f"{path}: the lines are not those that were written: {what}", stacklevel=2)

    def _written(self, name: str) -> tuple[dict[str, int] | None, bool]:
        """Number and CRC-32 of the lines that were written, and whether these are all: by the summary, or up to a checkpoint."""
        if self.summary is not None:
            return _sum(self.summary, name), True
        checkpoints = os.path.join(self.path, "checkpoints")
        for step in sorted(_directories(checkpoints), reverse=True):
            try:
                state = self.record(os.path.join("checkpoints", step, "state.json"))
            except ResultError:
                continue
            if state is not None:
                return _sum(state, name), False
        return None, False

    @property
    def row(self) -> Row:
        """Row of this run in a table of runs: experiment, name, state, steps, loss, best metric, peak of RSS, verdict."""
        head = None
        try:
            summary = self.summary or {}
            state = self.state
            # The whole record is several times the rest of the row.
            head = _VERDICT.search(_read(os.path.join(self.path, "verdict.json"), _HEAD_BYTES) or b"")
        except ResultError:
            summary, state = {}, "unreadable"
        best = _table(summary.get("best"))
        # As in `xrun ls`: the moving average of the kind with the most steps.
        losses: dict[str, Any] = max(summary.get("losses", ()), key=lambda kind: kind["steps"], default={})
        return {
            "experiment": self.experiment,
            "run": self.name,
            "state": state,
            "steps": summary.get("steps"),
            "loss": losses.get("last"),
            "metric": best.get("metric"),
            "best": best.get("value"),
            "rss_peak": _table(summary.get("memory")).get("rss_peak"),
            "verdict": head[1].decode() if head else None,
            "path": self.path,
        }

    def plot(self) -> Figure:
        """Returns a figure of the loss and of memory; needs matplotlib."""
        from ._plot import plot

        return plot(self)


class _LineCheck:
    """Comparison of the lines of a file with those that were written."""

    def __init__(self, written: dict[str, int] | None, complete: bool) -> None:
        self.written, self.complete = written, complete
        self.lines = self.crc32 = self.doubled = self.out_of_order = 0
        self.before, self.highest = b"", (-1, -1)

    def add(self, text: bytes, line: Row | None) -> None:
        """Adds a line, and its values unless it is damaged."""
        end = self.written["lines"] if self.written is not None and not self.complete else None
        if not text.endswith(b"\n") or self.lines == end:
            return
        self.lines += 1
        self.crc32 = zlib.crc32(text, self.crc32)
        position = self.highest
        if line is not None:
            found: tuple[Any, Any] = (line.get("step", 0), line.get("kind") == "validation")
            if "segment" in line:
                found = (line["segment"], line.get("time_us"))
            if all(isinstance(value, int) for value in found):
                position = found
        if text == self.before:
            self.doubled += 1
        elif position < self.highest:
            self.out_of_order += 1
        self.before, self.highest = text, max(position, self.highest)

    def damage(self, damaged: int) -> str | None:
        """Returns what differs, besides damaged lines; ``None`` if nothing does."""
        if self.written is None or (self.lines, self.crc32) == (self.written["lines"], self.written["crc32"]):
            return None
        if damaged and self.lines == self.written["lines"]:
            return None
        missing = self.written["lines"] - self.lines + (self.doubled if self.complete else 0)
        counts = {"missing": max(missing, 0), "damaged": damaged, "doubled": self.doubled, "out of order": self.out_of_order}
        what = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"of {self.written['lines']}, {what or 'their bytes differ'}"


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _sum(record: dict[str, Any], name: str) -> dict[str, int] | None:
    """Number and CRC-32 of the lines of a file, if the record has both."""
    found = _table(_table(record.get("lines")).get(name.partition(".")[0]))
    return found if all(isinstance(found.get(key), int) for key in ("lines", "crc32")) else None


class Sweep(_Directory):
    """Results of a sweep."""

    @property
    def experiment(self) -> str:
        """Name of the experiment."""
        return os.path.basename(os.path.dirname(os.path.dirname(self.path)))

    @property
    def description(self) -> dict[str, Any] | None:
        """Keys, trials and method."""
        return self._toml("sweep.toml")

    @property
    def table(self) -> Rows:
        """Row of each trial; empty until ``table.json`` is written."""
        table = self.record("table.json") or {}
        keys = table.get("keys", [])
        rows = ((dict(zip(keys, row.get("values", []))), row) for row in table.get("rows", []))
        dropped = ("values", "runs")
        return Rows({**values, **_flat({k: v for k, v in row.items() if k not in dropped})} for values, row in rows)

    @property
    def runs(self) -> list[Run]:
        """All runs, by trial and repeat."""
        trials = os.path.join(self.path, "trials")
        return [Run(os.path.join(trials, name)) for name in sorted(_directories(trials))]


def _recorded(root: Path, experiment: str, newest: str | None) -> list[str] | None:
    """Names of an experiment's runs in the file that the program keeps of very many, if its directory did not change since."""
    try:
        directory = os.open(root / experiment, os.O_RDONLY | os.O_CLOEXEC)
        try:
            changed = os.fstat(directory).st_ctime_ns
        finally:
            os.close(directory)
        head, *names = (_read(os.path.join(root, ".index", experiment)) or b"").decode().split("\n")[:-1] or [""]
    except (OSError, UnicodeDecodeError, DamagedError):
        return None
    is_whole = head == f"1 {changed} {len(names)}" and (newest is None or newest in names)
    return names if is_whole and not any("/" in name for name in names) else None


def _directories(path: PathLike) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _link(path: PathLike) -> str | None:
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def _open(path: str) -> BinaryIO:
    """Opens a regular file. A pipe does not block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedError(f"{path}: no regular file")
    return open(descriptor, "rb")


def _read(path: str, count: int | None = None) -> bytes | None:
    """Bytes of a file, or its first ones; ``None`` if it does not exist."""
    try:
        with _open(path) as file:
            size = os.fstat(file.fileno()).st_size if count is None else count
            if size > _RECORD_BYTES_MAX:
                raise DamagedError(f"{path}: more than {_RECORD_BYTES_MAX} bytes")
            return file.read(size)
    except FileNotFoundError:
        return None


def _parse(text: bytes, path: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: no JSON: {error}") from error
    if not isinstance(record, dict):
        raise DamagedError(f"{path}: no JSON object")
    version = record.get("version", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise ResultError(f"{path}: version {version} is newer than this package reads ({VERSION}); pip install -U xrun")
    return record


def _flat(record: dict[str, Any], prefix: str = "") -> Row:
    if prefix.count(".") > _DEPTH_MAX:
        raise DamagedError(f"fields are nested more than {_DEPTH_MAX} deep")
    row: Row = {}
    for name, value in record.items():
        if isinstance(value, dict):
            row.update(_flat(value, f"{prefix}{name}."))
        else:
            row[prefix + name] = value
    return row
