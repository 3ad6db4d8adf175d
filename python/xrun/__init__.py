"""Results of xrun in Python, and reports of a trainer to ``xrun watch``.

Read results::

    run = xrun.load("stage2/latest")
    run.metrics.frame()             # pandas, where it is installed
    run.verdict["message"]

Start the program::

    run = xrun.run("experiments/dummy.toml", training__max_steps=20)

Report steps, owners and phases of a trainer that ``xrun watch -- python train.py`` runs; elsewhere the three do nothing::

    xrun.own("replay buffer", buffer)
    for number, batch in enumerate(batches, 1):
        loss = train(batch)
        xrun.step(number, loss=loss)
        if number % 100 == 0:
            with xrun.phase("validation"):
                validate()
"""

from __future__ import annotations

from ._watched import is_watched, own, phase, step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._program import Process, ProgramError, check, program, run, schema, start, sweep
    from ._results import DamagedError, ResultError, Rows, Run, Sweep, load, runs

__version__ = "0.1.0"

#: Module of each name that is imported at its first use: `import xrun` is part of the start of every trainer.
_LAZY = {
    **dict.fromkeys(("Process", "ProgramError", "check", "program", "run", "schema", "start", "sweep"), "_program"),
    **dict.fromkeys(("DamagedError", "ResultError", "Rows", "Run", "Sweep", "load", "runs"), "_results"),
    **dict.fromkeys(("huggingface", "keras", "lightning"), ""),
}

__all__ = [
    "DamagedError",
    "Process",
    "ProgramError",
    "ResultError",
    "Rows",
    "Run",
    "Sweep",
    "check",
    "is_watched",
    "load",
    "own",
    "phase",
    "program",
    "run",
    "runs",
    "schema",
    "start",
    "step",
    "sweep",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'xrun' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{module}", __name__), name) if module else import_module(f".{name}", __name__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
