"""Every tenth step, as at the start of an epoch, a thread is started with its own buffer, and those of the epochs before do
not end. The twin joins its thread before the next one."""

import threading

from steps import KEPT, Loop, filled

EVERY = 10


def work(ready, end):
    own = filled(EVERY * KEPT)
    ready.set()
    end.wait()
    del own


if __name__ == "__main__":
    loop = Loop(__doc__)
    before = None
    for step in loop:
        if step % EVERY:
            continue
        if loop.bounded and before is not None:
            thread, end = before
            end.set()
            thread.join()
        ready, end = threading.Event(), threading.Event()
        thread = threading.Thread(target=work, args=(ready, end), daemon=True)
        thread.start()
        ready.wait()
        before = (thread, end)
