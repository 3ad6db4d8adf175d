"""Entry of xrun's agent, which Python imports at its start. Afterwards the program finds its own `sitecustomize`, or none, as without it."""

import sys

# Directory of this file, which xrun has put in front of PYTHONPATH. It leaves `sys.path`, and stays in the environment for child processes.
_HERE = __file__.rpartition("/")[0]
sys.path[:] = [path for path in sys.path if path != _HERE]
sys.path_importer_cache.pop(_HERE, None)


def _start():
    if sys.version_info < (3, 8) or sys.implementation.name != "cpython":
        return
    agent = type(sys)("xrun_agent")
    agent.HERE = _HERE
    with open(_HERE + "/agent.py", encoding="utf-8") as file:
        exec(compile(file.read(), _HERE + "/agent.py", "exec"), agent.__dict__)
    agent.start()


try:
    _start()
except Exception:  # The program must start, whatever fails here.
    pass
# An import under the same name now finds the program's own module. Its errors are the program's.
del sys.modules["sitecustomize"]
import sitecustomize  # noqa: E402,F401
