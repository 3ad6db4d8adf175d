"""Shortest path of names from a module or a function that runs to an object: `train.py: trainer.model[1]._forward_hooks`."""

import sys

types = load("types")
# Longest path, and largest number of objects whose referrers are searched at a time.
DEPTH_MAX = 14
FRONTIER_MAX = 24
# Further levels that are searched for a name of the program once one of a library was found.
FURTHER = 3
FRAMES_MAX = 200
OPTIMISED = 1
KEY_CHARACTERS_MAX = 40


def namespace(one):
    """Returns the dictionary of an object's attributes without calling code of its class."""
    try:
        found = object.__getattribute__(one, "__dict__")
    except Exception:
        return None
    return found if type(found) is dict else None


def local_variables(frame):
    """Returns the local variables of a function that runs or waits, and leaves none of them in the frame."""
    variables = frame.f_locals
    found = dict(variables)
    # Before Python 3.13 the frame keeps that dictionary, and with it all values. It is emptied unless the program has it too.
    if sys.version_info < (3, 13) and frame.f_code.co_flags & OPTIMISED and sys.getrefcount(variables) <= 3:
        variables.clear()
    return found


def functions(frames):
    """Yields the frames of functions in all threads but this one."""
    own, own_frames = sys._getframe(), set()
    while own is not None:
        own_frames.add(id(own))
        own = own.f_back
    for frame in frames.values():
        for _ in range(FRAMES_MAX):
            if frame is None or id(frame) in own_frames:
                break
            if frame.f_code.co_flags & OPTIMISED:
                yield frame
            frame = frame.f_back


def all_variables(frames):
    """Yields the values of all local variables."""
    for frame in functions(frames):
        yield from local_variables(frame).values()


class Paths:
    def __init__(self, frames):
        self.modules = {}
        for name, module in list(sys.modules.items()):
            if isinstance(module, types.ModuleType):
                self.modules[id(namespace(module))] = (name, module)
        self.locals = {}
        self.values = []
        # Addresses of containers of the agent, which refer to everything.
        self.own = {id(self.values)}
        for frame in functions(frames):
            self.add_locals(frame)

    def add_locals(self, frame):
        code = frame.f_code
        found = local_variables(frame)
        self.values.append(found)
        self.own.add(id(found))
        for name, value in found.items():
            entry = (not sources.is_user(code.co_filename), code, name)
            if id(value) not in self.locals or entry[0] < self.locals[id(value)][0]:
                self.locals[id(value)] = entry

    def ignore(self, *containers):
        self.own.update(map(id, containers))

    def root(self, one):
        """Returns `(priority, label)` of a root, `None` if it is none."""
        if id(one) in self.modules:
            name, module = self.modules[id(one)]
            file = module.__dict__.get("__file__")
            user = name == "__main__" or (isinstance(file, str) and sources.is_user(file))
            return (0 if user else 2, sources.module_label(name, module) + ": ", file if isinstance(file, str) else None)
        if id(one) in self.locals:
            library, code, name = self.locals[id(one)]
            file = code.co_filename
            return (3 if library else 1, "%s, %s(): %s" % (file.rpartition("/")[2], code.co_name, name), file)
        return None

    def find(self, target):
        """Returns the path to an object, with `name`, the last name in it; `reached` is false if nothing that the program can name leads
        to it, and `complete` if all referrers were searched."""
        children = {id(target): None}
        nodes = [target]
        best, depth_of_best, complete = None, None, True
        for depth in range(DEPTH_MAX):
            for one in nodes:
                root = self.root(one)
                if root is not None and (best is None or root[0] < best[0][0]):
                    best, depth_of_best = (root, one), depth
            if best and (best[0][0] <= 1 or depth - depth_of_best >= FURTHER):
                break
            if not nodes or is_late():
                complete = not nodes
                break
            # What refers to a module leads to everything.
            nodes = [one for one in nodes if id(one) not in self.modules]
            if not nodes:
                break
            complete = complete and len(nodes) <= FRONTIER_MAX
            nodes = nodes[:FRONTIER_MAX]
            wanted, further = {id(one): one for one in nodes}, []
            own = {id(nodes), id(further), id(wanted), id(children)}
            for referrer in gc.get_referrers(*nodes):
                kind = type(referrer)
                if kind is types.FrameType or kind is Entry or id(referrer) in children or id(referrer) in self.own or id(referrer) in own:
                    continue
                child = next((one for one in gc.get_referents(referrer) if id(one) in wanted), None)
                if child is not None:
                    children[id(referrer)] = child
                    further.append(referrer)
            nodes = further
        else:
            complete = False
        if best is None:
            return {"path": None, "name": None, "file": None, "complete": complete, "library": True}
        (priority, label, file), one = best
        path = [one]
        while children[id(path[-1])] is not None:
            path.append(children[id(path[-1])])
        text, name = describe(path, label, id(one) in self.modules)
        if name is None and id(one) in self.locals:
            name = self.locals[id(one)][2]
        return {"path": text, "name": name, "file": file, "complete": True, "library": priority >= 2}


