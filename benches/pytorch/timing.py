"""Timing of training steps, for the other scripts of this directory."""
import resource
import time

# Steps that processor time does not include.
WARMUP_STEPS = 3


def peak_rss():
    """Returns the peak RSS so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def time_steps(steps, step, draw_inputs=lambda number: ()):
    """Returns the seconds of each step, the mean processor seconds of a step, and the first and last loss.

    `step` takes the inputs that `draw_inputs` returns, which is not timed, and returns the loss.
    """
    seconds, losses, cpu_before = [], [], 0.0
    for number in range(steps):
        if number == WARMUP_STEPS:
            cpu_before = time.process_time()
        inputs = draw_inputs(number)
        started = time.perf_counter()
        losses.append(step(*inputs))
        seconds.append(time.perf_counter() - started)
    cpu = (time.process_time() - cpu_before) / max(steps - WARMUP_STEPS, 1)
    return {"seconds": seconds, "cpu": cpu, "first_loss": losses[0], "loss": losses[-1]}
