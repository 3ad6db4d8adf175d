"""Bytes of Python objects: storage of tensors and arrays, ``sys.getsizeof`` of others, each object once."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import prod
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

#: Cap on the objects that are visited for one owner.
VISITED_MAX = 10_000
#: Items of a container that are visited; its other items count as their mean.
SAMPLED = 256
DEPTH_MAX = 100
#: Cap on the bytes of an array without its storage, which `sys.getsizeof` includes for some.
ARRAY_SHELL_MAX = 256.0
_LEAVES = (int, float, complex, bool, str, bytes, bytearray, range, type(None), type(...))
_NO_DATA = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
_CONTAINERS = (list, tuple, deque, set, frozenset)


def measure(owners: Iterable[Any]) -> list[dict[str, int]]:
    """Returns ``host`` and ``device`` bytes of each owner. What two owners share belongs to the first."""
    walk = _Walk()
    sizes = []
    for owner in owners:
        walk.left = VISITED_MAX
        host, device = walk.size(owner) if owner is not None else (0.0, 0.0)
        sizes.append({"host": int(host), "device": int(device)})
    return sizes


class _Walk:
    """Walk through the objects that owners refer to."""

    def __init__(self) -> None:
        #: Objects that may still be visited for this owner.
        self.left = VISITED_MAX
        self._seen: set[int] = set()
        #: Objects whose ids are in `_seen`; an id may be used again after the object is freed.
        self._alive: list[Any] = []
        #: True if the object of the last call, or its storage, was visited before.
        self._is_shared = False

    def size(self, value: Any, depth: int = 0) -> tuple[float, float]:
        """Returns host and device bytes of an object and of what it refers to."""
        if self.left <= 0 or depth > DEPTH_MAX or isinstance(value, _NO_DATA):
            self._is_shared = False
            return 0.0, 0.0
        if id(value) in self._seen:
            self._is_shared = True
            return 0.0, 0.0
        self.left -= 1
        self._seen.add(id(value))
        self._alive.append(value)
        if isinstance(value, _LEAVES):
            self._is_shared = False
            return _shell(value), 0.0
        found = self._storage(value, depth)
        if found is None:
            found = self._container(value, depth)
            self._is_shared = False
        return found

    def _container(self, value: Any, depth: int) -> tuple[float, float]:
        host, device = _shell(value), 0.0
        for parts, count in _parts(value):
            sampled_host = sampled_device = 0.0
            sampled = shared = 0
            for part in parts:
                if self.left <= 0:
                    break
                part_host, part_device = self.size(part, depth + 1)
                sampled_host += part_host
                sampled_device += part_device
                sampled += 1
                shared += self._is_shared
            # Items that are mostly the same objects, or views of the same arrays, are few.
            scale = count / sampled if sampled > 2 * shared else 1.0
            host += scale * sampled_host
            device += scale * sampled_device
        return host, device

    def _storage(self, value: Any, depth: int) -> tuple[float, float] | None:
        """Host and device bytes of a tensor or an array, its storage counted once; ``None`` for other objects."""
        rest = None
        try:
            if callable(getattr(value, "untyped_storage", None)):
                storage = value.untyped_storage()
                key, size = hash((str(value.device), storage.data_ptr())), storage.nbytes()
                on_host = value.device.type == "cpu"
                rest = value.grad if value.is_leaf else None
            elif isinstance(getattr(value, "nbytes", None), int):
                base = value
                while isinstance(getattr(getattr(base, "base", None), "nbytes", None), int):
                    base = base.base
                self._alive.append(base)
                # The file of a mapped array is no memory of the process.
                key, size = hash(("storage", id(base))), 0 if type(base).__name__ == "memmap" else base.nbytes
                # JAX, CuPy and TensorFlow name their devices.
                device_name = str(getattr(value, "device", "")).lower()
                on_host = not any(name in device_name for name in ("cuda", "gpu", "tpu", "rocm"))
            elif hasattr(value, "shape") and isinstance(getattr(getattr(value, "dtype", None), "size", None), int):
                # Tensors and variables of TensorFlow.
                key, size = hash(("storage", id(value))), value.dtype.size * prod(value.shape)
                on_host = "gpu" not in str(value.device).lower()
            else:
                return None
        except Exception:  # noqa: BLE001 - a property of a foreign object may raise anything; the trainer must not fail by it.
            return 0.0, 0.0
        is_shared = key in self._seen
        self._seen.add(key)
        counted = 0.0 if is_shared else float(size)
        shell = min(_shell(value), ARRAY_SHELL_MAX)
        host, device = (shell + counted, 0.0) if on_host else (shell, counted)
        if rest is not None:
            rest_host, rest_device = self.size(rest, depth + 1)
            host, device = host + rest_host, device + rest_device
        self._is_shared = is_shared
        return host, device


def _shell(value: Any) -> float:
    """Bytes of an object without what it refers to."""
    try:
        return float(sys.getsizeof(value, 64))
    except Exception:  # noqa: BLE001 - as above.
        return 0.0


def _parts(value: Any) -> Iterator[tuple[Iterable[Any], int]]:
    """Items of a container and attributes of an object that are visited, with the number of all of them."""
    try:
        if isinstance(value, dict):
            count = len(value)
            keys = _ends(value, reversed(value), count)
            yield [part for key in list(keys) for part in (key, value.get(key))], 2 * count
        elif isinstance(value, (list, tuple, deque)):
            yield _spread(value), len(value)
        elif isinstance(value, (set, frozenset)):
            yield list(islice(value, SAMPLED)), len(value)
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            yield list(attributes.values()), len(attributes)
        names = [name for kind in type(value).__mro__ for name in _slots(kind)]
        slots = [getattr(value, name) for name in names if hasattr(value, name)]
        if slots:
            yield slots, len(slots)
    except Exception:  # noqa: BLE001 - another thread changes the container, or an attribute raises.
        return


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _ends(forward: Iterable[Any], backward: Iterable[Any], count: int) -> Iterable[Any]:
    """First and last items."""
    if count <= SAMPLED:
        return forward
    return chain(islice(forward, SAMPLED // 2), islice(backward, SAMPLED // 2))


def _spread(value: Any) -> Iterable[Any]:
    """Items at even distances; the first and the last of a deque, whose middle is slow to reach."""
    count = len(value)
    if count <= SAMPLED:
        return list(value)
    if isinstance(value, deque):
        return list(_ends(value, reversed(value), count))
    return [value[at * count // SAMPLED] for at in range(SAMPLED)]
