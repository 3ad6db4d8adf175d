"""Shortest path of names from a module or a function that runs to an object: `train.py: trainer.model[1]._forward_hooks`."""

import sys
import types

itertools = load("itertools")
# Longest path, and largest number of objects whose referrers are searched at a time.
DEPTH_MAX = 14
FRONTIER_MAX = 24
# Further levels that are searched for a name of the program once one of a library was found.
FURTHER = 3
FRAMES_MAX = 200
# Largest number of objects that are visited from the variables of the program.
VISITED_MAX = 40_000
# Largest number of searches of all objects for what refers to some.
BACKWARDS_MAX = 8
# Items of a container that is not visited.
ITEMS_MAX = 100_000
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


class Paths:
    def __init__(self, frames):
        self.modules = Table()
        for name, module in list(sys.modules.items()):
            if isinstance(module, types.ModuleType):
                self.modules[id(namespace(module))] = (name, module)
        self.locals = Table()
        self.values = []
        # Addresses of containers of the agent, which refer to everything.
        self.own = {id(self.values)}
        # Visited dictionaries that the collector does not track.
        self.untracked = []
        self.backwards = BACKWARDS_MAX
        for frame in functions(frames):
            self.add_locals(frame)
        self.visit()

    def add_locals(self, frame):
        code = frame.f_code
        found = local_variables(frame)
        self.values.append(found)
        self.own.add(id(found))
        for name, value in found.items():
            entry = (not sources.is_user(code.co_filename), code, name)
            if id(value) not in self.locals or entry[0] < self.locals[id(value)][0]:
                self.locals[id(value)] = entry

    def clear(self):
        """Drops all references to objects of the program."""
        self.__dict__.clear()

    def ignore(self, *containers):
        self.own.update(map(id, containers))

    def root(self, one):
        """Returns `(priority, label)` of a root, `None` if it is none."""
        if id(one) in self.modules:
            name, module = self.modules[id(one)]
            file = module.__dict__.get("__file__")
            return (0 if self.is_users(module) else 2, sources.module_label(name, module) + ": ", file if isinstance(file, str) else None)
        if id(one) in self.locals:
            library, code, name = self.locals[id(one)]
            file = code.co_filename
            return (3 if library else 1, "%s, %s(): %s" % (file.rpartition("/")[2], code.co_name, name), file)
        return None

    def is_foreign(self, one):
        """Returns whether an object is code of a library, behind which the whole library is."""
        if id(one) in self.modules:
            return True
        if isinstance(one, type):
            module = sys.modules.get(one.__module__)
            return module is None or not self.is_users(module)
        return type(one) in (types.ModuleType, types.CodeType, types.BuiltinFunctionType)

    @staticmethod
    def is_users(module):
        file = getattr(module, "__dict__", {}).get("__file__")
        return module is sys.modules.get("__main__") or (isinstance(file, str) and sources.is_user(file))

    def visit(self):
        """Visits what the variables of the program lead to: far fewer objects than there are."""
        variables = (value for found in self.values for value in found.values() if not self.locals[id(value)][0])
        level = [namespace(module) for _, module in self.modules.values() if self.is_users(module)] + list(variables)
        # The object that refers to each one that was visited; `None` for a variable.
        self.parents = Table(zip(map(id, level), itertools.repeat(None)))
        while level and len(self.parents) < VISITED_MAX:
            further = []
            for parent in level:
                if len(self.parents) >= VISITED_MAX or type(parent) in (list, dict, set) and len(parent) > ITEMS_MAX:
                    continue
                for one in gc.get_referents(parent):
                    is_tracked = gc.is_tracked(one)
                    if id(one) in self.parents or not (is_tracked or type(one) is dict):
                        continue
                    self.parents[id(one)] = parent
                    if not is_tracked:
                        self.untracked.append(one)
                    elif not self.is_foreign(one):
                        further.append(one)
            level = further

    def find(self, target, is_late):
        """Returns the path to an object, and the last name in it."""
        if id(target) not in self.parents:
            return self.find_backwards(target, is_late)
        path = [target]
        while self.parents[id(path[0])] is not None:
            path.insert(0, self.parents[id(path[0])])
        return self.answer(path, self.root(path[0]))

    def answer(self, path, root):
        (priority, label, file), one = root, path[0]
        text, name = describe(path, label, id(one) in self.modules)
        if name is None and id(one) in self.locals:
            name = self.locals[id(one)][2]
        return {"path": text, "name": name, "file": file, "library": priority >= 2}

    def find_backwards(self, target, is_late):
        """Returns the path to an object that the variables of the program do not lead to, by what refers to it."""
        children = {id(target): None}
        nodes = [target]
        best, depth_of_best = None, None
        for depth in range(DEPTH_MAX):
            for one in nodes:
                root = self.root(one)
                if root is not None and (best is None or root[0] < best[0][0]):
                    best, depth_of_best = (root, one), depth
            if best and (best[0][0] <= 1 or depth - depth_of_best >= FURTHER):
                break
            if not nodes or is_late() or not self.backwards:
                break
            self.backwards -= 1
            # What refers to a module leads to everything.
            nodes = [one for one in nodes if id(one) not in self.modules]
            if not nodes:
                break
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
        if best is None:
            return {"path": None, "name": None, "file": None, "library": True}
        root, one = best
        path = [one]
        while children[id(path[-1])] is not None:
            path.append(children[id(path[-1])])
        return self.answer(path, root)


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
