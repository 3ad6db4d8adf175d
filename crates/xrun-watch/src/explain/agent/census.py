"""Census at the end of a window: which containers have grown by what was born in it, which tensors have a longer graph or are larger than
those before, what no container holds, which lines allocated what lives, and by which names the program holds all that."""

import sys
import time

itertools = load("itertools")
Entry = tensors.Entry
deque = load("_collections").deque

# Smallest number of bytes of an answer, and of a block that is compared with those before.
BYTES_MIN = 16 << 10
LARGE = 256 << 10
# Number of objects between two looks at the clock.
CLOCK_EVERY = 512
# Largest number of objects that are measured as the contents of one holder.
CONTENTS_MAX = 50_000
# Largest number of answers, and of containers that are measured for them.
HOLDERS_MAX = 6
MEASURED_MAX = 24
# Largest number of tensors with a graph that reaches back, and of nodes that are visited to find them.
CHAINS_MAX = 4
CHAIN_NODES_MAX = 40_000
LINES_MAX = 10
# Items of the largest dictionary in whose order new items are looked for.
PAIRS_MAX = 2_000_000
# Items of a container that is named in a forked process.
MANY = 50_000


class Contents:
    """Objects born in the window that a holder refers to, and their bytes."""

    def __init__(self):
        self.bytes, self.objects, self.graph, self.with_graph = 0, 0, None, 0
        self.view, self.scalar, self.exception = False, False, False
        self.kinds, self.births = {}, {}

    def add(self, text, size, frames):
        self.bytes += size
        for table, key in ((self.kinds, text), (self.births, sources.user_frames(frames))):
            entry = table.setdefault(key, [0, 0])
            entry[0] += size
            entry[1] += 1

    def facts(self):
        ranked = sorted(self.kinds.items(), key=lambda item: -item[1][0])
        if self.graph:
            ranked.sort(key=lambda item: " with graph " not in item[0])
        births = sorted(((key, entry) for key, entry in self.births.items() if key), key=lambda item: -item[1][0])[:3]
        return {
            "bytes": self.bytes, "objects": self.objects, "contents": ranked[0][0] if ranked else "", "graph": self.graph,
            "with_graph": self.with_graph, "view": self.view, "scalar": self.scalar, "exception": self.exception,
            "births": [{"bytes": size, "count": count, "frames": list(map(list, frames))} for frames, (size, count) in births],
        }


def measured_size(one, kind):
    """Returns the size of an object; `__sizeof__` of a type of the program would be its code."""
    return sys.getsizeof(one) if kind.__module__ in ("builtins", "collections", "_io", "array") else object.__sizeof__(one)


