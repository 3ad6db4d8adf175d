"""Census at the end of a window: which containers have grown by what was born in it, which tensors have a longer graph or are larger than
those before, what no container holds, which lines allocated what lives, and by which names the program holds all that."""

import sys
import time

itertools, operator = load("itertools"), load("_operator")
Entry = tensors.Entry
deque = load("_collections").deque

# Smallest number of bytes of an answer, and of a block that is compared with those before.
BYTES_MIN = 16 << 10
LARGE = 256 << 10
# Number of objects between two looks at the clock.
CLOCK_EVERY = 64
# Largest number of objects, and of new items, that are measured as the contents of one holder; more are estimated from these.
CONTENTS_MAX = 4_000
SAMPLE = 48
# Largest number of answers, and of containers that are measured for them.
HOLDERS_MAX = 3
MEASURED_MAX = 60
# Number of the largest ones that come first.
LARGEST = 3
# Largest number of tensors with a graph that reaches back, and of nodes that are visited to find them.
CHAINS_MAX = 3
CHAIN_NODES_MAX = 40_000
LINES_MAX = 10
# Items of the largest dictionary in whose order new items are looked for.
PAIRS_MAX = 2_000_000
# Length of a container that was not seen before.
UNKNOWN = -1
# Number of blocks of memory that are looked at.
TRACES_MAX = 20_000
# Smallest part of the objects of a line that were born in the second half of a window, for them to accumulate.
ACCUMULATING = 0.6
# Items of a container that is named in a forked process.
MANY = 50_000


class Contents:
    """Objects born in the window that a holder refers to, and their bytes."""

    def __init__(self):
        self.bytes, self.objects, self.graph, self.with_graph = 0, 0, None, 0
        self.view, self.scalar, self.exception = False, False, False
        # Number of roots that were measured.
        self.roots = 0
        self.kinds, self.births = {}, {}

    def add(self, text, size, frames):
        self.bytes += size
        for table, key in ((self.kinds, text), (self.births, frames)):
            entry = table.setdefault(key, [0, 0])
            entry[0] += size
            entry[1] += 1

    def facts(self, scale=1.0):
        """Returns the facts; `scale` is the ratio of all items to those that were measured."""
        ranked = sorted(self.kinds.items(), key=lambda item: -item[1][0])
        if self.graph:
            ranked.sort(key=lambda item: " with graph " not in item[0])
        births = sorted(((key, entry) for key, entry in self.births.items() if key), key=lambda item: -item[1][0])[:3]
        return {
            "bytes": int(scale * self.bytes), "objects": int(scale * self.objects), "contents": ranked[0][0] if ranked else "",
            "graph": self.graph, "with_graph": int(scale * self.with_graph), "view": self.view, "scalar": self.scalar,
            "exception": self.exception,
            "births": [{"bytes": size, "count": count, "frames": list(map(list, frames))} for frames, (size, count) in births],
        }


def measured_size(one, kind):
    """Returns the size of an object; `__sizeof__` of a type of the program would be its code."""
    return sys.getsizeof(one) if kind.__module__ in ("builtins", "collections", "_io", "array") else object.__sizeof__(one)


