"""Compares training steps in xrun and in PyTorch: the same work on the same cores, in turns.

    cargo build --release
    python benches/pytorch/compare.py                            # all kinds of steps; writes performance.json and docs/performance.md
    python benches/pytorch/compare.py --kinds detection triplet --output FILE
    python benches/pytorch/compare.py --xrun old=PATH new=PATH --no-pytorch --output FILE   # several builds alone, to measure a change
    python benches/pytorch/compare.py --work DIRECTORY --prepare # data, parity and compilations, which need no idle machine
    python benches/pytorch/compare.py --page                     # docs/performance.md again, from performance.json

Each step is timed alone, on inputs that are ready, and in training with data, read by a worker beside it. PyTorch runs as it comes,
eager and compiled (`torch.compile`, after its compilation); further columns are eager PyTorch whose threads sleep while they wait, and on
one thread. Before each turn the machine must be idle. See `twin.py`, `parity.py` and docs/performance.md. Needs PyTorch, NumPy and Pillow,
but for the page.
"""
import argparse
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

from experiments import KINDS, LARGE, ROOT, arguments, refer, run, timed, version

OUTPUT = pathlib.Path(__file__).with_name("performance.json")
# Of `--sizes large --output`, which takes longer and may be of another day.
LARGE_OUTPUT = OUTPUT.with_name("performance_large.json")
PAGE = ROOT / "docs/performance.md"
# Least share of idle processor time before a turn.
IDLE_MIN = 0.9
# Seconds over which it is measured, and tries.
IDLE_SECONDS, IDLE_TRIES = 1.0, 20
SLEEPING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
AS_IT_COMES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_BLOCKTIME"}
MODES = ["alone", "data"]
GEMM = """
import json, time, torch
torch.set_num_threads(2)
a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
def product():
    started = time.perf_counter()
    torch.mm(a, b)
    return time.perf_counter() - started
for _ in range(10):
    product()
print(json.dumps(min(product() for _ in range(40))))
"""


