"""Results read from Python."""

import json
import os
import shutil
from pathlib import Path

import pytest
import xrun


def test_runs_are_listed_newest_first(results: Path) -> None:
    runs = xrun.runs(results)
    assert [run.experiment for run in runs] == ["small", "small"]
    assert runs[0].name == (results / "small" / "latest").resolve().name
    assert [run.state for run in runs] == ["finished", "finished"]
    assert xrun.runs(results, "other") == []
    row = runs[0].row
    assert (row["steps"], row["metric"], row["verdict"]) == (40, "score", "inconclusive")


def test_names_are_taken_from_the_index_until_the_directory_changes(tmp_path: Path) -> None:
    one, other = "2026-11-20T10-00-00_aaaaaa", "2026-11-21T10-00-00_bbbbbb"
    experiment, index = tmp_path / "many", tmp_path / ".index"
    (experiment / one).mkdir(parents=True)
    index.mkdir()
    for changed, expected in [(experiment.stat().st_ctime_ns, other), (1, one)]:
        (index / "many").write_text(f"1 {changed} 1\n{other}\n")
        assert [run.name for run in xrun.runs(tmp_path)] == [expected]


@pytest.mark.parametrize("name", ["small", "small/latest", "latest"])
def test_the_newest_run_has_several_names(results: Path, name: str) -> None:
    run = xrun.load(name, results)
    assert isinstance(run, xrun.Run)
    assert run.name == xrun.runs(results)[0].name
    assert xrun.load(run.path).name == run.name
    assert xrun.load(run.name[-6:], results).name == run.name
    assert xrun.load("small~1", results).name == xrun.runs(results)[1].name


def test_a_name_without_a_run_is_refused(results: Path) -> None:
    for name in ("nope", "small~2", "small/nope"):
        with pytest.raises(xrun.ResultError, match="no run"):
            xrun.load(name, results)


def test_records_and_rows_have_the_fields_of_the_files(results: Path) -> None:
    run = xrun.load("small", results)
    assert isinstance(run, xrun.Run)
    assert run.config is not None and run.config["training"]["epochs"] == 2
    assert run.plan is not None and run.plan["steps"] == 40
    assert run.verdict is not None and run.verdict["axis"] == "steps"
    train = run.metrics.where(kind="train")
    assert [row["step"] for row in train] == list(range(1, 41))
    assert run.summary is not None and train[-1]["loss"] == run.summary["loss_last"]
    assert len(train.columns()["loss"]) == 40
    assert max(row["host.heap"] for row in run.memory) > 0


