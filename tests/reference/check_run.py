"""Checks a run's detection metrics with pycocotools, from detections.json and ground_truth.json.

pip install pycocotools numpy scipy; python tests/reference/check_run.py results/stage2/latest

Prints each metric of the last validation beside what pycocotools makes of the two files, and exits with 1 when one differs by
more than 1e-6. `--record DIRECTORY` writes what pycocotools says as DIRECTORY/pycocotools.json, for the test of
crates/pipelines/fewshot-detection/src/coco_files.rs.
"""
import contextlib
import io
import json
import pathlib
import sys

import numpy
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy.stats import t

TOLERANCE = 1e-6


def scores(truth, found, images):
    """What COCOeval says over these images; None where there is nothing to find."""
    evaluation = COCOeval(truth, found, "bbox")
    evaluation.params.imgIds = images
    evaluation.evaluate()
    evaluation.accumulate()
    precision, recall = evaluation.eval["precision"], evaluation.eval["recall"]  # thresholds, (recalls,) classes, sizes, maxDets
    mean = lambda values: float(numpy.mean(values[values > -1])) if (values > -1).any() else None
    return {
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


def check(directory):
    truth = COCO(str(directory / "ground_truth.json"))
    detections = json.loads((directory / "detections.json").read_text())
    if detections:
        found = truth.loadRes(detections)
    else:  # loadRes takes no empty list
        found = COCO()
        found.dataset = {**truth.dataset, "annotations": []}
        found.createIndex()
    metrics = scores(truth, found, sorted(truth.imgs))
    episodes = {}
    for image in truth.imgs.values():
        episodes.setdefault(image["episode"], []).append(image["id"])
    each = [scores(truth, found, sorted(images)) for images in episodes.values()]
    intervals = {}
    for name in ("map50", "map"):
        values = [one[name] for one in each if one[name] is not None]
        metrics[f"episode_{name}"] = float(numpy.mean(values)) if values else None
        if len(values) > 1:
            width = t.ppf(0.975, len(values) - 1) * numpy.std(values, ddof=1) / len(values) ** 0.5
            intervals[f"episode_{name}"] = {"half_width": float(width), "episodes": len(values)}
    return metrics, intervals, len(truth.imgs), len(detections)


def last_validation(run):
    """Metrics and intervals, of a run that goes on or was killed as well."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "validation"][-1]
    return last["step"], last["metrics"], last.get("intervals", {})


def main():
    arguments = sys.argv[1:]
    record = arguments[:1] == ["--record"]
    directory = pathlib.Path(arguments[-1])
    with contextlib.redirect_stdout(io.StringIO()):
        metrics, intervals, images, detections = check(directory)
    if record:
        text = json.dumps({"metrics": metrics, "intervals": intervals}, indent=1)
        (directory / "pycocotools.json").write_text(text + "\n")
        print(text)
        return 0
    step, ours, our_intervals = last_validation(directory)
    print(f"{directory}: after step {step}; {images} images, {detections} detections")
    print(f"{'metric':<24}{'xrun':>14}{'pycocotools':>14}{'difference':>12}")
    shown = lambda value: "-" if value is None else f"{value:.8f}"
    rows = [(name, ours.get(name), value) for name, value in metrics.items()]
    rows += [(f"{name} ±", our_intervals.get(name, {}).get("half_width"), value["half_width"]) for name, value in intervals.items()]
    wrong = 0
    for name, mine, theirs in rows:
        difference = abs(mine - theirs) if None not in (mine, theirs) else (0.0 if mine is theirs else float("inf"))
        # Our quantiles of Student's distribution have three decimals.
        wrong += difference > (TOLERANCE if "±" not in name else 3e-4 * theirs + TOLERANCE)
        print(f"{name:<24}{shown(mine):>14}{shown(theirs):>14}{difference:>12.1e}")
    print("they agree" if wrong == 0 else f"{wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
