"""The mean loss of an epoch is computed from losses that were kept, each with all that it was computed from. The twin keeps
the number (`loss.item()`)."""

from steps import KEPT, Loop, filled


class Loss:
    """As a tensor with a graph: a number, and the activations that its gradient would need."""

    def __init__(self, value):
        self.value = value
        self.activations = filled(KEPT)

    def item(self):
        return self.value


if __name__ == "__main__":
    loop = Loop(__doc__)
    losses = []
    for step in loop:
        loss = Loss(1.0 / step)
        losses.append(loss.item() if loop.bounded else loss)
