"""Writes coco_map.json: random detections and truths, and what pycocotools says of them.

pip install pycocotools numpy; python tests/reference/coco_map.py
"""
import json
import pathlib
import random

import numpy
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

random.seed(7)
classes, pictures = 5, []
for _ in range(60):
    truths, detections = [], []
    for _ in range(random.randint(0, 5)):
        # Halves and wholes: exact in single precision. Sides from 5 to 150: small, medium and large ones.
        long = random.choice([60, 60, 160, 300])
        place = [random.randint(0, 160) / 2, random.randint(0, 160) / 2, random.randint(10, long) / 2, random.randint(10, long) / 2]
        kind = random.randint(0, classes - 2)  # the last class is never there
        # COCO's own area is that of the object's outline, and less than that of its box.
        area = place[2] * place[3] * random.choice([1.0, 1.0, 0.75])
        truths.append([kind, place, area, random.choices([None, "crowd", "difficult"], [76, 12, 12])[0]])
        for _ in range(random.choice([0, 1, 1, 2])):
            shifted = [value + random.randint(-6, 6) / 2 for value in place]
            shifted[2], shifted[3] = max(shifted[2], 2.0), max(shifted[3], 2.0)
            label = kind if random.random() < 0.85 else random.randint(0, classes - 1)
            # Few distinct scores: ties happen.
            detections.append([label, random.randint(1, 31) / 32, shifted])
    for _ in range(random.randint(0, 2)):
        place = [random.randint(0, 160) / 2, random.randint(0, 160) / 2, 10.0, 10.0]
        detections.append([random.randint(0, classes - 1), random.randint(1, 16) / 32, place])
    pictures.append({"detections": detections, "truths": truths})
# More than a hundred detections of a class in one picture, the right one the last that counts, and then the first that does not.
for right in (99, 100):
    place = [10.0, 10.0, 50.0, 50.0]
    wrong = [[0, 0.75 - n / 512, [100.0 + n, 100.0, 20.0, 20.0]] for n in range(right)]
    pictures.append({"detections": wrong + [[0, 0.125, place]], "truths": [[0, place, 2500.0, None]]})

images = [{"id": n + 1, "width": 200, "height": 200} for n in range(len(pictures))]
# COCOeval leaves out by area: an object below every range may take one detection, by IoU, and neither counts.
annotations = [
    {"image_id": n + 1, "category_id": kind + 1, "bbox": place, "area": -1 if word == "difficult" else area, "iscrowd": int(word == "crowd")}
    for n, picture in enumerate(pictures) for kind, place, area, word in picture["truths"]
]
for number, annotation in enumerate(annotations):
    annotation["id"] = number + 1
truth = COCO()
truth.dataset = {"images": images, "annotations": annotations, "categories": [{"id": n + 1, "name": str(n)} for n in range(classes)]}
truth.createIndex()
found = truth.loadRes([
    {"image_id": n + 1, "category_id": kind + 1, "bbox": place, "score": score}
    for n, picture in enumerate(pictures) for kind, score, place in picture["detections"]
])
evaluation = COCOeval(truth, found, "bbox")
evaluation.evaluate()
evaluation.accumulate()
precision, recall = evaluation.eval["precision"], evaluation.eval["recall"]  # thresholds, (recalls,) classes, sizes, maxDets
mean = lambda values: float(numpy.mean(values[values > -1]))
expected = {
    "map50": mean(precision[0, :, :, 0, 2]),
    "map": mean(precision[:, :, :, 0, 2]),
    "map_small": mean(precision[:, :, :, 1, 2]),
    "map_medium": mean(precision[:, :, :, 2, 2]),
    "map_large": mean(precision[:, :, :, 3, 2]),
    "recall": mean(recall[0, :, 0, 2]),
    "ar_1": mean(recall[:, :, 0, 0]),
    "ar_10": mean(recall[:, :, 0, 1]),
    "ar_100": mean(recall[:, :, 0, 2]),
}
print(json.dumps(expected, indent=1))
place = pathlib.Path(__file__).with_suffix(".json")
place.write_text(json.dumps({"pictures": pictures, "expected": expected}) + "\n")
