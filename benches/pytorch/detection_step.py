"""Times a training step of `experiments/stage2.toml` in eager PyTorch, and its memory.

Prints one line of JSON; `compare.py` runs it alternately with xrun. The network (129,991 parameters; more with other --channels or
a --side above 256), shapes, losses, clipping of the global gradient norm and AdamW are those of xrun. `detection` is an episode of
4 classes: 20 reference images of 48 pixels, 32 queries of 96 pixels or of --side. `triplet` mines 24 images of 48 pixels, 12 of
each of two classes. Images and boxes are random, which does not affect the cost.
"""
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn

from timing import peak_rss, time_steps

WAYS, VIEWS, QUERIES, REFERENCE = 4, 5, 32, 48
TRIPLETS = 8
EMBEDDING, PYRAMID = 48, 64


def block(inputs, outputs, stride):
    convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(convolution, nn.GroupNorm(8, outputs), nn.ReLU())


class Detector(nn.Module):
    def __init__(self, side, channels):
        super().__init__()
        self.side, self.strides = side, [8, 16]
        # Large images have coarser pyramid levels, each computed from the previous one.
        while 16 * self.strides[-1] < side:
            self.strides.append(2 * self.strides[-1])
        self.coarser = nn.ModuleList([block(PYRAMID, PYRAMID, 2) for _ in self.strides[2:]])
        channels = [3, *channels]
        self.stages = nn.ModuleList([block(one, next, 2) for one, next in zip(channels, channels[1:])])
        self.fine, self.coarse = (nn.Conv2d(inputs, PYRAMID, 1) for inputs in channels[-2:])
        self.tower = block(PYRAMID, PYRAMID, 1)
        self.outputs = nn.Conv2d(PYRAMID, 5 + EMBEDDING, 1)
        self.scale, self.bias = nn.Parameter(torch.tensor(8.0)), nn.Parameter(torch.tensor(-4.0))

    def levels(self, images):
        for stage in self.stages[:3]:
            images = stage(images)
        coarse = self.coarse(self.stages[3](images))
        return self.fine(images) + F.interpolate(coarse, scale_factor=2), coarse

    def head(self, level):
        return self.outputs(self.tower(level))

    def dense(self, images):
        levels = list(self.levels(images))
        for coarser in self.coarser:
            levels.append(coarser(levels[-1]))
        flat = [self.head(level).flatten(2).transpose(1, 2) for level in levels]
        sides = [part[..., 1:5].clamp(max=4.0).exp() * stride for part, stride in zip(flat, self.strides)]
        embeddings = torch.cat([part[..., 5:] for part in flat], 1)
        return torch.cat([part[..., 0] for part in flat], 1), torch.cat(sides, 1), F.normalize(embeddings, dim=2)

    def embed(self, images):
        parts = [F.normalize(self.head(level)[:, 5:].flatten(2), dim=1).mean(2) for level in self.levels(images)]
        return F.normalize(parts[0] + parts[1], dim=1)


def centres(model):
    offsets = lambda stride: torch.arange(stride / 2, model.side, stride)
    grids = [torch.cartesian_prod(offsets(stride), offsets(stride)).flip(1) for stride in model.strides]
    return torch.cat(grids).repeat(1, 2)


def ciou(found, truth):
    """Complete IoU loss (Zheng et al. 2020) of boxes as left, top, right, bottom."""
    size = lambda box: (box[..., 2:] - box[..., :2]).clamp(min=1e-6)
    area = lambda box: size(box).prod(-1)
    low, high = torch.maximum(found[..., :2], truth[..., :2]), torch.minimum(found[..., 2:], truth[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    overlap = shared / (area(found) + area(truth) - shared)
    hull = torch.maximum(found[..., 2:], truth[..., 2:]) - torch.minimum(found[..., :2], truth[..., :2])
    middle = lambda box: (box[..., :2] + box[..., 2:]) / 2
    apart = ((middle(found) - middle(truth)) ** 2).sum(-1) / (hull**2).sum(-1).clamp(min=1e-6)
    angle = lambda box: torch.atan(size(box)[..., 0] / size(box)[..., 1])
    shape = 4 / torch.pi**2 * (angle(truth) - angle(found)) ** 2
    with torch.no_grad():
        weight = shape / (1 - overlap + shape).clamp(min=1e-6)
    return 1 - overlap + apart + weight * shape


def detection(model, centres):
    references = torch.randint(256, (WAYS * VIEWS, 3, REFERENCE, REFERENCE)) / 127.5 - 1
    queries = torch.randint(256, (QUERIES, 3, model.side, model.side)) / 127.5 - 1
    objectness = (torch.rand(QUERIES, len(centres)) < 0.05).float()
    way_targets = F.one_hot(torch.randint(WAYS, (QUERIES, len(centres))), WAYS).float()
    sides = torch.rand(QUERIES, len(centres), 4) * 24 + 4
    prototypes = F.normalize(model.embed(references).reshape(WAYS, VIEWS, -1).mean(1), dim=1)
    logits, found, embeddings = model.dense(queries)
    probability = logits.sigmoid()
    error = probability * (1 - objectness) + (1 - probability) * objectness
    focal = F.binary_cross_entropy_with_logits(logits, objectness, reduction="none") * error**2
    focal = (focal * (objectness * 0.25 + (1 - objectness) * 0.75)).sum()
    similarity = embeddings @ prototypes.T * F.softplus(model.scale) + model.bias
    class_loss = F.binary_cross_entropy_with_logits(similarity, way_targets, reduction="none") * objectness[..., None]
    signs = torch.tensor([-1.0, -1.0, 1.0, 1.0])
    box = (ciou(centres + found * signs, centres + sides * signs) * objectness).sum()
    return (focal + class_loss.sum() + 2 * box) / objectness.sum().clamp(min=1)


def triplet(model, _):
    rows = model.embed(torch.randint(256, (3 * TRIPLETS, 3, REFERENCE, REFERENCE)) / 127.5 - 1)
    classes = torch.arange(3 * TRIPLETS) % 2
    same = classes[:, None] == classes
    distance = 1 - rows @ rows.T
    farthest = distance.masked_fill(~same, -torch.inf).amax(1)
    nearest = distance.masked_fill(same, torch.inf).amin(1)
    return (farthest - nearest + 0.3).clamp(min=0).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["detection", "triplet"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--channels", type=int, nargs=4, default=[16, 32, 64, 96])
    settings = parser.parse_args()
    resident_at_start = peak_rss()
    torch.set_num_threads(settings.threads)
    torch.manual_seed(3)
    model = Detector(settings.side, settings.channels)
    locations = centres(model)
    if settings.side <= 256 and settings.channels == parser.get_default("channels"):
        assert sum(parameter.numel() for parameter in model.parameters()) == 129_991
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    loss_of_kind = {"detection": detection, "triplet": triplet}[settings.kind]

    def step():
        loss = loss_of_kind(model, locations)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 10.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    print(json.dumps({"resident_at_start": resident_at_start} | time_steps(settings.steps, step)))


if __name__ == "__main__":
    main()
