"""Times of the Python package, with the limit of each: `python python/benchmarks/measure.py [PROGRAM]`.

Needs the program. Exits with 1 if a limit is exceeded. Run it on an idle machine.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCES = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCES)}
RUNS = 10_000
STEPS = """
import time, xrun
class Buffer: pass
buffer = xrun.own("buffer", Buffer())
buffer.items = [bytes(1000) for _ in range(100_000)]
count = {count}
begun = time.perf_counter()
for number in range(1, count + 1):
    xrun.step(number, loss=0.5, learning_rate=0.1)
print((time.perf_counter() - begun) / count * 1e6)
"""


def python(code: str, *before: str) -> float:
    """Last number that Python code prints."""
    command = [*before, sys.executable, "-c", code]
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(command, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, check=True)
    return float(ended.stdout.split()[-1])


def listing(program: str) -> tuple[float, float]:
    """Seconds to list many runs, and to read a row of each."""
    sys.path.insert(0, str(SOURCES))
    import xrun

    with tempfile.TemporaryDirectory() as folder:
        experiment = Path(folder, "small.toml")
        experiment.write_text("[pipeline.dummy]\n[training]\nmax_steps = 100\n")
        subprocess.run([program, experiment, "--quiet"], cwd=folder, check=True)
        run = xrun.runs(Path(folder, "results"))[0]
        for number in range(RUNS):
            copy = Path(
                folder, "many", f"experiment{number % 20}", f"2026-01-01T{number // 3600:02}-{number // 60 % 60:02}-{number % 60:02}_abcdef"
            )
            copy.mkdir(parents=True)
            for name in ("manifest.json", "plan.json", "summary.json", "verdict.json", "run.lock"):
                shutil.copy(Path(run.path, name), copy)
        begun = time.perf_counter()
        runs = xrun.runs(Path(folder, "many"))
        listed = time.perf_counter()
        rows = [run.row for run in runs]
        assert len(rows) == RUNS and rows[0]["state"] == "finished"
        return listed - begun, time.perf_counter() - begun


def main() -> int:
    program = sys.argv[1] if len(sys.argv) > 1 else shutil.which("xrun") or "xrun"
    imported = statistics.median(
        python("import time; begun = time.perf_counter(); import xrun; print((time.perf_counter() - begun) * 1e3)") for _ in range(15)
    )
    listed, read = listing(os.path.abspath(program))
    watch = (os.path.abspath(program), "watch", "-q", "--")
    figures = [
        ("import xrun", imported, 30.0, "ms"),
        ("xrun.step, not watched", python(STEPS.format(count=1_000_000)), 2.0, "µs"),
        ("xrun.step, watched, with an owner of 100 MB", python(STEPS.format(count=300_000), *watch), 20.0, "µs"),
        (f"{RUNS} runs listed", listed, 2.0, "s"),
        (f"{RUNS} runs listed with state, metric and verdict", read, 2.0, "s"),
    ]
    for name, value, limit, unit in figures:
        print(f"{name:50} {value:8.2f} {unit:2}  limit {limit:.0f} {unit}{'' if value <= limit else '  EXCEEDED'}")
    return int(any(value > limit for _, value, limit, _ in figures))


if __name__ == "__main__":
    sys.exit(main())