def test_results_of_a_killed_run_are_read(results: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    copy = tmp_path / "small" / "copy"
    shutil.copytree(xrun.load("small", results), copy)
    for name in ("summary.json", "verdict.json"):
        (copy / name).unlink()
    # A line that a checkpoint covers is not cut by a kill.
    shutil.rmtree(copy / "checkpoints", ignore_errors=True)
    whole = (copy / "metrics.jsonl").read_bytes()
    (copy / "metrics.jsonl").write_bytes(whole[:-9])
    run = xrun.Run(copy)
    assert (run.state, run.verdict, run.summary) == ("killed", None, None)
    assert len(run.metrics) == len(whole.splitlines()) - 1
    assert not recwarn.list
    assert run.row["state"] == "killed"


def test_damage_is_found_by_checksums(results: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(xrun.load("small", results), copy)
    run = xrun.Run(copy)
    count = len(run.memory)
    text = (copy / "memory.jsonl").read_text().splitlines(keepends=True)
    text[3] = text[3].replace('"heap":', '"heap":1', 1)
    (copy / "memory.jsonl").write_text("".join(text))
    with pytest.warns(UserWarning, match="1 damaged line"):
        assert len(run.memory) == count - 1
    summary = (copy / "summary.json").read_text()
    (copy / "summary.json").write_text(summary.replace('"steps": 40', '"steps": 41'))
    with pytest.raises(xrun.DamagedError, match="summary.json"):
        run.record("summary.json")
    assert xrun.Run(copy).row["state"] == "unreadable"
    (copy / "plan.json").write_text('{"version": 2}')
    with pytest.raises(xrun.ResultError, match="version 2"):
        run.record("plan.json")


@pytest.mark.parametrize("name", ["metrics.jsonl", "memory.jsonl"])
def test_missing_doubled_and_swapped_lines_are_counted(results: Path, tmp_path: Path, name: str) -> None:
    whole = (Path(xrun.load("small", results).path) / name).read_bytes().splitlines(keepends=True)
    changed = {
        f"of {len(whole)}, 3 missing": whole[:5] + whole[8:],
        f"of {len(whole)}, {len(whole)} missing": [],
        f"of {len(whole)}, 1 doubled": [*whole[:5], whole[4], *whole[5:]],
        f"of {len(whole)}, 1 out of order": [*whole[:5], whole[6], whole[5], *whole[7:]],
    }
    copy = tmp_path / "copy"
    shutil.copytree(xrun.load("small", results), copy)
    for message, lines in changed.items():
        (copy / name).write_bytes(b"".join(lines))
        with pytest.warns(UserWarning, match=message):
            assert len(list(xrun.Run(copy).lines(name))) == len(lines)


def test_frames_and_figures_need_their_packages(results: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    run = xrun.load("small", results)
    assert isinstance(run, xrun.Run)
    frame = run.metrics.frame()
    assert len(frame[frame.kind == "train"]) == 40
    figure = run.plot()
    labels = [line.get_label() for axes in figure.axes for line in axes.lines]
    assert {"dummy", "RSS", "heap in use"} <= set(labels)


def test_rows_are_those_of_the_schema(results: Path) -> None:
    schema = xrun.schema("summary")
    summary = xrun.runs(results)[0].summary
    assert summary is not None
    assert set(schema["required"]) <= set(summary) <= {*schema["properties"], "sha256"}
    assert json.dumps(summary)


_RECORDS = ("manifest.json", "summary.json", "verdict.json", "resolved.toml", "metrics.jsonl", "memory.jsonl", "run.lock")


@pytest.mark.parametrize("name", _RECORDS)
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "deep", "endless"])
def test_what_is_no_record_is_refused_and_holds_nothing_up(results: Path, tmp_path: Path, name: str, kind: str) -> None:
    copy = tmp_path / "results" / "small" / xrun.load("small", results).name
    shutil.copytree(xrun.load("small", results), copy)
    path = copy / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "deep":
        path.write_text(("a = " if name.endswith("toml") else "") + "[" * 200_000)
    elif kind == "endless":
        with path.open("wb") as file:
            file.truncate(100 * 1024 * 1024)
    else:
        path.symlink_to(kind)
    run = xrun.Run(copy)
    assert len(xrun.runs(tmp_path / "results")) == 1
    if name == "run.lock":
        (copy / "summary.json").unlink()
        assert run.state == "killed"
    elif name.endswith(".jsonl"):
        if kind == "deep":
            # An unfinished last line.
            assert list(run.lines(name)) == []
        else:
            with pytest.raises(xrun.DamagedError, match=name):
                list(run.lines(name))
    else:
        read = (lambda: run.config) if name.endswith("toml") else (lambda: run.record(name))
        with pytest.raises(xrun.DamagedError, match=name):
            read()
        assert run.row["run"] == copy.name


def test_values_of_other_types_in_a_record_of_another_tool_raise_no_bare_error(results: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(xrun.load("small", results), copy)
    (copy / "memory.jsonl").write_text('{"segment": [], "time_us": 1}\n{"segment": 0}\n{"step": "x"}\n')
    for summary in [{"lines": [], "best": 1, "memory": 2}, {"lines": {"memory": {"lines": "x"}}}, {"lines": {"memory": 1}}]:
        (copy / "summary.json").write_text(json.dumps({"outcome": "finished", **summary}))
        run = xrun.Run(copy)
        assert len(run.memory) == 3 and run.row["state"] == "finished", summary
    (copy / "summary.json").write_text("{}")
    with pytest.raises(xrun.DamagedError, match="summary.json"):
        _ = xrun.Run(copy).state
    assert xrun.Run(copy).row["state"] == "unreadable"


def test_the_newest_run_is_the_one_of_the_link_also_after_a_clock_that_was_ahead(results: Path, tmp_path: Path) -> None:
    source = xrun.load("small", results)
    ahead, now = "2999-01-01T00-00-00_aaaaaa", "2026-01-01T00-00-00_bbbbbb"
    for name in (ahead, now):
        shutil.copytree(source, tmp_path / "small" / name)
    (tmp_path / "small" / "latest").symlink_to(now)
    assert [run.name for run in xrun.runs(tmp_path)] == [now, ahead]
    assert [xrun.load(name, tmp_path).name for name in ("latest", "small/latest", "small~1")] == [now, now, ahead]
