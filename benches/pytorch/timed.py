"""Times the steps of a training, for the scripts beside this file."""
import resource
import time

# Steps before processor time is counted.
WARM = 3


def resident():
    """Peak resident bytes so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed(steps, step, draw=lambda number: ()):
    """Seconds of each step, processor seconds of one, the first loss and the last.

    `step` takes what `draw` returns, whose time is not counted as the step's, and returns the loss.
    """
    seconds, losses, begun = [], [], 0.0
    for number in range(steps):
        if number == WARM:
            begun = time.process_time()
        drawn = draw(number)
        started = time.perf_counter()
        losses.append(step(*drawn))
        seconds.append(time.perf_counter() - started)
    cpu = (time.process_time() - begun) / max(steps - WARM, 1)
    return {"seconds": seconds, "cpu": cpu, "first_loss": losses[0], "loss": losses[-1]}
