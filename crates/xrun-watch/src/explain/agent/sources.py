"""Frames of the program among those of libraries, and names of types."""

import os
import sys

# Standard library and site packages; the directory of the agent is no code of the program either.
LIBRARIES = (os.path.dirname(os.__file__) + os.sep, HERE + os.sep, "<")
PACKAGES = ("/site-packages/", "/dist-packages/")
OWN = HERE + os.sep
# Largest number of frames of the program in one answer.
FRAMES_MAX = 4

_known = {}


def is_user(file):
    """Returns whether a file is code of the program: neither of a library nor of the agent."""
    try:
        return _known[file]
    except KeyError:
        user = file in ("<string>", "<stdin>") or not (file.startswith(LIBRARIES) or any(part in file for part in PACKAGES))
        _known[file] = user
        return user


def is_own(frames):
    """Returns whether the agent allocated it."""
    return any(frame[0].startswith(OWN) for frame in frames[:3])


def user_frames(frames):
    """Returns the frames of the program, innermost first; the innermost one of all if a library has the whole stack."""
    user = [frame for frame in frames if is_user(frame[0])][:FRAMES_MAX]
    return tuple(user) if user else tuple(frames[:1])


def type_name(kind):
    name, module = kind.__name__, getattr(kind, "__module__", None)
    if not isinstance(module, str) or module in ("builtins", "__main__", "torch", "numpy", "collections"):
        return str(name)
    return module + "." + str(name)


def module_label(name, module):
    """Returns the name of a module as people know it: the file of the script for `__main__`."""
    if name not in ("__main__", "__mp_main__"):
        return name
    file = module.__dict__.get("__file__")
    return os.path.basename(file) if isinstance(file, str) else name
