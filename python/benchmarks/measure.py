"""Times of the Python package, with the limit of each: `python python/benchmarks/measure.py [PROGRAM]`.

Needs the program. Exits with 1 if the processor time exceeds a limit: on a busy machine the time by the clock says little.
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
begun, worked = time.perf_counter(), time.process_time()
for number in range(1, count + 1):
    xrun.step(number, loss=0.5, learning_rate=0.1)
print((time.perf_counter() - begun) / count * 1e6, (time.process_time() - worked) / count * 1e6)
"""


IMPORT = """
import time
begun, worked = time.perf_counter(), time.process_time()
import xrun
print((time.perf_counter() - begun) * 1e3, (time.process_time() - worked) * 1e3)
"""


def python(code: str, *before: str) -> tuple[float, float]:
    """Time by the clock and processor time that Python code prints."""
    command = [*before, sys.executable, "-c", code]
    with tempfile.TemporaryDirectory() as directory:
        ended = subprocess.run(command, env=ENVIRONMENT, cwd=directory, capture_output=True, text=True, check=True)
    clock, worked = ended.stdout.split()[-2:]
    return float(clock), float(worked)


def listing(program: str) -> list[tuple[float, float]]:
    """Seconds by the clock and of the processor to list many runs, and to list them with a row of each."""
    sys.path.insert(0, str(SOURCES))
    import xrun

    with tempfile.TemporaryDirectory() as directory:
        experiment = Path(directory, "small.toml")
        experiment.write_text("[pipeline.dummy]\n[training]\nmax_steps = 100\n")
        subprocess.run([program, experiment, "--quiet"], cwd=directory, check=True)
        run = xrun.runs(Path(directory, "results"))[0]
        for number in range(RUNS):
            copy = Path(
                directory,
                "many",
                f"experiment{number % 20}",
                f"2026-01-01T{number // 3600:02}-{number // 60 % 60:02}-{number % 60:02}_abcdef",
            )
            copy.mkdir(parents=True)
            for name in ("manifest.json", "plan.json", "summary.json", "verdict.json", "run.lock"):
                shutil.copy(Path(run.path, name), copy)
        begun, worked = time.perf_counter(), time.process_time()
        runs = xrun.runs(Path(directory, "many"))
        listed = time.perf_counter() - begun, time.process_time() - worked
        rows = [run.row for run in runs]
        read = time.perf_counter() - begun, time.process_time() - worked
        assert len(rows) == RUNS and rows[0]["state"] == "finished"
        return [listed, read]


def main() -> int:
    program = sys.argv[1] if len(sys.argv) > 1 else shutil.which("xrun") or "xrun"
    imports = [python(IMPORT) for _ in range(15)]
    imported = statistics.median(clock for clock, _ in imports), statistics.median(worked for _, worked in imports)
    listed, read = listing(os.path.abspath(program))
    watch = (os.path.abspath(program), "watch", "-q", "--")
    figures = [
        ("import xrun", imported, 30.0, "ms"),
        ("xrun.step, not watched", python(STEPS.format(count=1_000_000)), 2.0, "µs"),
        ("xrun.step, watched, with an owner of 100 MB", python(STEPS.format(count=300_000), *watch), 20.0, "µs"),
        (f"{RUNS} runs listed", listed, 2.0, "s"),
        (f"{RUNS} runs listed with state, metric and verdict", read, 2.0, "s"),
    ]
    print(f"{'':50} {'clock':>10} {'processor':>10} {'limit':>10}")
    for name, (clock, worked), limit, unit in figures:
        print(f"{name:50} {clock:7.2f} {unit:2} {worked:7.2f} {unit:2} {limit:7.0f} {unit:2}{'' if worked <= limit else '  EXCEEDED'}")
    return int(any(worked > limit for _, (_, worked), limit, _ in figures))


if __name__ == "__main__":
    sys.exit(main())