class Census:
    def __init__(self, deadline):
        self.deadline, self.late, self.seen, self.kept = deadline, False, set(), []
        self.objects = window.tracked_objects()
        self.readers = tensors.Readers()
        self.tensors_now = tensors.census(self.objects, self.kept)
        # Items of the containers that there were at the start.
        self.before = window.lengths

    def take(self, frames, blocks):
        """Returns the holders of what was born in the window, the most important first."""
        births = part("births", tracemalloc=tracemalloc, gc=gc, sources=sources, traces=window.traces, before=window.managed)
        self.born = births.Born(self.objects)
        self.part = part("paths", gc=gc, sources=sources, Entry=tensors.Entry, is_late=self.is_late)
        self.paths = self.part.Paths(frames)
        variables = (value for found in self.paths.values for value in found.values())
        self.containers_now = [self.objects, window.untracked_dictionaries(self.objects, variables)]
        self.paths.ignore(self.objects, self.kept, *self.containers_now, self.containers_now, frames)
        found = self.containers() + self.chains() + self.replaced() + blocks + self.threads(frames)
        found += self.unheld()
        found = [entry for entry in found if entry.fact["kind"] in ("graph", "replaced") or entry.fact["bytes"] >= 1024 or entry.fact["graph"]]
        found.sort(key=lambda entry: (-(entry.fact["kind"] == "graph"), -bool(entry.fact["graph"]), -entry.fact["bytes"]))
        found = found[:HOLDERS_MAX + CHAINS_MAX] + (self.many() if window.forked else [])
        holders = []
        self.paths.ignore(found)
        for entry in found:
            one, facts = entry.one, entry.fact
            facts["holder"] = None if one is None else self.paths.find(one)
            facts["type"] = None if one is None else sources.type_name(type(one))
            holders.append(facts)
        if self.late:
            window.notes.append("the census reached its limit on time")
        return holders

    def clear(self):
        """Drops all references to objects of the program, also those in reference cycles of the census."""
        tensors_now = self.tensors_now
        for name in ("paths", "part", "born"):
            if hasattr(self, name):
                getattr(self, name).__dict__.clear()
        self.__dict__.clear()
        self.tensors_now = tensors_now

    def is_late(self):
        self.late = self.late or time.thread_time() > self.deadline
        return self.late

    def contents(self, roots):
        """Measures objects, and those that they refer to, as far as they were born in the window."""
        contents, stack, seen, new = Contents(), list(roots), set(), set(map(id, roots))
        while stack and contents.objects < CONTENTS_MAX:
            one = stack.pop()
            key = id(one)
            if key in seen:
                continue
            seen.add(key)
            kind = type(one)
            frames = self.born.frames(one)
            if frames is None:
                if key not in new and not self.may_be_new(one, kind):
                    continue
                frames = ()
            contents.objects += 1
            if contents.objects % CLOCK_EVERY == 0 and self.is_late():
                break
            reader = self.readers.of(kind)
            if reader is None:
                contents.add(sources.type_name(kind), measured_size(one, kind), frames)
                contents.exception = contents.exception or issubclass(kind, BaseException)
            else:
                fact = reader.fact(one)
                if fact.graph is not None:
                    contents.graph = contents.graph or fact.graph
                    contents.with_graph += 1
                    contents.scalar = contents.scalar or fact.items == 1
                contents.view = contents.view or fact.view
                contents.add(fact.described(), 0 if fact.storage in seen else fact.bytes, frames)
                seen.add(fact.storage)
            # The collector does not track dictionaries and tuples of numbers and texts.
            if gc.is_tracked(one) or kind in (dict, tuple):
                stack.extend(gc.get_referents(one))
        self.seen |= seen
        return contents

    def may_be_new(self, one, kind):
        """Returns whether an object may have been born in the window without a traceback: Python keeps the memory of ended tuples, lists and
        dictionaries for new ones."""
        return kind is tuple or (kind in (list, dict, set) and id(one) not in self.before)

    def new_items(self, one, kind, then):
        """Returns the items of a container that were born in the window, or stand behind those that it had at the start."""
        items = gc.get_referents(one)
        born = [item for item in items if self.born.frames(item) is not None]
        behind = []
        if issubclass(kind, (list, deque)):
            behind = items[then:]
        elif issubclass(kind, dict) and len(items) < PAIRS_MAX:
            behind = list(dict.values(one))[then:]
        known = set(map(id, born))
        born.extend(item for item in behind if type(item) is tuple and id(item) not in known)
        return born

    def grown(self):
        """Yields the containers with more items than at the start: `(container, before, after, new items)`."""
        before, functions = self.before, {}
        for one in itertools.chain.from_iterable(self.containers_now):
            kind = type(one)
            try:
                function = functions[kind]
            except KeyError:
                function = functions[kind] = window.length_function(kind)
            if function is None or one is self.objects:
                continue
            now = function(one)
            if self.born.frames(one) is None:
                then = before.get(id(one))
                if then is not None and now > then and not self.is_late():
                    new = self.new_items(one, kind, then)
                    if new:
                        yield one, then, now, new
            elif now >= 10 and issubclass(kind, list) and not self.is_late():
                # A copy with one more item that has replaced the list before.
                items = gc.get_referents(one)
                new = [item for item in items if self.born.frames(item) is not None]
                if 0 < 4 * len(new) < len(items):
                    yield one, None, now, new

    def containers(self):
        found = sorted(self.grown(), key=lambda answer: -len(answer[3]))[:MEASURED_MAX]
        answers = []
        for one, before, after, new in found:
            answers.append(Entry(one, {"kind": "container", "before": before, "after": after, **self.contents(new).facts()}))
        return answers

    def chains(self):
        """Returns tensors born in the window whose graph reaches back to before it: a state that is carried from step to step."""
        before, found, visited = window.tensors_at_start["newest"], [], 0
        for entry in self.kept:
            one, fact = entry.one, entry.fact
            if fact.graph is None or not before or self.born.frames(one) is None or visited > CHAIN_NODES_MAX or self.is_late():
                continue
            node = self.readers.of(type(one)).graph(one)
            carried, nodes = tensors.reaches(node, before)
            visited += nodes
            if carried:
                found.append((tensors.sequence(node), entry))
        found.sort(key=lambda entry: entry[0])
        answers = []
        for _, entry in found[:CHAINS_MAX]:
            one, fact = entry.one, entry.fact
            facts = self.contents([one]).facts()
            facts.update(graph=fact.graph, contents=fact.described(), scalar=fact.items == 1)
            answers.append(Entry(one, {"kind": "graph", "before": None, "after": len(found), **facts}))
        return answers

    def replaced(self):
        """Returns tensors that are larger than the ones of which they have taken the place."""
        before, now = window.tensors_at_start["large"], self.tensors_now["large"]
        gone = sorted(size for size in before if before[size] > now.get(size, 0))
        answers = []
        for entry in sorted(self.kept, key=lambda entry: -entry.fact.bytes):
            one, fact = entry.one, entry.fact
            if fact.bytes < LARGE or before.get(fact.bytes) or self.born.frames(one) is None:
                continue
            smaller = [size for size in gone if fact.bytes // 2 < size < fact.bytes]
            if smaller:
                facts = self.contents([one]).facts()
                facts.update(bytes=fact.bytes - smaller[-1], contents=fact.described())
                answers.append(Entry(one, {"kind": "replaced", "before": smaller[-1], "after": fact.bytes, **facts}))
                break
        return answers

    def threads(self, frames):
        """Returns the threads that began in the window, with what their functions hold."""
        held = []
        new = [ident for ident in frames if ident not in window.threads]
        line = None
        for ident in new:
            frame = frames[ident]
            while frame is not None:
                if frame.f_code.co_flags & self.part.OPTIMISED:
                    held.extend(self.part.local_variables(frame).values())
                if line is None and sources.is_user(frame.f_code.co_filename):
                    line = [frame.f_code.co_filename, frame.f_lineno]
                frame = frame.f_back
        if len(new) < 2:
            return []
        facts = self.contents(held).facts()
        return [Entry(None, {"kind": "threads", "before": len(window.threads), "after": len(frames), "line": line, **facts})]

    def unheld(self):
        """Returns tensors born in the window that none of the answers holds, by where they were born."""
        growth = self.tensors_now["bytes"] - window.tensors_at_start["bytes"]
        groups = {}
        for entry in self.kept:
            one, fact = entry.one, entry.fact
            frames = None if id(one) in self.seen else self.born.frames(one)
            if frames is not None:
                groups.setdefault(sources.user_frames(frames), []).append(entry)
        answers = []
        for group in groups.values():
            size = sum({entry.fact.storage: entry.fact.bytes for entry in group}.values())
            if len(group) >= 4 and min(size, growth) >= BYTES_MIN:
                # Of the middle: the newest ones may belong to the current step.
                one = group[len(group) // 2].one
                facts = self.contents([entry.one for entry in group]).facts()
                facts["bytes"] = min(size, growth)
                answers.append(Entry(one, {"kind": "objects", "before": None, "after": len(group), **facts}))
        return answers

    def many(self):
        """Returns the largest containers, which a forked process copies page by page when it reads them."""
        found = []
        for one in self.objects:
            function = window.length_function(type(one)) if type(one) in (list, dict, set) else None
            if function is not None and one is not self.objects and function(one) >= MANY:
                found.append((function(one), one))
        found.sort(key=lambda entry: -entry[0])
        return [Entry(one, {"kind": "copy_on_write", "before": count, "after": count, **Contents().facts()}) for count, one in found[:2]]


def lines():
    """Returns the bytes of all blocks that live, by line of the program, and lines whose largest block has grown."""
    lines, largest = {}, {}
    traces = tracemalloc._get_traces() if window.traces else []
    for _, size, frames, *_ in traces:
        if sources.is_own(frames):
            continue
        key = sources.user_frames(frames)
        entry = lines.setdefault(key, [0, 0])
        entry[0] += size
        entry[1] += 1
        if size >= LARGE:
            largest[key[:1]] = max(size, largest.get(key[:1], 0))
    rows = [
        {"bytes": size, "count": count, "frames": list(map(list, frames))}
        for frames, (size, count) in sorted(lines.items(), key=lambda item: -item[1][0])[:LINES_MAX]
    ]
    blocks = []
    for key, size in largest.items():
        before = window.middle.get(key)
        if before is not None and before < size < 2 * before:
            births = [{"bytes": size, "count": 1, "frames": list(map(list, key))}]
            facts = {**Contents().facts(), "contents": "a block of memory", "births": births, "bytes": size - before}
            blocks.append(Entry(None, {"kind": "replaced", "before": before, "after": size, **facts}))
    return rows, blocks, sum(size for size, _ in lines.values())


def answer(frames, deadline):
    # First, as the census allocates objects of its own.
    rows, blocks, traced = lines()
    census = Census(deadline)
    try:
        found = census.take(frames, blocks)
    finally:
        census.clear()
    start, now = window.tensors_at_start, census.tensors_now
    counts = ("count", "bytes", "with_graph")
    return {
        "holders": found, "lines": rows, "traced_growth": traced, "threads": [len(window.threads), len(frames)],
        "tensors": {"start": {key: start[key] for key in counts}, "end": {key: now[key] for key in counts}},
    }
