"""Training steps of `experiments/stage2.toml` in PyTorch; `twin.py` tells what a twin is.

`detection` is an episode of 4 classes: 20 reference images of 48 pixels, 32 queries of 96 pixels or of --side. `triplet` mines 24
images of 48 pixels. Frames are decoded by Pillow and kept up to the cap of xrun's cache, cut out, scaled and recoloured as xrun does;
`--exact` takes xrun's random numbers and pixels, which costs more.
"""
import functools
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance
from torch import nn

from draws import Draws, QuickDraws
from twin import Twin, main

SEED = 3
WAYS, VIEWS, QUERIES_PER_WAY, REFERENCE = 4, 5, 8, 48
TRIPLETS = 8
EMBEDDING, PYRAMID = 48, 64
# `limits.frame_cache`.
CACHE_BYTES = 48 * 2**20
PADDING = 114
MASKED, OTHER = -2, -1


def strides_of(side):
    # Large images have coarser pyramid levels, each computed from the previous one.
    strides = [8, 16]
    while 16 * strides[-1] < side:
        strides.append(2 * strides[-1])
    return strides


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm = nn.GroupNorm(8, outputs)

    def forward(self, input):
        return F.relu(self.norm(self.convolution(input)))


class Stage(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.halve = Block(inputs, outputs, 2)


class Detector(nn.Module):
    def __init__(self, side, channels):
        super().__init__()
        self.side, self.strides = side, strides_of(side)
        self.coarser = nn.ModuleList(Block(PYRAMID, PYRAMID, 2) for _ in self.strides[2:])
        channels = [3, *channels]
        self.stages = nn.ModuleList(Stage(one, next) for one, next in zip(channels, channels[1:]))
        self.lateral_fine, self.lateral_coarse = (nn.Conv2d(inputs, PYRAMID, 1) for inputs in channels[-2:])
        self.tower = nn.ModuleList([Block(PYRAMID, PYRAMID, 1)])
        self.outputs = nn.Conv2d(PYRAMID, 5 + EMBEDDING, 1)
        self.similarity_scale, self.similarity_bias = nn.Parameter(torch.tensor([8.0])), nn.Parameter(torch.tensor([-4.0]))

    def levels(self, images):
        # As xrun does it in the step: 8-bit pixels become normalised floats.
        images = (images.permute(0, 3, 1, 2).float() - 114.0) / 64.0
        for stage in self.stages[:3]:
            images = stage.halve(images)
        coarse = self.lateral_coarse(self.stages[3].halve(images))
        return self.lateral_fine(images) + F.interpolate(coarse, scale_factor=2), coarse

    def head(self, level):
        return self.outputs(self.tower[0](level)).flatten(2).transpose(1, 2)

    def dense(self, images):
        levels = list(self.levels(images))
        for coarser in self.coarser:
            levels.append(coarser(levels[-1]))
        flat = [self.head(level) for level in levels]
        logarithms = [part[..., 1:5] for part in flat]
        # Beyond 4 linear, so that sides stay finite.
        sides = [
            part.clamp(max=4.0).exp() * (((part - 4.0).clamp(min=0.0) + 1.0) * stride)
            for part, stride in zip(logarithms, self.strides)
        ]
        every = torch.cat(flat, 1)
        return every[..., 0], torch.cat(sides, 1), F.normalize(every[..., 5:], dim=2)

    def embed(self, images):
        means = [F.normalize(self.head(level)[..., 5:], dim=2).mean(1) for level in self.levels(images)]
        return F.normalize(means[0] + means[1], dim=1)


def ciou(found, truth):
    """Complete IoU loss (Zheng et al. 2020) of boxes as left, top, right, bottom."""
    area = lambda box: (box[..., 2:] - box[..., :2]).prod(-1)
    low, high = torch.maximum(found[..., :2], truth[..., :2]), torch.minimum(found[..., 2:], truth[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    overlap = shared / (area(found) + area(truth) - shared + 1e-7)
    hull = torch.maximum(found[..., 2:], truth[..., 2:]) - torch.minimum(found[..., :2], truth[..., :2])
    middles = found[..., :2] + found[..., 2:] - truth[..., :2] - truth[..., 2:]
    apart = (middles**2).sum(-1) * 0.25 / ((hull**2).sum(-1) + 1e-7)
    angle = lambda box: torch.atan((box[..., 2] - box[..., 0]) / (box[..., 3] - box[..., 1] + 1e-7))
    shape = 4 / torch.pi**2 * (angle(truth) - angle(found)) ** 2
    with torch.no_grad():
        weight = shape / (1 - overlap + shape + 1e-7)
    return 1 - overlap + apart + weight * shape


class DetectionTwin(Twin):
    learning_rate, weight_decay, clip_norm = 2e-3, 1e-4, 10.0

    def __init__(self, settings):
        self.settings = settings
        self.model = Detector(settings.side, settings.channels)
        self.centres = torch.from_numpy(cells(settings.side)[:, [0, 1, 0, 1]])

    def kind(self, number):
        return self.settings.kind

    def loss(self, kind, *part):
        return self.detection(*part) if kind == "detection" else self.triplet(*part)

    def detection(self, references, queries, objectness, weight, ways, sides):
        embedded = self.model.embed(references)
        prototypes = F.normalize(embedded.reshape(-1, VIEWS, EMBEDDING).mean(1), dim=1)
        logits, found, embeddings = self.model.dense(queries)
        probability = logits.sigmoid()
        error = probability * (1 - objectness) + (1 - probability) * objectness
        focal = F.binary_cross_entropy_with_logits(logits, objectness, reduction="none") * error**2
        focal = (focal * (objectness * 0.25 + (1 - objectness) * 0.75) * weight).sum()
        scale = F.softplus(self.model.similarity_scale)
        similarity = embeddings @ prototypes.T * scale + self.model.similarity_bias
        classes = F.binary_cross_entropy_with_logits(similarity, ways, reduction="none") * objectness[..., None]
        signs = torch.tensor([-1.0, -1.0, 1.0, 1.0])
        box = (ciou(self.centres + found * signs, self.centres + sides * signs) * objectness).sum()
        return (focal + classes.sum() + 2 * box) / objectness.sum().clamp(min=1)

    def triplet(self, images, classes):
        rows = self.model.embed(images)
        same = classes[:, None] == classes
        itself = torch.eye(len(classes), dtype=torch.bool)
        distance = 1 - rows @ rows.T
        farthest = distance.masked_fill(~same | itself, -torch.inf).amax(1)
        nearest = distance.masked_fill(same, torch.inf).amin(1)
        return (farthest - nearest + 0.3).clamp(min=0).mean()

    def flops(self):
        def network(images, side, levels):
            channels, total, at = [3, *self.settings.channels], 0, side
            for inputs, outputs in zip(channels, channels[1:]):
                at = -(-at // 2)
                total += 9 * inputs * outputs * at**2
            fine, coarse = side // 8, side // 16
            total += PYRAMID * (channels[-2] * fine**2 + channels[-1] * coarse**2)
            sizes = [-(-side // stride) for stride in strides_of(side)[:levels]]
            total += sum(9 * PYRAMID**2 * size**2 for size in sizes[2:])
            total += sum((9 * PYRAMID**2 + PYRAMID * (5 + EMBEDDING)) * size**2 for size in sizes)
            # The pixels have no gradient.
            first = 9 * 3 * channels[1] * (side // 2) ** 2
            return 2 * images * (3 * total - first)

        if self.settings.kind == "triplet":
            return network(3 * TRIPLETS, REFERENCE, 2) + 3 * 2 * (3 * TRIPLETS) ** 2 * EMBEDDING
        queries, side = WAYS * QUERIES_PER_WAY, self.settings.side
        similarity = 3 * 2 * queries * len(self.centres) * EMBEDDING * WAYS
        return network(WAYS * VIEWS, REFERENCE, 2) + network(queries, side, len(strides_of(side))) + similarity


def cells(side):
    """Cells of the dense head as x, y and stride, levels in the order of their strides, row by row."""
    found = []
    for stride in strides_of(side):
        places = (np.arange(-(-side // stride)) + 0.5) * stride
        found += [(x, y, stride) for y in places for x in places]
    return np.array(found, np.float32)


class Cells:
    """Assignment of objects to cells, as `assignment.rs` has it."""

    def __init__(self, side):
        self.cells, self.strides = cells(side), strides_of(side)

    def targets(self, truths):
        """Returns objectness, weight, way and sides of the cells of a frame, whose objects are pairs of role and box."""
        x, y, stride = self.cells.T
        assigned = np.full(len(x), -1)
        area = lambda box: (box[2] - box[0]) * (box[3] - box[1])
        order = [at for at, (role, _) in enumerate(truths) if role != MASKED]
        sides = [np.stack([x - box[0], y - box[1], box[2] - x, box[3] - y], 1) for _, box in truths]
        for at in sorted(order, key=lambda at: area(truths[at][1])):
            box = truths[at][1]
            longer = max(box[2] - box[0], box[3] - box[1])
            coarse = sum(longer >= 6.0 * one for one in self.strides)
            own = self.strides[min(coarse, len(self.strides) - 1)]
            dx, dy = np.abs(x - (box[0] + box[2]) / 2), np.abs(y - (box[1] + box[3]) / 2)
            free = (stride == own) & (assigned < 0)
            apart = np.maximum(dx, dy)
            inside = free & (apart < 1.5 * own) & (sides[at] > 0).all(1)
            if inside.any():
                assigned[inside] = at
                continue
            near = free & (apart < 2.5 * own) & (sides[at] > -0.5 * own).all(1)
            if near.any():
                assigned[np.where(near, dx * dx + dy * dy, np.inf).argmin()] = at
        weight = np.ones(len(x), np.float32)
        for role, box in truths:
            if role == MASKED:
                wide = np.abs(x - (box[0] + box[2]) / 2) * 2 <= np.maximum(box[2] - box[0], stride)
                high = np.abs(y - (box[1] + box[3]) / 2) * 2 <= np.maximum(box[3] - box[1], stride)
                weight[wide & high & (assigned < 0)] = 0
        ways, distances = np.zeros((len(x), WAYS), np.float32), np.zeros((len(x), 4), np.float32)
        for at, (role, _) in enumerate(truths):
            own = assigned == at
            distances[own] = np.maximum(sides[at][own], 0.018 * stride[own, None])
            if role >= 0:
                ways[own, role] = 1
        return (assigned >= 0).astype(np.float32), weight, ways, distances


# `transform.rs`, on images of NumPy or of Pillow; a box is left, top, right, bottom.


def rounded(values):
    return np.floor(values + np.float32(0.5)).clip(0, 255)


class Exact:
    """Images as floats `[height, width, 3]`, with the pixels of xrun."""

    LUMA = np.array([0.299, 0.587, 0.114], np.float32)
    decoded = staticmethod(lambda image: np.asarray(image, np.float32))
    size = staticmethod(lambda image: image.shape[1::-1])
    crop = staticmethod(lambda image, left, top, right, bottom: image[top:bottom, left:right])
    flipped = staticmethod(lambda image: image[:, ::-1])

    @staticmethod
    def taps(length, start, extent, target):
        """Weights `[target, length]` of a triangle filter over the part of an axis that begins at `start`."""
        start, extent = np.float32(start), np.float32(extent)
        ratio = extent / np.float32(target)
        reach = max(ratio, np.float32(1))
        centre = start + (np.arange(target, dtype=np.float32) + np.float32(0.5)) * ratio
        low, high = min(np.floor(centre[0] - reach), 0), max(np.ceil(centre[-1] + reach), length)
        pixels = np.arange(low, high, dtype=np.float32) + np.float32(0.5)
        weights = np.maximum(1 - np.abs((pixels - centre[:, None]) / reach), 0)
        return (weights / weights.sum(1, keepdims=True))[:, int(-low) : int(-low) + length]

    @classmethod
    def scaled(cls, image, box, width, height):
        """Scales the part of an image in a box; beyond the image is padding."""
        rows = cls.taps(image.shape[0], box[1], box[3] - box[1], height)
        columns = cls.taps(image.shape[1], box[0], box[2] - box[0], width)
        return cls.weighted(image, rows, columns)

    @staticmethod
    def weighted(image, rows, columns):
        narrow = columns @ (image - np.float32(PADDING))
        wide = (rows @ narrow.reshape(len(narrow), -1)).reshape(len(rows), len(columns), 3)
        return rounded(wide + np.float32(PADDING))

    @classmethod
    def resized(cls, image, width, height):
        """Scales an image, whose edges go on beyond it."""
        rows, columns = (cls.taps(length, 0, length, target) for length, target in zip(image.shape, (height, width)))
        return cls.weighted(image, *(taps / taps.sum(1, keepdims=True) for taps in (rows, columns)))

    @staticmethod
    def on_grey(image, side, left, top):
        square = np.full((side, side, 3), PADDING, np.float32)
        square[top : top + image.shape[0], left : left + image.shape[1]] = image
        return square

    @classmethod
    def recoloured(cls, image, brightness, contrast, saturation):
        grey = (image @ cls.LUMA)[..., None]
        mean = np.float32(grey.mean(dtype=np.float64))
        return rounded((mean + (grey + (image - grey) * saturation - mean) * contrast) * brightness)


class Pillow:
    """The same by Pillow's operations, which differ in the last bit of a pixel."""

    decoded = staticmethod(lambda image: image.copy())
    size = staticmethod(lambda image: image.size)
    crop = staticmethod(lambda image, *box: image.crop(box))
    flipped = staticmethod(lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT))
    resized = staticmethod(lambda image, width, height: image.resize((width, height), Image.Resampling.BILINEAR))

    @classmethod
    def scaled(cls, image, box, width, height):
        # Pillow has no pixels beyond an image.
        left, top = (max(int(np.ceil(-box[at])), 0) + 1 for at in (0, 1))
        right, bottom = (max(int(np.ceil(box[at + 2] - image.size[at])), 0) + 1 for at in (0, 1))
        canvas = Image.new("RGB", (image.size[0] + left + right, image.size[1] + top + bottom), (PADDING,) * 3)
        canvas.paste(image, (left, top))
        box = (box[0] + left, box[1] + top, box[2] + left, box[3] + top)
        return canvas.resize((width, height), Image.Resampling.BILINEAR, tuple(map(float, box)))

    @staticmethod
    def on_grey(image, side, left, top):
        square = Image.new("RGB", (side, side), (PADDING,) * 3)
        square.paste(image, (left, top))
        return square

    @staticmethod
    def recoloured(image, brightness, contrast, saturation):
        image = ImageEnhance.Color(image).enhance(saturation)
        image = ImageEnhance.Contrast(image).enhance(contrast)
        return ImageEnhance.Brightness(image).enhance(brightness)


class Augmentations:
    def __init__(self, pixels):
        self.pixels = pixels

    def letterbox(self, image, side):
        width, height = self.pixels.size(image)
        fit = lambda length: int(np.clip(np.floor(length * np.float32(side) / np.float32(max(width, height)) + 0.5), 1, side))
        wide, high = fit(width), fit(height)
        return self.pixels.on_grey(self.pixels.resized(image, wide, high), side, (side - wide) // 2, (side - high) // 2)

    def reference(self, image, box, side):
        """Cuts out the object with a tenth of its size around it."""
        def span(low, high, length):
            first = min(int(max(np.floor(low), 0)), length - 1)
            return first, int(np.clip(np.ceil(high), first + 1, length))

        width, height = self.pixels.size(image)
        around_x, around_y = (box[2] - box[0]) * np.float32(0.1), (box[3] - box[1]) * np.float32(0.1)
        left, right = span(box[0] - around_x, box[2] + around_x, width)
        top, bottom = span(box[1] - around_y, box[3] + around_y, height)
        return self.letterbox(self.pixels.crop(image, left, top, right, bottom), side)

    def recoloured(self, image, strength, draws):
        low, high = np.float32(1) - np.float32(strength), np.float32(1) + np.float32(strength)
        return self.pixels.recoloured(image, *(np.float32(draws.uniform(low, high)) for _ in range(3)))

    def augmented_query(self, image, side, draws):
        """Returns the square and the mapping of x and y into it: two scales, left and top."""
        width, height = self.pixels.size(image)
        extent = np.float32(max(height, width)) / np.float32(draws.uniform(0.8, 1.2))
        start = lambda length: (np.float32(length) - extent) / 2 + extent * np.float32(draws.uniform(-0.1, 0.1))
        left, top = start(width), start(height)
        scale = np.float32(side) / extent
        square = self.pixels.scaled(image, (left, top, left + extent, top + extent), side, side)
        square = self.recoloured(square, 0.15, draws)
        if draws.coin():
            return self.pixels.flipped(square), (-scale, scale, np.float32(side) + left * scale, -top * scale)
        return square, (scale, scale, -left * scale, -top * scale)

    def augmented_reference(self, image, box, side, draws):
        size = np.float32(draws.uniform(0.75, 1.3))
        move_x, move_y = np.float32(draws.uniform(-0.125, 0.125)), np.float32(draws.uniform(-0.125, 0.125))
        width, height = box[2] - box[0], box[3] - box[1]
        extent = max(max(width, height) * size, np.float32(1))
        left = (box[0] + box[2] - extent) / 2 + width * move_x
        top = (box[1] + box[3] - extent) / 2 + height * move_y
        square = self.pixels.scaled(image, (left, top, left + extent, top + extent), side, side)
        square = self.recoloured(square, 0.3, draws)
        return self.pixels.flipped(square) if draws.coin() else square


class Library:
    """Index of a data set in COCO's form, and draws of episodes and triplets from its classes, as `episode.rs` has them."""

    def __init__(self, path, draws):
        self.path, self.draws = pathlib.Path(path), draws
        content = json.loads((self.path / "annotations.json").read_text())
        self.categories = {one["id"]: one["name"] for one in content["categories"]}
        self.held_out = {one["name"] for one in content["categories"] if one["supercategory"] == "novel"}
        boxed = lambda one: np.array([one[0], one[1], one[0] + one[2], one[1] + one[3]], np.float32)
        # Frames by name, as pairs of video and number of the frame.
        self.frames = {one["id"]: (one["file_name"], []) for one in content["images"]}
        video_of = {one["id"]: one["video_id"] for one in content["images"]}
        for one in content["annotations"]:
            self.frames[one["image_id"]][1].append((self.categories[one["category_id"]], boxed(one["bbox"])))
        self.video = video_of
        self.references, self.shown, self.objects = {}, {}, {}
        for one in content["references"]:
            place = (one["file_name"], boxed(one["bbox"]))
            self.references.setdefault(self.categories[one["category_id"]], []).append(place)
        asked_for = {frame for frame, (_, objects) in self.frames.items() if any(name in self.held_out for name, _ in objects)}
        for name in sorted(set(self.categories.values()) - self.held_out):
            shown = [frame for frame, (_, objects) in self.frames.items() if any(other == name for other, _ in objects)]
            free = [frame for frame in shown if frame not in asked_for]
            shown = free if len(free) > 1 else shown
            self.shown[name] = shown
            self.objects[name] = [
                (self.frames[frame][0], box) for frame in shown for other, box in self.frames[frame][1] if other == name
            ]
        self.classes = sorted(self.shown)

    def choose(self, count, draws):
        return [self.classes[at] for at in draws.sample(len(self.classes), min(count, len(self.classes)))]

    def episode(self, number):
        """Returns classes, references and query frames; references are images of their own, so that any frame may be asked for."""
        draws = self.draws(SEED, "episode", number)
        classes = self.choose(WAYS, draws)
        references = []
        for name in classes:
            order = list(range(len(self.references[name])))
            draws.shuffle(order)
            references.append(self.references[name][order[0]])
        queries = []
        for name in classes:
            frames = list(self.shown[name])
            draws.shuffle(frames)
            queries += (frames * QUERIES_PER_WAY)[:QUERIES_PER_WAY]
        return classes, references, queries

    def triplets(self, number):
        """Returns the classes and places of all anchors, all positives, all negatives."""
        draws = self.draws(SEED, "triplets", number)
        classes = self.choose(max(TRIPLETS // 2, 2), draws)
        pairs = []
        for triplet in range(TRIPLETS):
            anchor = triplet % len(classes)
            pairs.append((anchor, (anchor + 1 + draws.below(max(len(classes) - 1, 1))) % len(classes)))
        images = []
        for at, name in enumerate(classes):
            count = sum(2 * (anchor == at) + (negative == at) for anchor, negative in pairs)
            pool = self.references[name] + self.objects[name]
            chosen = [pool[place] for place in draws.sample(len(pool), min(count, len(pool)))]
            images.append(iter(chosen * count))
        drawn = [[(classes[at], next(images[at])) for at in (anchor, anchor, negative)] for anchor, negative in pairs]
        return [one for part in zip(*drawn) for one in part]


class Episodes(torch.utils.data.Dataset):
    def __init__(self, path, settings):
        self.settings = settings
        self.draws, pixels = (Draws, Exact) if settings.exact else (QuickDraws, Pillow)
        self.pixels, self.augment = pixels, Augmentations(pixels)
        self.library, self.cells = Library(path, self.draws), Cells(settings.side)
        width, height = self.pixels.size(self.decoded(next(iter(self.library.frames.values()))[0]))
        self.image = functools.lru_cache(CACHE_BYTES // (3 * width * height))(self.decoded)

    def decoded(self, name):
        with Image.open(self.library.path / name) as image:
            return self.pixels.decoded(image.convert("RGB"))

    def __getitem__(self, number):
        draws = self.draws(SEED, "augmentation", number)
        return [self.episode(number, draws) if self.settings.kind == "detection" else self.triplet(number, draws)]

    def triplet(self, number, draws):
        drawn = self.library.triplets(number)
        images = [self.augment.augmented_reference(self.image(name), box, REFERENCE, draws) for _, (name, box) in drawn]
        numbers = {name: at for at, (name, _) in enumerate(drawn)}
        return pixels(images), torch.tensor([numbers[name] for name, _ in drawn])

    def episode(self, number, draws):
        classes, references, queries = self.library.episode(number)
        views = []
        for name, box in references:
            image = self.image(name)
            views.append(self.augment.reference(image, box, REFERENCE))
            views += [self.augment.augmented_reference(image, box, REFERENCE, draws) for _ in range(VIEWS - 1)]
        squares, targets, side = [], [], np.float32(self.settings.side)
        for frame in queries:
            name, objects = self.library.frames[frame]
            square, (scale_x, scale_y, left, top) = self.augment.augmented_query(self.image(name), self.settings.side, draws)
            squares.append(square)
            truths = []
            for label, box in objects:
                x, y = sorted((box[0] * scale_x + left, box[2] * scale_x + left)), (box[1] * scale_y + top, box[3] * scale_y + top)
                mapped = np.array([x[0], y[0], x[1], y[1]], np.float32)
                clipped = mapped.clip(0, side)
                seen, whole = ((one[2] - one[0]) * (one[3] - one[1]) for one in (clipped, mapped))
                if seen <= 0:
                    continue
                role = MASKED if label in self.library.held_out or seen < 0.25 * whole else OTHER
                truths.append((classes.index(label) if role == OTHER and label in classes else role, clipped))
            truths.sort(key=lambda truth: {OTHER: 1, MASKED: 2}.get(truth[0], 0))
            targets.append(self.cells.targets(truths))
        return pixels(views), pixels(squares), *(torch.from_numpy(np.stack(part)) for part in zip(*targets))


def pixels(images):
    return torch.from_numpy(np.stack([np.asarray(image, np.uint8) for image in images]))


def add_arguments(parser):
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--channels", type=int, nargs=4, default=[16, 32, 64, 96])
    parser.add_argument("--exact", action="store_true", help="the random numbers and pixels of xrun")


def make(settings, reference):
    return DetectionTwin(settings), Episodes(reference["data"], settings)


if __name__ == "__main__":
    main(["detection", "triplet"], add_arguments, make)
