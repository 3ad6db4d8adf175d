"""Experiments and records against the committed schemas, by an independent validator."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

jsonschema = pytest.importorskip("jsonschema")
tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).resolve().parents[2]
INVALID = """unknown_section unknown_key unknown_kind kind_as_text no_kind two_kinds no_pipeline empty wrong_type_text
wrong_type_boolean wrong_type_table number_with_fraction negative out_of_range huge_seed wrong_unit_of_bytes negative_bytes
time_without_unit name_with_slash unknown_device misspelled_word channels_too_few extends_of_wrong_type everything_at_once"""


def validator(name: str) -> Any:
    """Returns the validator of a committed schema."""
    schema = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text())
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


def experiment(path: Path) -> dict[str, Any]:
    """Returns an experiment file as a table."""
    return tomllib.loads(path.read_text())


def test_every_valid_experiment_is_accepted() -> None:
    """An editor that knows only the schema marks nothing that `xrun check` accepts."""
    accepts = validator("experiment")
    files = [*ROOT.glob("experiments/*.toml"), *ROOT.glob("tests/experiments/valid/*.toml")]
    assert len(files) > 4
    for path in files:
        assert not list(accepts.iter_errors(experiment(path))), path


@pytest.mark.parametrize("name", INVALID.split())
def test_wrong_keys_types_and_ranges_are_refused(name: str) -> None:
    assert not validator("experiment").is_valid(experiment(ROOT / f"tests/experiments/invalid/{name}.toml"))


@pytest.fixture(scope="module")
def xrun(program: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Function that runs xrun in a directory and returns its output; `directory` is an attribute."""
    directory = tmp_path_factory.mktemp("records")

    def run(*arguments: str, code: int = 0) -> str:
        ended = subprocess.run([program, *arguments], cwd=directory, capture_output=True, text=True, timeout=300)
        assert ended.returncode == code, (arguments, ended)
        return ended.stdout

    run.directory = directory  # type: ignore[attr-defined]
    return run


def test_every_record_follows_its_schema(xrun: Any) -> None:
    directory: Path = xrun.directory
    (directory / "trial.toml").write_text("[pipeline.dummy]\n[checkpoint]\nevery_steps = 4\n")
    (directory / "leaking.toml").write_text('[pipeline.dummy]\nsteps_per_epoch = 400\nleak_per_step = "1 MiB"\n[memory]\nprobe = false\n')
    (directory / "swept.toml").write_text("[pipeline.dummy]\nsteps_per_epoch = 6\n")
    xrun("trial.toml", "-q")
    hook = '["sh", "-c", "cat > notified.json"]'
    xrun("trial.toml", "-q", "--name", "notified", "-s", f"hooks.on_end={hook}")
    xrun("reproduce", "trial", "-q")
    xrun("note", "trial", "a note", "--tag", "tag")
    xrun("leaking.toml", "-q", "--force")
    xrun("leaking.toml", "-q", "--force", "--name", "limited", "-s", "limits.host_memory=16 MiB", code=5)
    failing = ["-s", "pipeline.dummy.fail_at_step=3,99", "-s", 'limits.frame_cache="1 MiB","2 MiB"']
    xrun("sweep", "swept.toml", "--method", "zip", "--repeats", "2", *failing, "--jobs", "auto", code=1)
    run, sweep = directory / "results/trial/latest", directory / "results/swept/sweeps/latest"
    reproduction = next((directory / "results/trial/reproductions").glob("2*/reproduction.json"))

    def lines(path: Path) -> list[Any]:
        return [json.loads(line) for line in path.read_text().splitlines()]

    records: dict[str, list[Any]] = {
        "metrics": lines(run / "metrics.jsonl"),
        "memory": lines(run / "memory.jsonl"),
        "loop_state": [json.loads(path.read_text()) for path in run.glob("checkpoints/*/state.json")],
        "allocations": [json.loads((directory / "results/leaking/latest/allocations.json").read_text())],
        "post_mortem": [json.loads((directory / "results/limited/latest/post_mortem.json").read_text())],
        "evaluation": [json.loads(xrun("eval", "trial", "--json", "-q"))],
        "prediction": [json.loads(xrun("predict", "trial", "trial.toml", "nowhere", "--json", "-q", code=1))],
        "hook": [json.loads((directory / "notified.json").read_text())],
        "sweep": [experiment(sweep / "sweep.toml")],
        "sweep_memory": [experiment(sweep / "memory.toml")],
        "processes": lines(sweep / "processes.jsonl"),
        "table": [json.loads((sweep / "table.json").read_text())],
        "reproduction": [json.loads(reproduction.read_text())],
    }
    for name in ("manifest", "plan", "verdict", "summary", "notes", "process"):
        records[name] = [json.loads((run / f"{name}.json").read_text())]
    if sys.version_info >= (3, 14):
        leak = "import time, xrun\nkept = []\nfor step in range(300):\n    kept.append(bytearray(1 << 17))\n"
        leak += "    time.sleep(0.01)\n    xrun.step()\n"
        (directory / "leak.py").write_text(leak)
        xrun("watch", "--name", "explained", "--every", "20ms", "--explain", "--", sys.executable, "leak.py")
        found = list(directory.glob("results/explained/latest/explanation.json"))
        records["explanation"] = [json.loads(path.read_text()) for path in found]
    names = {path.name.removesuffix(".schema.json") for path in (ROOT / "schemas").glob("*.json")}
    assert names - records.keys() <= {"experiment", "explanation"}, "a schema without a record"
    for name, values in records.items():
        assert values, name
        for value in values:
            assert not [error.message for error in validator(name).iter_errors(value)], name