def processor_time():
    """Returns idle and total processor time of the machine so far, in ticks."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def idleness(busy):
    """Returns the share of idle processor time just now and the load; waits a little for it to become idle."""
    for _ in range(1 if busy else IDLE_TRIES):
        before = processor_time()
        time.sleep(IDLE_SECONDS)
        idle, total = (after - first for after, first in zip(processor_time(), before))
        share = idle / max(total, 1)
        if busy or share >= IDLE_MIN:
            return {"idle": share, "load": os.getloadavg()[0]}
    sys.exit(f"the machine is not idle: {share:.0%} of its processor time, at least {IDLE_MIN:.0%} needed; --busy measures anyway")


def twin(kind, size, steps, reference, runs, environment):
    """Runs a twin; returns what it prints."""
    command = [sys.executable, *arguments(kind, size), "--steps", str(steps), "--reference", str(reference), "--runs", *runs]
    return json.loads(run(command, environment)[2].splitlines()[-1])


def turn(program_of, kind, size, steps, cache, reference, first):
    """Runs each program once, xrun `first` or last, PyTorch if there is a reference; returns seconds of steps and memory by name."""
    found = {}

    def xrun():
        for name, program in list(program_of.items())[:: 1 if first else -1]:
            for mode in MODES:
                found[f"{name} {mode}"] = timed(program, kind, size, steps, cache, mode == "alone")

    def pytorch():
        runs = [f"{how} {mode}" for how in ("eager", "compiled") for mode in MODES]
        own = twin(kind, size, steps, reference, runs, {})
        found.update(own.pop("runs"))
        # Further columns have half of the steps.
        sleeping = twin(kind, size, -(-steps // 2), reference, ["eager alone", "eager data", "one thread alone"], SLEEPING)["runs"]
        found.update({name.replace("eager", "sleeping"): measured for name, measured in sleeping.items()})
        found["pytorch"] = own

    for program in ((xrun, pytorch) if first else (pytorch, xrun)) if reference else (xrun,):
        program()
    return found


def parity(program, kind, size, cache):
    """Compares losses with those of xrun; returns the largest relative difference, and what else `parity.py` finds."""
    command = [sys.executable, str(pathlib.Path(__file__).with_name("parity.py")), "--xrun", program, "--kinds", kind]
    command += ["--size", size, "--cache", str(cache), "--steps", "3", "--json"]
    return {key: value for key, value in json.loads(run(command, {})[2].splitlines()[-1]).items() if key not in ("xrun", "pytorch")}


def prepare(program, kind, size, work, compilations):
    """Makes what takes processors and is not timed: data, reference, parity, compilations. Returns cache, reference, parity.

    What is in `work` already is of this program, or made again.
    """
    cache, reference = work / f"{KINDS[kind][0]}-{size}", work / f"reference-{kind}-{size}"
    cache.mkdir(exist_ok=True)
    known, digest = reference / "parity.json", hashlib.sha256(pathlib.Path(program).read_bytes()).hexdigest()
    if not known.exists() or json.loads(known.read_text())["program"] != digest:
        found = parity(program, kind, size, work)
        refer(program, kind, size, cache, reference)
        if compilations:
            twin(kind, size, 1, reference, ["compiled alone"], {})
        known.write_text(json.dumps({"program": digest} | found))
    return cache, reference, json.loads(known.read_text())


def median_and_quartiles(turns):
    """Returns the median over turns of their medians, and the quartiles of all steps."""
    seconds = [one for measured in turns for one in measured["seconds"]]
    low, _, high = statistics.quantiles(seconds, n=4)
    return [statistics.median(statistics.median(measured["seconds"]) for measured in turns), low, high]


def summary(measured):
    """Returns rows of the table from the turns of a kind and size: each mode by column, median and quartiles in seconds."""
    turns, columns = measured["turns"], {}
    for name in turns[0]["runs"]:
        if name == "pytorch":
            continue
        of_name = [one["runs"][name] for one in turns]
        reasons = [one["unavailable"] for one in of_name if "unavailable" in one]
        columns[name] = {"unavailable": reasons[0]} if reasons else median_and_quartiles(of_name)
    return columns


def milliseconds(found):
    if isinstance(found, dict):
        return "not available"
    digits = 1 if found[0] < 0.1 else 0
    median, low, high = (f"{value * 1e3:,.{digits}f}" for value in found)
    return f"{median} ({low} to {high})"


def table(results):
    """Returns a paragraph and a table in Markdown: a row for each kind of step, alone in the first line of a cell, with data in the second."""
    programs, gemm = results["programs"], results["gemm_gflops"]
    steps = [measured for measured in results["steps"] if measured["turns"]]
    turns = [turn for measured in steps for turn in measured["turns"]]
    count = max(len(measured["turns"]) for measured in steps)
    apart = max(measured["parity"]["loss_difference"] for measured in steps)
    text = (
        f"{results['processors']} cores of {results['processor']}, PyTorch {results['torch']}, xrun {results['xrun']}, {results['date']}. "
        f"Before each turn at least {min(turn['idle'] for turn in turns):.0%} of the processor time was idle, at a load of at most "
        f"{max(turn['load'] for turn in turns):.1f}. Milliseconds of a step: median of {count} {'turn' if count == 1 else 'turns'} (quartiles of "
        "all steps); *alone*, and below with data. **Ratio**: the faster of eager and compiled PyTorch to xrun. *Of the product*: the "
        f"operations of the step alone a second, of those of `torch.mm` of 1,024 × 1,024 floats on both cores ({gemm:,.0f} GFLOP/s). Memory: "
        f"peak RSS with data in MiB, of PyTorch without its worker. Losses of the first three steps differ by at most {apart:.0e} of them."
    )
    if results["busy"]:
        text = f"**The machine was busy: these are no benchmarks.** {text}"
    if not results["complete"]:
        text = f"**The measurement was not finished.** {text}"
    others = ["eager", "compiled", "sleeping", "one thread"]
    heads = [*programs, "ratio", "eager", "compiled", "told to sleep", "one thread", "of the product", "memory"]
    rows, reasons = ["| step | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"], []
    for measured in steps:
        columns = summary(measured)
        reasons += [found["unavailable"] for found in columns.values() if isinstance(found, dict)]
        available = [how for how in ("eager", "compiled") if not isinstance(columns[f"{how} alone"], dict)]
        fastest = {mode: min(columns[f"{how} {mode}"][0] for how in available) for mode in MODES}
        both = lambda name: "<br>".join(milliseconds(columns[f"{name} {mode}"]) for mode in MODES if f"{name} {mode}" in columns)
        ratio = lambda name: "<br>".join(f"**{fastest[mode] / columns[f'{name} {mode}'][0]:.2f}**" for mode in MODES)
        cells = [*map(both, programs), " / ".join(map(ratio, programs)), *map(both, others)]
        shares = [measured["parity"]["flops"] / seconds / 1e9 / gemm for seconds in (columns[f"{programs[0]} alone"][0], fastest["alone"])]
        cells.append(f"{shares[0]:.0%}; PyTorch {shares[1]:.0%}")
        peaks = [max(one["runs"][name]["rss"] for one in measured["turns"]) / 2**20 for name in (f"{programs[0]} data", "eager data")]
        cells.append(f"{peaks[0]:,.0f}; PyTorch {peaks[1]:,.0f}")
        rows.append(f"| {measured['kind']}{', large' * (measured['size'] == 'large')} | " + " | ".join(cells) + " |")
    if reasons:
        text += f" Not available: {'; '.join(dict.fromkeys(reasons))}."
    return "\n".join([text, "", *rows])


def builds(results):
    """Returns a line for each kind of step: medians of the builds, and the ratio of the first to each."""
    lines = []
    for measured in results["steps"]:
        columns = summary(measured)
        for mode in MODES:
            of_mode = [columns[f"{name} {mode}"] for name in results["programs"]]
            times = ", ".join(f"{name} {milliseconds(found)}" for name, found in zip(results["programs"], of_mode))
            ratios = " ".join(f"{of_mode[0][0] / found[0]:.2f}" for found in of_mode)
            lines.append(f"{measured['kind']} {measured['size']} {mode}: {times} ms; {ratios}")
    return "\n".join(lines)


def write_results(results, path):
    """Writes the results; a list of numbers is a line."""
    text = json.dumps(results, indent=1)
    path.write_text(re.sub(r"\[[\d\s.,e+-]+\]", lambda found: " ".join(found[0].split()), text) + "\n")


def page():
    """Returns docs/performance.md with the table of the results, or without one if there are none."""
    begin, end = "<!-- `benches/pytorch/compare.py` -->\n", "\n<!-- end -->"
    before, rest = PAGE.read_text().split(begin)
    found = [table(json.loads(file.read_text())) for file in (OUTPUT, LARGE_OUTPUT) if file.exists()]
    own = "".join(f"\n{text}\n" for text in found)
    return f"{before}{begin}{own}{end}{rest.split(end, 1)[1]}"


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xrun", nargs="+", default=[f"xrun={ROOT / 'target/release/xrun'}"], metavar="NAME=PROGRAM")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="timed steps of a run; of large models 3 for each 20")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--sizes", nargs="+", choices=["small", "large"], default=["small", "large"])
    parser.add_argument("--busy", action="store_true", help="measure on a machine that is not idle, and mark the table")
    parser.add_argument("--output", type=pathlib.Path, help="file of results [default: performance.json, and the page]")
    parser.add_argument("--no-pytorch", action="store_true", help="several builds of xrun alone; needs --output")
    parser.add_argument("--work", type=pathlib.Path, help="directory of data and compilations to keep [default: a temporary one]")
    parser.add_argument("--prepare", action="store_true", help="fill the directory alone")
    parser.add_argument("--page", action="store_true", help="write the page from the results alone")
    parser.add_argument("--check", action="store_true", help="fail if the page is not that of the results")
    settings = parser.parse_args()
    if settings.no_pytorch and not settings.output:
        parser.error("--no-pytorch needs --output")
    if settings.check and page() != PAGE.read_text():
        sys.exit(f"{PAGE.name} is not that of {OUTPUT.name}: run benches/pytorch/compare.py --page")
    if settings.page:
        PAGE.write_text(page())
    if settings.check or settings.page:
        return
    for name in () if settings.prepare else AS_IT_COMES:
        os.environ.pop(name, None)
    program_of = dict(program.split("=", 1) for program in settings.xrun)
    kinds = [(kind, size) for size in settings.sizes for kind in settings.kinds if size == "small" or kind in LARGE]
    of_pytorch = lambda code: json.loads(run([sys.executable, "-c", code], {})[2]) if not settings.no_pytorch else None
    first = next(iter(program_of.values()))
    results = {
        "command": ["python", "benches/pytorch/compare.py", *sys.argv[1:]],
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "programs": list(program_of),
        "xrun": version(first),
        "commit": subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip(),
        "torch": of_pytorch("import json, torch; print(json.dumps(torch.__version__))"),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "processor": processor(),
        "busy": settings.busy,
        "complete": False,
    }
    output = settings.output or OUTPUT
    started = time.monotonic()
    with contextlib.ExitStack() as kept:
        work = settings.work or pathlib.Path(kept.enter_context(tempfile.TemporaryDirectory()))
        work.mkdir(parents=True, exist_ok=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(work / "inductor")
        results["steps"], prepared = [], {}
        for kind, size in kinds:
            if settings.no_pytorch:
                cache = work / f"{KINDS[kind][0]}-{size}"
                cache.mkdir(exist_ok=True)
                prepared[kind, size] = (cache, None)
                results["steps"].append({"kind": kind, "size": size, "turns": []})
                continue
            *prepared[kind, size], found = prepare(first, kind, size, work, settings.prepare)
            results["steps"].append({"kind": kind, "size": size, "parity": found, "turns": []})
            print(f"{time.monotonic() - started:6.0f} s  {kind} {size}: losses differ by {found['loss_difference']:.1e}", file=sys.stderr)
        if settings.prepare:
            return
        results["gemm_gflops"] = 0.0
        for size, number in itertools.product(settings.sizes, range(settings.turns)):
            idleness(settings.busy)
            if not settings.no_pytorch:
                results["gemm_gflops"] = max(results["gemm_gflops"], 2 * 1024**3 / of_pytorch(GEMM) / 1e9)
            for measured in (measured for measured in results["steps"] if measured["size"] == size):
                kind = measured["kind"]
                steps = settings.steps if size == "small" else max(settings.steps // 20, 1) * 3
                cache, reference = prepared[kind, size]
                state = idleness(settings.busy)
                found = turn(program_of, kind, size, steps, cache, reference, number % 2 == 0)
                measured["turns"].append(state | {"runs": found})
                results["seconds"] = time.monotonic() - started
                write_results(results, output)
                print(f"{results['seconds']:6.0f} s  turn {number + 1}: {kind} {size}, idle {state['idle']:.0%}", file=sys.stderr)
        results["complete"] = True
        write_results(results, output)
    print(builds(results) if settings.no_pytorch else table(results))
    if not settings.output:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
