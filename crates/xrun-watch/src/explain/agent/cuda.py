"""Allocator history of PyTorch's CUDA memory for the window, if the program has initialised CUDA."""

import sys

ENTRIES_MAX = 100_000
LINES_MAX = 10

_records = False


def _memory():
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    # The module's own record: calling CUDA would initialise it.
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return None
    memory = sys.modules.get("torch.cuda.memory") or getattr(cuda, "memory", None)
    return memory if hasattr(memory, "_record_memory_history") else None


def begin():
    global _records
    memory = _memory()
    if memory is None:
        return
    enabled = getattr(getattr(sys.modules.get("torch"), "_C", None), "_cuda_isHistoryEnabled", None)
    if enabled is not None and enabled():
        return
    try:
        memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=ENTRIES_MAX)
        _records = True
    except Exception:  # An older PyTorch.
        _records = False


def end():
    """Returns the bytes of allocations of the window that live at its end, by stack, most bytes first."""
    if not _records:
        return []
    try:
        snapshot = _memory()._snapshot()
    except Exception:
        return []
    live = {}
    for trace in snapshot.get("device_traces", []):
        for event in trace:
            if event["action"] == "alloc":
                live[event["addr"]] = event
            elif event["action"] in ("free_completed", "free_requested"):
                live.pop(event["addr"], None)
    lines = {}
    for event in live.values():
        frames = tuple((frame["filename"], frame["line"]) for frame in event.get("frames", []))
        if not frames:
            continue
        line = lines.setdefault(find_user_frames(frames), [0, 0])
        line[0] += event["size"]
        line[1] += 1
    ranked = sorted(lines.items(), key=lambda item: -item[1][0])[:LINES_MAX]
    return [{"bytes": size, "count": count, "frames": list(map(list, frames))} for frames, (size, count) in ranked]


def stop():
    global _records
    if not _records:
        return
    _records = False
    try:
        _memory()._record_memory_history(enabled=None)
    except Exception:
        pass
