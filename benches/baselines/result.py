"""Result of a baseline: printed, and written beside the script, where docs/experiments.md and its test read it."""

import json
import pathlib
import sys


def of_runs(runs, metric):
    """Last value of a metric of each finished run of xrun."""
    values = []
    for run in runs:
        lines = (json.loads(line) for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines())
        values.append([line["metrics"][metric] for line in lines if line["kind"] == "validation"][-1])
    return values


def write(experiment, metric, xrun, baselines, note):
    """`xrun`: value of the experiment, or None without a run. `baselines`: values by name, in the same unit."""
    script = pathlib.Path(sys.argv[0])
    record = {
        "experiment": experiment,
        "script": f"benches/baselines/{script.name}",
        "metric": metric,
        "xrun": xrun,
        "baselines": baselines,
        "note": note,
    }
    text = json.dumps(record, indent=2) + "\n"
    script.with_suffix(".json").write_text(text)
    print(text, end="")