def key_of(mapping, child):
    for key, value in mapping.items():
        if value is child:
            return key
    return None


def describe(path, label, is_module):
    """Returns the text of a path, and its last name."""
    text, name, attributes, function = label, None, is_module, None
    for parent, child in zip(path, path[1:]):
        kind = type(parent)
        if issubclass(kind, dict):
            key = dict.__len__(parent) < 1_000_000 and next((key for key, value in dict.items(parent) if value is child), None)
            if attributes and type(key) is str:
                text, name = text + ("" if text.endswith(": ") else ".") + key, key
            elif type(key) is str and text.endswith(("._modules", "._parameters", "._buffers")):
                text = text.rpartition(".")[0] + ("[%s]" % key if key.isdigit() else "." + key)
                name = name if key.isdigit() else key
            elif type(key) in (str, int):
                text += "[%s]" % repr(key)[:KEY_CHARACTERS_MAX]
            else:
                text += "[…]"
            attributes = False
            continue
        attributes = False
        if issubclass(kind, type) and isinstance(child, dict):
            attributes = True
        elif kind is types.FunctionType:
            function = parent
            attributes = child is namespace(parent)
        elif kind is tuple and function is not None:
            at = next((at for at, one in enumerate(parent) if one is child), 0)
            code = function.__code__
            if parent is function.__closure__:
                if at < len(code.co_freevars):
                    name = code.co_freevars[at]
                    text += "(), variable " + name
            elif parent is function.__defaults__:
                first = code.co_argcount - len(parent)
                name = code.co_varnames[first + at]
                text += "(), default argument " + name
            function = None
        elif kind in (types.CellType, types.MethodType, types.ModuleType):
            pass
        elif kind is types.GeneratorType:
            found = parent.gi_frame and key_of(local_variables(parent.gi_frame), child)
            if found:
                text, name = text + " (generator), variable " + found, found
        elif issubclass(kind, (list, tuple)) and namespace(parent) is not child:
            text += "[…]"
        elif kind.__name__ == "_lru_cache_wrapper":
            text += " (lru_cache)"
        elif kind.__module__ in ("_collections", "collections") and kind.__name__ == "deque" or issubclass(kind, (set, frozenset)):
            text += "[…]"
        else:
            values = namespace(parent)
            if values is child:
                attributes = True
                continue
            found = key_of(values, child) if values else None
            found = found or slot_of(kind, parent, child)
            if type(found) is str:
                text, name = text + "." + found, found
            elif child is not kind:
                text += " (%s)" % kind.__name__
    return text, name


def slot_of(kind, parent, child):
    """Returns the name of the slot, or of a tensor's hooks, that refers to an object."""
    for base in kind.__mro__:
        for name, member in type.__dict__["__dict__"].__get__(base).items():
            if type(member) is types.MemberDescriptorType:
                try:
                    if member.__get__(parent) is child:
                        return name
                except Exception:
                    continue
    for name in ("_backward_hooks", "_grad", "_post_accumulate_grad_hooks"):
        for base in kind.__mro__:
            member = type.__dict__["__dict__"].__get__(base).get(name)
            if type(member) is types.GetSetDescriptorType:
                try:
                    if member.__get__(parent) is child:
                        return name.replace("_grad", "grad") if name == "_grad" else name
                except Exception:
                    break
    return None
