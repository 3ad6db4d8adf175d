"""Shortest path of names from a module or a function that runs to an object: `train.py: trainer.model[1]._forward_hooks`."""

import sys

itertools, types = load("itertools"), load("types")
# Largest number of objects whose referrers are searched at a time.
FRONTIER_MAX = 24
FRAMES_MAX = 200
# Largest number of objects that are visited from the variables of the program.
VISITED_MAX = 40_000
# Largest number of searches of all objects for what refers to some.
BACKWARDS_MAX = 6
# Items of a container that is not visited.
ITEMS_MAX = 20_000
OPTIMISED = 1
# Attributes of a tensor that are no slots.
HOOKS = ("_backward_hooks", "_grad", "_post_accumulate_grad_hooks")
# Of the type itself, as a metaclass may have an attribute of that name.
_members = type.__dict__["__dict__"].__get__
NOWHERE = {"path": None, "name": None, "file": None, "library": True}
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
        self.modules, self.users, self.locals = {}, {}, {}
        for name, module in list(sys.modules.items()):
            found = namespace(module) if issubclass(type(module), types.ModuleType) else None
            if found is not None:
                self.modules[id(found)] = (name, module)
                file = found.get("__file__")
                if name == "__main__" or isinstance(file, str) and sources.is_user(file):
                    self.users[name] = found
        self.values = []
        # Visited dictionaries that the collector does not track.
        self.untracked = []
        # Addresses of containers of the agent, which refer to everything.
        self.own = set(map(id, (self.modules, self.users, self.locals, self.values, self.untracked)))
        self.backwards = BACKWARDS_MAX
        for frame in functions(frames):
            code, found = frame.f_code, local_variables(frame)
            self.values.append(found)
            self.own.add(id(found))
            for name, value in found.items():
                entry = (not sources.is_user(code.co_filename), code, name)
                if id(value) not in self.locals or entry[0] < self.locals[id(value)][0]:
                    self.locals[id(value)] = entry
        self.visit()

    def ignore(self, *containers):
        self.own.update(map(id, containers))

    def root(self, one):
        """Returns `(priority, label)` of a root, `None` if it is none."""
        if id(one) in self.modules:
            name, module = self.modules[id(one)]
            file = module.__dict__.get("__file__")
            return (0 if name in self.users else 2, sources.module_label(name, module) + ": ", file if isinstance(file, str) else None)
        if id(one) in self.locals:
            library, code, name = self.locals[id(one)]
            file = code.co_filename
            return (3 if library else 1, "%s, %s(): %s" % (file.rpartition("/")[2], code.co_name, name), file)
        return None

    def is_foreign(self, one):
        """Returns whether an object is code of a library, behind which the whole library is."""
        if id(one) in self.modules:
            return True
        # Without `isinstance`, which calls code of a program whose objects pretend to be of another type.
        if issubclass(type(one), type):
            name = _members(one).get("__module__")
            return type(name) is not str or name not in self.users
        return type(one) in (types.ModuleType, types.CodeType, types.BuiltinFunctionType)

    def visit(self):
        """Visits what the variables of the program lead to: far fewer objects than there are."""
        variables = (value for found in self.values for value in found.values() if not self.locals[id(value)][0])
        level = [*self.users.values(), *variables]
        # The object that refers to each one that was visited; `None` for a variable.
        self.parents = dict(zip(map(id, level), itertools.repeat(None)))
        self.untracked += (one for one in level if type(one) is dict and not gc.is_tracked(one))
        self.ignore(self.parents, sources._known)
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
            # A name for a tensor of the current step is not worth a look at all objects.
            return self.find_backwards(target, is_late) if issubclass(type(target), CONTAINERS) else NOWHERE
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
        children, nodes = {id(target): None}, [target]
        while nodes:
            roots = [(root[0], at) for at, root in enumerate(map(self.root, nodes)) if root is not None]
            if roots:
                path = [nodes[min(roots)[1]]]
                while children[id(path[-1])] is not None:
                    path.append(children[id(path[-1])])
                return self.answer(path, self.root(path[0]))
            if is_late() or not self.backwards:
                break
            self.backwards -= 1
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
        return NOWHERE


def key_of(mapping, child):
    return next((key for key, value in dict.items(mapping) if value is child), None)


def describe(path, label, is_module):
    """Returns the text of a path, and its last name."""
    text, name, attributes, function = label, None, is_module, None
    for parent, child in zip(path, path[1:]):
        kind = type(parent)
        if issubclass(kind, dict):
            key = dict.__len__(parent) < 1_000_000 and key_of(parent, child)
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
        elif kind in (types.GeneratorType, types.FrameType):
            # Before Python 3.11 a generator refers to its frame.
            frame = parent if kind is types.FrameType else parent.gi_frame
            found = frame and key_of(local_variables(frame), child)
            if found:
                text, name = text + " (%s), variable %s" % (kind.__name__, found), found
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
        for name, member in _members(base).items():
            if type(member) is types.MemberDescriptorType or type(member) is types.GetSetDescriptorType and name in HOOKS:
                try:
                    if member.__get__(parent) is child:
                        return "grad" if name == "_grad" else name
                except Exception:
                    continue
    return None