class Census:
    def __init__(self, deadline, born, kept):
        self.deadline, self.late, self.seen, self.counted = deadline, False, set(), set()
        # Tensors that were born in the window.
        self.born, self.kept = born, kept
        self.readers = tensors.Readers()

    def take(self, frames, blocks):
        """Returns the holders of what was born in the window, the most important first."""
        self.part = window.paths
        self.paths = self.part.Paths(frames)
        self.before, self.longer, self.longest = dict(zip(window.ids, window.lengths)), [], []
        # Before the containers are seen: where one has ended, one of the agent may have its address.
        self.paths.ignore(self.before, self.born.tracked, self.seen, self.counted, self.kept, self.longer, self.longest, frames)
        self.paths.ignore(window.middle, window.middle_tensors)
        self.tensors_now = tensors.census(take(self.compare, self.paths.untracked))
        found = self.containers() + self.chains() + self.replaced() + blocks + self.threads(frames)
        found += self.unheld()
        found = [entry for entry in found if entry.fact["kind"] in ("graph", "replaced") or entry.fact["bytes"] >= BYTES_MIN or entry.fact["graph"]]
        found.sort(key=lambda entry: (-(entry.fact["kind"] == "graph"), -bool(entry.fact["graph"]), -entry.fact["bytes"]))
        # The largest first, whatever they hold.
        largest = set(map(id, sorted(found, key=lambda entry: -entry.fact["bytes"])[:LARGEST]))
        found.sort(key=lambda entry: id(entry) not in largest)
        found = found[:HOLDERS_MAX + CHAINS_MAX] + (self.many() if window.forked else [])
        holders = []
        self.paths.ignore(found)
        for entry in found:
            one, facts = entry.one, entry.fact
            facts["holder"] = None if one is None else self.paths.find(one, lambda: time.thread_time() > self.deadline)
            facts["type"] = None if one is None else sources.type_name(type(one))
            holders.append(facts)
        if self.late:
            window.notes.append("the census reached its limit on time")
        return holders

    def clear(self):
        """Drops all references to objects of the program, also those in reference cycles of the census."""
        for name in ("paths", "born"):
            if hasattr(self, name):
                getattr(self, name).__dict__.clear()
        self.__dict__.clear()

    def is_late(self):
        self.late = self.late or time.thread_time() > self.deadline
        return self.late

    def contents(self, roots):
        """Measures objects, and those that they refer to, as far as they were born in the window."""
        contents, stack, seen, new = Contents(), list(roots), set(), set(map(id, roots))
        while stack and (contents.objects < CONTENTS_MAX or not contents.roots):
            one = stack.pop()
            key = id(one)
            # All that the root before refers to was measured.
            contents.roots += key in new
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
            self.counted.add(key)
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
        """Returns whether an object may have been born in the window without a traceback: one that the collector does not track, or a tuple,
        list or dictionary, as Python keeps the memory of ended ones for new ones."""
        if kind in (list, dict, set):
            return self.before.get(id(one), UNKNOWN) != len(one)
        return kind is tuple or not gc.is_tracked(one)

    def new_items(self, one, base, grown):
        """Returns the newest items of a container, as many as it has grown by, that were born in the window."""
        if base is dict:
            items = list(dict.values(one))[-grown:] + list(dict.keys(one))[-grown:] if len(one) < PAIRS_MAX else []
        elif base is set:
            items = list(itertools.islice(set.__iter__(one), grown))
        else:
            items = list(base.__getitem__(one, slice(-grown, None)) if base is list else itertools.islice(deque.__reversed__(one), grown))
        return [item for item in items if self.born.frames(item) is not None or self.may_be_new(item, type(item))]

    def compare(self, base, some):
        """Notes which containers have more items than at the start, and those with many."""
        lengths = list(map(base.__len__, some))
        before = list(map(self.before.get, map(id, some), itertools.repeat(UNKNOWN)))
        self.longer += itertools.compress(zip(some, itertools.repeat(base), before, lengths), map(operator.gt, lengths, before))
        if window.forked:
            many = ((length, one) for length, one in zip(lengths, some) if length >= MANY and type(one) in (list, dict, set))
            self.longest += (entry for entry in many if id(entry[1]) not in self.paths.own)

    def grown(self):
        """Yields the containers with more items than at the start: `(container, before, after, new items)`."""
        for one, base, then, now in self.longer:
            if self.is_late():
                return
            is_born = self.born.traces and self.born.frames(one) is not None
            if id(one) in self.paths.own:
                continue
            if then != UNKNOWN and not is_born:
                new = self.new_items(one, base, now - then)
                if new:
                    yield one, then, now, new
            elif now >= 10 and base is list and is_born:
                # A copy with one more item that has replaced the list before.
                new = [item for item in list.__iter__(one) if self.born.frames(item) is not None]
                if 0 < 4 * len(new) < now:
                    yield one, None, now, new

    def containers(self):
        # A dictionary that several objects refer to may be there more than once.
        found = {id(answer[0]): answer for answer in self.grown()}
        found = sorted(found.values(), key=lambda answer: -len(answer[3]))[:MEASURED_MAX]
        answers = []
        for one, before, after, new in found:
            sample = new[::len(new) // SAMPLE + 1]
            contents = self.contents(sample)
            facts = contents.facts(len(new) / max(1, contents.roots))
            answers.append(Entry(one, {"kind": "container", "before": before, "after": after, **facts}))
        # What is new in one that has grown is none that has grown itself.
        return [entry for entry in answers if id(entry.one) not in self.counted]

    def chains(self):
        """Returns tensors born in the window whose graph reaches back to before it: a state that is carried from step to step."""
        before, found, visited = window.tensors_at_start["newest"], [], 0
        for entry in self.kept:
            one, fact = entry.one, entry.fact
            if fact.graph is None or not before or visited > CHAIN_NODES_MAX or self.is_late():
                continue
            node = self.readers.of(type(one)).graph(one)
            carried, nodes = tensors.reaches(node, before)
            visited += nodes
            if carried:
                found.append((tensors.sequence(node), entry))
        # The newest first: older ones may be what the graph has saved.
        found.sort(key=lambda entry: -entry[0])
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
            if fact.bytes < LARGE or before.get(fact.bytes):
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
        """Returns tensors born in the window that none of the answers holds, by where they were born, if they accumulate: those of the current
        step are as many in the middle of the window."""
        answers = []
        for key, (size, count, group) in by_line([one for one in self.kept if id(one.one) not in self.seen], self.born).items():
            before, before_count = window.middle_tensors.get(key, (0, 0))
            if count >= 4 and min(2 * (size - before), size) >= BYTES_MIN and 0 < 2 * before_count < 2 * count - ACCUMULATING * count:
                # Of the middle: the newest ones may belong to the current step.
                facts = self.contents(group).facts()
                facts["bytes"] = min(2 * (size - before), size)
                answers.append(Entry(group[len(group) // 2], {"kind": "objects", "before": None, "after": count, **facts}))
        return answers

    def many(self):
        """Returns the largest containers, which a forked process copies page by page when it reads them."""
        self.longest.sort(key=lambda entry: -entry[0])
        return [Entry(one, {"kind": "copy_on_write", "before": count, "after": count, **Contents().facts()}) for count, one in self.longest[:2]]


def births_among(objects):
    """Returns those of these objects that were born in the window."""
    return part("births", tracemalloc=tracemalloc, sources=sources, traces=window.traces, native=native).Born(objects)


def tensors_among(objects, born):
    readers = tensors.Readers()
    readers = {kind: readers.of(kind) for kind in readers.among(set(map(type, objects)))}
    found = itertools.compress(objects, map(readers.__contains__, map(type, objects)))
    return [Entry(one, readers[type(one)].fact(one)) for one in found if born.frames(one) is not None]


def by_line(entries, born):
    """Returns bytes, number and tensors by the line that created them."""
    lines = {}
    for entry in entries:
        storages, group = lines.setdefault(born.frames(entry.one), ({}, []))
        storages[entry.fact.storage] = entry.fact.bytes
        group.append(entry.one)
    return {key: (sum(storages.values()), len(group), group) for key, (storages, group) in lines.items()}


def tensors_by_line(objects):
    """Returns bytes and number of those tensors among objects that were born in the window so far, by line."""
    born = births_among(objects)
    return {key: (size, count) for key, (size, count, _) in by_line(tensors_among(objects, born), born).items()}


def lines():
    """Returns the bytes, number and largest block of all blocks that live, by line of the program."""
    stacks, lines = {}, {}
    traces = tracemalloc._get_traces() if window.traces else []
    # All large blocks, and a sample of the others: each object that this loop allocates is traced, too.
    is_large = list(map(LARGE.__le__, map(operator.itemgetter(1), traces)))
    every = len(traces) // TRACES_MAX + 1
    small = itertools.compress(traces[::every], map(operator.not_, is_large[::every]))
    for some, weight in ((itertools.compress(traces, is_large), 1), (small, every)):
        for trace in some:
            # Blocks of one stack have the same tuple.
            stack = stacks.get(id(trace[2]))
            if stack is None:
                stack = stacks[id(trace[2])] = [trace[2], 0, 0, 0]
            size = trace[1]
            stack[1] += weight * size
            stack[2] += weight
            if size > stack[3]:
                stack[3] = size
    for frames, size, count, largest in stacks.values():
        if not sources.is_own(frames):
            line = lines.setdefault(sources.user_frames(frames), [0, 0, 0])
            line[:] = line[0] + size, line[1] + count, max(largest, line[2])
    return lines


def accumulated(now):
    """Returns the lines whose blocks accumulate, and those whose largest block has grown since the middle of the window."""
    rows, blocks = [], []
    for key, (size, count, largest) in now.items():
        before, before_count, largest_before = window.middle.get(key, (0, 0, 0))
        frames = list(map(list, key))
        grown = min(size, 2 * (size - before))
        if grown > 0 and count > before_count:
            rows.append({"bytes": grown, "count": count, "frames": frames})
        if largest >= LARGE and 0 < largest_before < largest < 2 * largest_before:
            births = [{"bytes": largest, "count": 1, "frames": frames[:1]}]
            facts = {**Contents().facts(), "contents": "a block of memory", "births": births, "bytes": largest - largest_before}
            blocks.append(Entry(None, {"kind": "replaced", "before": largest_before, "after": largest, **facts}))
    rows.sort(key=lambda row: -row["bytes"])
    return rows[:LINES_MAX], blocks


def answer(frames, objects, seconds):
    # First, and without `tracemalloc` from then on, as the census allocates objects of its own.
    now = lines()
    born = births_among(objects)
    kept = tensors_among(objects, born)
    del objects
    window.stop_tracing()
    rows, blocks = accumulated(now)
    # Not from the beginning: what there is to look at depends on the time of `tracemalloc`.
    census = Census(time.thread_time() + seconds, born, kept)
    del born, kept
    try:
        found = census.take(frames, blocks)
        start, end, late = window.tensors_at_start, census.tensors_now, census.late
    finally:
        census.clear()
    counts = ("count", "bytes", "with_graph")
    return {
        "holders": found, "lines": rows, "traced_growth": sum(size for size, _, _ in now.values()), "threads": [len(window.threads), len(frames)],
        "tensors": {"start": {key: start[key] for key in counts}, "end": {key: end[key] for key in counts}}, "late": late,
    }
