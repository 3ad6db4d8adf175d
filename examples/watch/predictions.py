"""Every tenth step a validation keeps its predictions, to compute a metric at the very end. The twin adds up what the metric
needs."""

from steps import KEPT, Loop, filled

EVERY = 10

if __name__ == "__main__":
    loop = Loop(__doc__)
    kept, right = [], 0
    for step in loop:
        if step % EVERY == 0:
            predictions = filled(EVERY * KEPT)
            if loop.bounded:
                right += predictions.count(b"x")
            else:
                kept.append(predictions)
