"""Reports of a trainer under `xrun watch`."""

import os
import subprocess
import sys
from pathlib import Path

import xrun

TRAINER = """
import time, xrun

class Buffer:
    def __init__(self):
        self.items = []

assert xrun.is_watched()
buffer, losses = xrun.own("replay buffer", Buffer()), xrun.own("losses", [])
for number in range(1, 151):
    print(f"step {1000 + number} loss 9.0")
    buffer.items.append(bytearray(b"x") * (256 * 1024))
    losses.append(float(number))
    xrun.step(number, loss=1 / number, lr=0.1, accuracy=0.5, name="text", broken=float("nan"))
    if number % 50 == 0:
        with xrun.phase("validation"):
            time.sleep(0.02)
    time.sleep(0.02)
"""


def test_the_verdict_names_the_owner_and_the_steps_are_those_reported(watch) -> None:
    run = watch(TRAINER)
    assert run.verdict["verdict"] == "growing", run.verdict["message"]
    assert (run.verdict["owner"], run.verdict["axis"]) == ("replay buffer", "steps")
    assert run.verdict["owner_share"] > 0.8
    train = run.metrics.where(kind="train")
    assert [row["step"] for row in train] == list(range(1, 151))
    assert (train[9]["loss"], train[9]["learning_rate"], train[9]["values.accuracy"]) == (0.1, 0.1, 0.5)
    assert "values.name" not in train[9] and "values.broken" not in train[9]
    phase = run.summary["phases"][0]
    assert (phase["name"], phase["count"]) == ("validation", 3)
    assert 0.02 <= phase["longest"] <= phase["seconds"]
    # The last of the three is at the end, perhaps after the last sample.
    assert sum(row.get("phases_us.validation") or 0 for row in run.memory) >= 40_000
    assert run.memory[-1]["owners.replay buffer"] > 100 * 256 * 1024
    assert run.manifest["watched"]["steps"] == "`xrun.step`"


def test_bounded_owners_are_no_growth(watch) -> None:
    run = watch(TRAINER.replace("    buffer.items.append", "    buffer.items[:] = buffer.items[-9:]\n    buffer.items.append"))
    assert run.verdict["verdict"] in ("bounded", "no_growth_found"), run.verdict["message"]


def test_steps_of_an_option_are_kept(watch) -> None:
    run = watch(TRAINER, "--steps", r"step (?<step>\d+) loss (?<loss>\S+)")
    assert run.metrics[0]["step"] >= 1000
    assert run.verdict["owner"] == "replay buffer"


def test_forked_workers_report_no_owners_of_their_parent(watch) -> None:
    code = """
import os, time, xrun
held = xrun.own("held", bytearray(1 << 20))
for number in range(1, 31):
    if number == 5 and os.fork() == 0:
        xrun.step(1)
        with xrun.phase("work"):
            time.sleep(0.3)
        time.sleep(0.3)
        os._exit(0)
    xrun.step(number)
    time.sleep(0.02)
os.wait()
"""
    run = watch(code)
    held = [row["owners.held"] for row in run.memory if row.get("owners.held")]
    assert held and max(held) < 3 << 19


def test_nothing_happens_without_a_watcher(tmp_path: Path) -> None:
    code = """
import xrun
owner = [1]
assert xrun.own("owner", owner) is owner
xrun.step(1, loss=object())
with xrun.phase("validation"):
    pass
assert not xrun.is_watched()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(xrun.__file__).resolve().parents[1])}
    for path in (None, str(tmp_path / "missing"), str(tmp_path)):
        given = {**environment, "XRUN_REPORTS": path} if path else environment
        subprocess.run([sys.executable, "-c", code], env=given, check=True, timeout=60)


def test_a_trainer_runs_on_without_its_watcher_and_with_a_full_pipe() -> None:
    reader, writer = os.pipe()
    code = """
import xrun, sys
for number in range(1, 20001):
    xrun.step(number, loss=0.5)
print("full", flush=True)
sys.stdin.readline()
xrun.step(1)
assert not xrun.is_watched()
"""
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(xrun.__file__).resolve().parents[1]),
        "XRUN_REPORTS": f"/proc/{os.getpid()}/fd/{writer}",
    }
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "full\n"
    os.close(reader)
    os.close(writer)
    process.communicate("\n", timeout=60)
    assert process.returncode == 0
