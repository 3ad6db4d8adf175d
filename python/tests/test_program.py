"""Commands of the program as functions."""

import subprocess
import sys
from pathlib import Path

import pytest
import xrun

EXPERIMENT = "[pipeline.dummy]\nsteps_per_epoch = 10\n[training]\nepochs = 1\n"


@pytest.fixture
def directory(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick.toml").write_text(EXPERIMENT)
    return tmp_path


def test_a_run_streams_events_and_returns_its_results(directory: Path) -> None:
    events: list[dict[str, object]] = []
    run = xrun.run("quick.toml", on_event=events.append, training__epochs=2, experiment__description='with "quotes"')
    kinds = [event["event"] for event in events]
    assert kinds[-1] == "ended" and "started" in kinds
    assert (run.state, run.experiment) == ("finished", "quick")
    assert run.summary is not None and run.summary["steps"] == 20
    assert run.config is not None and run.config["experiment"]["description"] == 'with "quotes"'


def test_a_running_experiment_can_be_stopped(directory: Path) -> None:
    process = xrun.start("quick.toml", training__epochs=5000, pipeline__dummy__step_microseconds=1000)
    for event in process:
        if event["event"] == "step":
            process.stop()
            break
    run = process.result()
    assert run.state == "interrupted" and process.exit_code == 8


def test_problems_of_a_file_are_returned_and_raised(directory: Path) -> None:
    assert xrun.check("quick.toml") == []
    problems = xrun.check("quick.toml", training__epochs="many")
    assert [problem["key"] for problem in problems] == ["training.epochs"]
    with pytest.raises(xrun.ProgramError) as raised:
        xrun.run("quick.toml", training__epochs="many")
    assert raised.value.exit_code == 2
    assert [problem["key"] for problem in raised.value.problems] == ["training.epochs"]
    with pytest.raises(xrun.ProgramError):
        xrun.run("nope.toml")


def test_a_sweep_has_a_row_for_each_trial(directory: Path) -> None:
    ended: list[object] = []
    sweep = xrun.sweep("quick.toml", on_event=lambda event: ended.append(event.get("run")), limits__workers=[1, 2])
    assert len([run for run in ended if run]) == 2
    assert sorted(row["limits.workers"] for row in sweep.table) == [1, 2]
    assert [run.state for run in sweep.runs] == ["finished", "finished"]
    assert {run.experiment for run in sweep.runs} == {sweep.experiment} == {"quick"}
    found = xrun.load("quick/sweeps/latest")
    assert isinstance(found, xrun.Sweep) and found.name == sweep.name


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XRUN_PROGRAM", "/nope/xrun")
    with pytest.raises(xrun.ProgramError, match="XRUN_PROGRAM=/nope/xrun"):
        xrun.check("quick.toml")


def test_the_module_is_the_program(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(xrun.__file__).resolve().parents[1]))
    monkeypatch.setenv("XRUN_PROGRAM", program)
    ended = subprocess.run([sys.executable, "-m", "xrun", "--version"], capture_output=True, text=True, timeout=60)
    assert ended.stdout.startswith("xrun ") and ended.returncode == 0
