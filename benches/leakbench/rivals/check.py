"""Compares the rules of this directory with the functions in the tools' wheels, on the tuned set.

    python check.py LEAKBENCH WHEELS [RUNS]

LEAKBENCH is the built benchmark, WHEELS a directory with traceml-ai 0.5.0, stormlog 0.4.3, runmedic 0.1.1 and python-leak-hunter 0.1.1
(`pip download --no-deps`), RUNS those of each habit. Needs numpy and scipy."""

import ast, json, subprocess, sys, tempfile, types, zipfile
from pathlib import Path

binary, wheels, runs = sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "3"
work = Path(tempfile.mkdtemp())
for wheel in wheels.glob("*.whl"):
    zipfile.ZipFile(wheel).extractall(work)
sys.path.insert(0, str(work))


def function(path, name, **names):
    """Function of a module whose imports need frameworks."""
    tree = ast.parse((work / path).read_text())
    found = next(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == name)
    found.returns, found.decorator_list = None, []
    for argument in found.args.args + found.args.kwonlyargs:
        argument.annotation = None
    for one in ast.walk(found):
        if isinstance(one, ast.AnnAssign):
            one.annotation = ast.Name("object", ast.Load())
    module = ast.fix_missing_locations(ast.Module([found], []))
    exec(compile(module, path, "exec"), names)
    return names[name]


from leak_hunter.memory import MemorySample, diagnose
from runmedic.checks import Ctx, check_memory_growth
from runmedic.model import Series
from scipy import stats
from traceml_ai.diagnostics.step_memory.policy import DEFAULT_STEP_MEMORY_THRESHOLDS
from traceml_ai.diagnostics.step_memory.trend import evaluate_step_memory_window_creep

temporal = function("stormlog/analyzer.py", "_analyze_temporal_patterns", stats=stats, PerformanceInsight=lambda **fields: fields)


def answers(steps, memory):
    creep = evaluate_step_memory_window_creep(
        worst_series_bytes=memory, median_series_bytes=memory, steps_used=len(memory), thresholds=DEFAULT_STEP_MEMORY_THRESHOLDS
    )
    at = types.SimpleNamespace
    results = [at(memory_before=at(timestamp=step), memory_after=at(allocated_memory=used)) for step, used in zip(steps, memory)]
    series = Series("memory")
    for step, used in zip(steps, memory):
        series.add(step, used)
    context = Ctx(at(series={"memory": series}, log_lines=[]), {"host_mem": ["memory"]})
    samples = [MemorySample(step / 2, used, None, None, 0, None) for step, used in zip(steps, memory)]
    return {
        "TraceML 0.5.0, confirmed": creep.confirmed,
        "TraceML 0.5.0, early or confirmed": creep.early or creep.confirmed,
        "Stormlog 0.4.3": bool(temporal(None, results)),
        "runmedic 0.1.1": bool(check_memory_growth(context)),
        "python-leak-hunter 0.1.1": diagnose(samples).startswith("RSS grows"),
    }


bench = lambda *words: subprocess.run([binary, "--set", "tuned", *words], check=True, capture_output=True, text=True).stdout
bench("--runs", runs, "--json", str(work / "rows.json"))
rows = json.loads((work / "rows.json").read_text())[0]["rows"]
habits = list(dict.fromkeys(row["habit"] for row in rows))
same, different = 0, []
for row in rows:
    # `--habit` takes a part of a name, and `--csv` the first that has it.
    if next(habit for habit in habits if row["habit"] in habit) != row["habit"]:
        continue
    lines = bench("--habit", row["habit"], "--csv", str(row["number"])).splitlines()[1:]
    points = [line.split(",") for line in lines]
    found = answers([int(point[0]) for point in points], [float(point[1]) for point in points])
    wrong = [name for name, answer in found.items() if answer != row["rivals"][name]]
    different += [f"{row['habit']} {row['number']}: {', '.join(wrong)}"] if wrong else []
    same += not wrong
print(f"{same} of {same + len(different)} series: all five rules agree", *different, sep="\n")
