"""Facts about tensors and arrays, without calling code of the program. Reads torch, numpy and tensorflow only where they are imported."""

import sys

heapq, itertools = load("_heapq"), load("itertools")

# Largest number of nodes of a graph that are visited.
NODES_MAX = 2000
# Smallest tensor whose size is compared between both ends.
LARGE = 1 << 16
# Numbers of nodes that are leaves are larger.
LEAF = 1 << 62


class Entry:
    """Object with facts about it; a type of the agent, by which a search for referrers recognises it."""

    __slots__ = ("one", "fact")

    def __init__(self, one, fact):
        self.one, self.fact = one, fact


class Fact:
    """Size of a tensor or an array; `storage` identifies its memory, which views share; `text` returns its description."""

    __slots__ = ("storage", "bytes", "text", "graph", "items", "view")

    def __init__(self, storage, size, text, graph=None, items=None, view=False):
        self.storage, self.bytes, self.text, self.graph, self.items, self.view = storage, size, text, graph, items, view

    def described(self):
        return self.text() if self.graph is None else "%s with graph (%s)" % (self.text(), self.graph)


def _shape(shape):
    return "[" + ", ".join(map(str, shape)) + "]"


class Torch:
    def __init__(self, module):
        self.base = module._C.TensorBase if hasattr(module._C, "TensorBase") else module._C._TensorBase
        self.guard = getattr(module._C, "DisableTorchFunctionSubclass", None) or module._C.DisableTorchFunction

    def owns(self, kind):
        return issubclass(kind, self.base)

    def graph(self, tensor):
        with self.guard():
            return self.base.grad_fn.__get__(tensor)

    def fact(self, tensor):
        base = self.base
        with self.guard():
            try:
                storage = base.untyped_storage(tensor)
                key, size = ("torch", storage._cdata), storage.nbytes()
            except Exception:  # A sparse or another tensor without a storage.
                key, size = ("torch", id(tensor)), 0
            shape = tuple(base.shape.__get__(tensor))
            items = 1
            for length in shape:
                items *= length
            dtype, device = base.dtype.__get__(tensor), base.device.__get__(tensor)
            graph = base.grad_fn.__get__(tensor)
            own = items * base.element_size(tensor)
        text = lambda: "Tensor%s %s%s" % (_shape(shape), str(dtype).rpartition(".")[2], "" if device.type == "cpu" else " on %s" % device)
        graph = None if graph is None else type(graph).__name__
        return Fact(key, size, text, graph, items, 0 < 8 * own < size)


class Numpy:
    def __init__(self, module):
        self.array = module.ndarray

    def owns(self, kind):
        return issubclass(kind, self.array)

    def fact(self, one):
        array = self.array
        owner, size = one, array.nbytes.__get__(one)
        own = size
        while True:
            base = array.base.__get__(owner)
            if base is None or not issubclass(type(base), array):
                break
            owner = base
            size = max(size, array.nbytes.__get__(owner))
        shape, dtype = array.shape.__get__(one), array.dtype.__get__(one)
        text = lambda: "array%s %s" % (_shape(shape), dtype)
        return Fact(("numpy", id(owner)), size, text, None, array.size.__get__(one), 0 < 8 * own < size)


class TensorFlow:
    def __init__(self, kind):
        self.kind = kind

    def owns(self, kind):
        return issubclass(kind, self.kind)

    def fact(self, one):
        try:
            items = one._num_elements()
            size, shape = items * one.dtype.size, tuple(one._shape_tuple())
            text = lambda: "tf.Tensor%s %s" % (_shape(shape), one.dtype.name)
        except Exception:  # A tensor of another kind, such as the handle of a variable.
            return Fact(("tensorflow", id(one)), 0, lambda: "tf.Tensor")
        return Fact(("tensorflow", id(one)), size, text, None, items)


class Readers:
    """Readers of the libraries that the program has imported."""

    def __init__(self):
        self.readers = []
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if hasattr(getattr(torch, "_C", None), "_TensorBase") or hasattr(getattr(torch, "_C", None), "TensorBase"):
            self.readers.append(Torch(torch))
        if hasattr(numpy, "ndarray"):
            self.readers.append(Numpy(numpy))
        eager = getattr(sys.modules.get("tensorflow.python.framework.ops"), "EagerTensor", None)
        if isinstance(eager, type):
            self.readers.append(TensorFlow(eager))
        self.known = {}

    def of(self, kind):
        """Returns the reader of a type, `None` if it is neither tensor nor array."""
        try:
            return self.known[kind]
        except KeyError:
            found = self.known[kind] = next((one for one in self.readers if one.owns(kind)), None)
            return found

    def among(self, kinds):
        """Returns the types of tensors and arrays among types."""
        return {kind for kind in kinds if self.of(kind)}


def census(objects):
    """Counts tensors: number, bytes of their storages, number with a graph, sizes of large ones, and the sequence number of the newest
    operation."""
    readers = Readers()
    storages, large, with_graph, newest = {}, {}, 0, 0
    for one in objects:
        reader = readers.of(type(one))
        fact = reader.fact(one)
        storages[fact.storage] = fact.bytes
        if fact.graph is not None:
            with_graph += 1
            newest = max(newest, sequence(reader.graph(one)))
    for size in storages.values():
        if size >= LARGE:
            large[size] = large.get(size, 0) + 1
    return {"count": len(objects), "bytes": sum(storages.values()), "with_graph": with_graph, "large": large, "newest": newest}


def sequence(node):
    """Returns the number of a node, by which nodes of one thread are ordered in time; 0 for a leaf, or where PyTorch has none."""
    try:
        number = node._sequence_nr()
    except AttributeError:
        return 0
    return number if number < LEAF else 0


def reaches(node, number):
    """Returns whether the graph of a node has operations from before a number, and the number of nodes that were visited. Visits the oldest
    ones first, as a chain of steps is reached that way."""
    heap, seen = [(sequence(node), 0, node)], {}
    while heap and len(seen) < NODES_MAX:
        at, _, one = heapq.heappop(heap)
        if 0 < at < number:
            return True, len(seen)
        if id(one) in seen:
            continue
        # Kept, so that no other node gets the same id.
        seen[id(one)] = one
        for child, _ in one.next_functions:
            if child is not None and sequence(child):
                heapq.heappush(heap, (sequence(child), id(child), child))
    return False, len(seen)
