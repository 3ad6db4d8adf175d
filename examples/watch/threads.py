"""Every ten steps, as at the start of an epoch, a thread with a buffer starts, and the threads of earlier epochs never end. The
control run joins the previous thread first."""

import threading

from steps import LEAK_PER_STEP, Loop, rss_bytes

EVERY = 10


def work(ready, end):
    buffer = rss_bytes(EVERY * LEAK_PER_STEP)
    ready.set()
    end.wait()
    del buffer


if __name__ == "__main__":
    loop = Loop(__doc__)
    previous = None
    for step in loop:
        if step % EVERY:
            continue
        if loop.bounded and previous is not None:
            thread, end = previous
            end.set()
            thread.join()
        ready, end = threading.Event(), threading.Event()
        thread = threading.Thread(target=work, args=(ready, end), daemon=True)
        thread.start()
        ready.wait()
        previous = (thread, end)
