"""A validation every ten steps keeps its predictions, to compute a metric at the end. The control run accumulates the metric."""

from steps import LEAK_PER_STEP, Loop, rss_bytes

EVERY = 10

if __name__ == "__main__":
    loop = Loop(__doc__)
    kept, correct = [], 0
    for step in loop:
        if step % EVERY == 0:
            predictions = rss_bytes(EVERY * LEAK_PER_STEP)
            if loop.bounded:
                correct += predictions.count(b"x")
            else:
                kept.append(predictions)
