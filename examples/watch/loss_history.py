"""The mean loss of an epoch is computed from a list of loss tensors, each of which holds its graph. The control run stores the
number (`loss.item()`)."""

from steps import LEAK_PER_STEP, Loop, rss_bytes


class Loss:
    """Stands in for a tensor with a graph: a number, and the activations saved for the backward pass."""

    def __init__(self, value):
        self.value = value
        self.activations = rss_bytes(LEAK_PER_STEP)

    def item(self):
        return self.value


if __name__ == "__main__":
    loop = Loop(__doc__)
    losses = []
    for step in loop:
        loss = Loss(1.0 / step)
        losses.append(loss.item() if loop.bounded else loss)
