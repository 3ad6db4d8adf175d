"""Figure of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ._results import Row, Rows, Run

#: Series of memory that are drawn, with their labels.
_MEMORY = {"host.rss": "RSS", "host.heap": "heap in use", "device.in_use": "device memory in use"}
#: Owners that are drawn: those with the highest peaks.
_OWNERS_MAX = 5
_MIB = 1024.0 * 1024.0


def plot(run: Run) -> Figure:
    """Returns a figure of the loss and of memory by step."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("`plot` needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(8.0, 6.0), layout="constrained")
    losses, memory = figure.subplots(2, 1, sharex=True)
    train = run.metrics.where(kind="train")
    for kind in dict.fromkeys(row["batch"] for row in train):
        _line(losses, train.where(batch=kind), "loss", str(kind), 1.0)
    losses.set_ylabel("loss")
    samples = run.memory
    for name, label in _MEMORY.items():
        _line(memory, samples, name, label, _MIB)
    owners: dict[str, float] = {}
    for row in samples:
        for name, value in row.items():
            if name.startswith("owners.") and value is not None:
                owners[name] = max(owners.get(name, 0.0), value)
    for name in sorted(owners, key=lambda name: -owners[name])[:_OWNERS_MAX]:
        _line(memory, samples, name, name[len("owners.") :], _MIB, linestyle=":")
    memory.set_ylabel("memory [MiB]")
    memory.set_xlabel("step")
    for axes in (losses, memory):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="best", fontsize="small")
    verdict = run.verdict
    figure.suptitle(f"{run.experiment}/{run.name}" + (f": {verdict['verdict']}" if verdict else ""))
    return figure


def _line(axes: Any, rows: Rows | list[Row], name: str, label: str, unit: float, **style: Any) -> None:
    points = [(row["step"], row[name] / unit) for row in rows if row.get(name) is not None]
    if points:
        axes.plot(*zip(*points), label=label, linewidth=1.0, **style)
