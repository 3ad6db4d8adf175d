"""Plugin of pytest."""

from pathlib import Path

import pytest
import xrun

TESTS = """
import pytest

kept = []
cache = {}

@pytest.fixture
def size():
    return 3000

@pytest.mark.xrun_bounded(steps=150)
def test_leaks(size):
    kept.append(bytearray(size))

@pytest.mark.xrun_bounded(steps=150)
def test_is_bounded(size):
    cache[len(cache) % 10] = bytearray(100 * size)

@pytest.mark.xrun_bounded(steps=150)
def test_leaks_a_cycle_that_is_collected():
    a = []
    a.append((a, bytearray(10_000)))

@pytest.mark.xrun_bounded(steps=5)
def test_has_too_few_steps():
    pass

def test_is_not_marked():
    assert not kept or len(kept) == 150
"""


def test_growth_fails_a_test_with_an_explanation(program: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    # The same with and without the entry point of an installed package.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(xrun.__file__).resolve().parents[1]))
    monkeypatch.setenv("XRUN_PROGRAM", program)
    file = pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-p", "xrun.pytest_plugin")
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["failed"]) == (3, 2), result.stdout.str()
    text = result.stdout.str()
    assert f"{file.name}:12: +" in text, "the line that leaks is named"
    assert "growing" in text
