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
for _ in range(40):
    truths, detections = [], []
    for _ in range(random.randint(0, 5)):
        # Halves and wholes: exact in single precision.
        place = [random.randint(0, 160) / 2, random.randint(0, 160) / 2, random.randint(10, 60) / 2, random.randint(10, 60) / 2]
        kind = random.randint(0, classes - 2)  # the last class is never there
        truths.append([kind, place, random.random() < 0.12])
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

images = [{"id": n + 1, "width": 200, "height": 200} for n in range(len(pictures))]
annotations = [
    {"id": 0, "image_id": n + 1, "category_id": kind + 1, "bbox": place, "area": place[2] * place[3], "iscrowd": int(crowd)}
    for n, picture in enumerate(pictures) for kind, place, crowd in picture["truths"]
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
precision = evaluation.eval["precision"][:, :, :, 0, 2]  # thresholds, recalls, classes
recall = evaluation.eval["recall"][:, :, 0, 2]
mean = lambda values: float(numpy.mean(values[values > -1]))
expected = {"map50": mean(precision[0]), "map": mean(precision), "recall": mean(recall[0])}
print(expected)
place = pathlib.Path(__file__).with_suffix(".json")
place.write_text(json.dumps({"pictures": pictures, "expected": expected}) + "\n")
