"""Fixtures: the program, and results that it has made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

EXPERIMENT = """
[pipeline.dummy]
steps_per_epoch = 20

[training]
epochs = 2
"""


@pytest.fixture(scope="session")
def program() -> str:
    """Path of the program. Without one the test is skipped, except in CI, which builds it first."""
    import xrun

    try:
        return xrun.program()
    except xrun.ProgramError as error:
        if os.environ.get("XRUN_PROGRAM"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def results(program: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with two runs of the experiment `small`."""
    directory = tmp_path_factory.mktemp("session")
    (directory / "small.toml").write_text(EXPERIMENT)
    for seed in (1, 2):
        command = [program, "small.toml", "-s", f"experiment.seed={seed}", "--quiet"]
        subprocess.run(command, cwd=directory, check=True, timeout=120)
    return directory / "results"


@pytest.fixture
def watch(program: str, tmp_path: Path):
    """Function that runs Python code under `xrun watch` and returns its results."""
    import xrun

    def watch(code: str, *options: str, python: str = sys.executable) -> xrun.Run:
        script = tmp_path / "trainer.py"
        script.write_text(code)
        package = Path(xrun.__file__).resolve().parents[1]
        environment = {**os.environ, "PYTHONPATH": str(package)}
        command = [program, "watch", "--every", "20ms", *options, "--", python, str(script)]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, timeout=300, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        found = xrun.load("latest", tmp_path / "results")
        assert isinstance(found, xrun.Run)
        return found

    return watch
