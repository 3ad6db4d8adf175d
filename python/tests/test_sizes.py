"""Bytes of Python objects."""

import gc
import sys
import weakref
from collections import deque
from typing import Any

import pytest
from xrun._sizes import measure
from xrun._watched import _reference


def host(value: Any) -> int:
    return measure([value])[0]["host"]


@pytest.mark.parametrize("container", [list, deque, tuple])
def test_items_of_large_containers_are_estimated_by_a_sample(container: Any) -> None:
    value = container(bytes(1000) for _ in range(20_000))
    exact = sum(sys.getsizeof(item) for item in value)
    assert exact < host(value) < 1.05 * exact + sys.getsizeof(value)


def test_dictionaries_objects_and_cycles_are_followed() -> None:
    class Item:
        __slots__ = ("data", "other")

        def __init__(self) -> None:
            self.data = bytearray(5000)
            self.other = self

    class Holder:
        def __init__(self) -> None:
            self.items = {number: Item() for number in range(1000)}

    assert 5_000_000 < host(Holder()) < 5_600_000


def test_what_is_shared_counts_once() -> None:
    data = bytes(1_000_000)
    assert host([data] * 100_000) < 2_000_000
    sizes = measure([[data], [data]])
    assert sizes[0]["host"] > 1_000_000 > sizes[1]["host"]


def test_arrays_count_by_their_storage() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.ones((1000, 1000))
    assert 8_000_000 <= host(array) < 8_001_000
    assert 8_000_000 <= host([array[number] for number in range(1000)]) < 8_600_000


def test_tensors_count_by_their_storage_and_gradient() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(1000, 1000, bias=False)
    assert 4_000_000 <= host(layer) < 4_050_000
    layer(torch.ones(1, 1000)).sum().backward()
    assert 8_000_000 <= host(layer) < 8_050_000
    tensor = torch.zeros(1000, 1000)
    assert host([tensor[number] for number in range(1000)]) < 4_600_000


def test_objects_that_raise_have_no_size() -> None:
    class Broken:
        @property
        def nbytes(self) -> int:
            raise RuntimeError("gone")

        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
            raise RuntimeError("gone")

        def __sizeof__(self) -> int:
            raise RuntimeError("gone")

    assert host([Broken()]) < 1000


def test_a_very_deep_structure_ends() -> None:
    value: list[Any] = []
    for _ in range(10_000):
        value = [value]
    assert host(value) > 0


def test_references_keep_nothing_alive() -> None:
    class Buffer:
        pass

    buffer = Buffer()
    reference = _reference(buffer)
    assert reference() is buffer
    del buffer
    gc.collect()
    assert reference() is None

    class Token:
        pass

    token = Token()
    freed = weakref.ref(token)
    values = [token]
    reference = _reference(values)
    del token
    assert reference() is values
    del values
    assert reference() is None and freed() is None
