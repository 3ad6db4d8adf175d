"""Waits in a thread of its own until xrun asks, and answers through a Unix socket.

The thread polls for a file, because that needs neither a file descriptor nor a signal of the program. It imports modules of C only and takes
them out of `sys.modules` again, as a program may have modules of the same names. It ends before a fork and begins anew after it.
"""

import os
import sys

# Seconds between two polls.
POLL = 0.5
# Bytes of the longest request.
REQUEST_MAX = 4096
# Largest number of seconds to wait for a message of xrun outside of a window.
TIMEOUT = 10.0
PARTS = ("window", "sources", "births", "tensors", "cuda", "census", "paths", "encode")
# Modules in files, which another thread of the program would see in `sys.modules` while they are read later on.
FILES = ("array", "_ctypes", "_heapq", "_json", "_socket", "types")

modules = {}


def load(name):
    """Imports a module of C once, and leaves `sys.modules` as it was."""
    if name not in modules or sys.modules.get(name, name) is None:
        known = name in sys.modules
        modules[name] = __import__(name)
        if not known:
            sys.modules.pop(name, None)
    return modules[name]


_thread = load("_thread")


# Compiled files of the agent by their names, without suffix.
codes = {}


def read_parts(names):
    for name in names:
        path = HERE + "/" + name + ".py"
        with open(path, encoding="utf-8") as file:
            codes[name] = compile(file.read(), path, "exec")


def part(name, **names):
    """Executes another file of the agent, as a module that no import finds."""
    module = type(sys)("xrun_" + name)
    module.__dict__.update(names, load=load, part=part, HERE=HERE)
    exec(codes[name], module.__dict__)
    return module


def place(error):
    """Returns the type of an error, its text, and where it was raised."""
    at = error.__traceback__
    while at.tb_next:
        at = at.tb_next
    file = at.tb_frame.f_code.co_filename.rpartition("/")[2]
    return "%s: %s (%s:%d)" % (type(error).__name__, error, file, at.tb_lineno)


class Agent:
    """State of the agent in one process."""

    def __init__(self, forked):
        self.forked = forked
        # Locked while the thread is to wait.
        self.wait = _thread.allocate_lock()
        self.wait.acquire()
        self.ended = False
        self.thread = None
        self.window = None
        self.connection = None
        self.request = "%s/request-%d" % (HERE, os.getpid())

    def begin(self):
        self.thread = None
        _thread.start_new_thread(self.run, ())

    def end(self):
        """Ends the thread, and waits until the kernel has removed it, unless it is answering."""
        if self.ended or self.window:
            return
        self.ended = True
        self.wait.release()
        path = "/proc/self/task/%s" % self.thread
        for _ in range(200):
            if self.thread is None or not os.access(path, os.F_OK):
                return
            self.pause(0.0005)

    @staticmethod
    def pause(seconds):
        lock = _thread.allocate_lock()
        lock.acquire()
        lock.acquire(True, seconds)

    def run(self):
        self.thread = _thread.get_native_id()
        while not self.wait.acquire(True, POLL):
            if os.access(self.request, os.F_OK):
                try:
                    os.unlink(self.request)
                except OSError:  # xrun has gone.
                    continue
                self.respond()

    def respond(self):
        try:
            self.answer()
        except Exception as error:  # The program goes on.
            self.fail(error)
        finally:
            self.close()

    def fail(self, error):
        try:
            self.send({"failed": place(error)})
        except Exception:  # xrun has gone.
            pass

    def close(self):
        window, self.window = self.window, None
        if window:
            window.close()
        connection, self.connection = self.connection, None
        if connection:
            connection.close()

    def answer(self):
        socket = load("_socket")
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(TIMEOUT)
        self.connection.connect(HERE + "/socket")
        credentials = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if int.from_bytes(credentials[4:8], sys.byteorder) != os.geteuid():
            return
        words = self.line(TIMEOUT).split()
        if len(words) != 4 or words[0] != "window":
            return
        seconds, frames, bytes_max = float(words[1]), int(words[2]), int(words[3])
        read_parts(PARTS)
        self.window = part("window", place=place).Window(frames, bytes_max, self.forked)
        mark = self.window.begin()
        self.send({"begun": True})
        if self.window.wait(seconds, self.line, self.tell, mark):
            self.send(self.window.end(mark))

    def tell(self, needs):
        self.send({"needs": needs})

    def send(self, value):
        self.connection.settimeout(TIMEOUT)
        self.connection.sendall(part("encode").encode(value).encode("ascii") + b"\n")

    def line(self, seconds):
        """Reads a line; an empty one if none comes in that time, and `gone` if xrun has gone."""
        self.connection.settimeout(seconds)
        text = b""
        try:
            while not text.endswith(b"\n") and len(text) < REQUEST_MAX:
                byte = self.connection.recv(1)
                if not byte:
                    return "gone"
                text += byte
        except OSError:
            return ""
        return text.decode("ascii", "replace").strip()


agent = None


def before_fork():
    agent.end()


def after_in_parent():
    global agent
    if agent.ended:
        begin(agent.forked)


def after_in_child():
    # Neither the thread nor its work exists in a child.
    if agent.window:
        agent.window.abandon()
    if agent.connection:
        agent.connection.close()
    begin(True)


def begin(forked):
    global agent
    agent = Agent(forked)
    try:
        agent.begin()
    except RuntimeError:  # The interpreter ends.
        agent.ended = True


def is_main_interpreter():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = load(name)
            current, main = interpreters.get_current(), interpreters.get_main()
        except (ImportError, AttributeError):
            continue
        first = lambda one: one[0] if isinstance(one, tuple) else one
        return int(first(current)) == int(first(main))
    return True


def start():
    # A thread would keep another interpreter from ending.
    if not is_main_interpreter():
        return
    known = set(sys.modules)
    for name in FILES:
        try:
            load(name)
        except ImportError:
            continue
    # Those that they have imported, too.
    for name in set(sys.modules).difference(known):
        del sys.modules[name]
    begin(False)
    os.register_at_fork(before=before_fork, after_in_parent=after_in_parent, after_in_child=after_in_child)
