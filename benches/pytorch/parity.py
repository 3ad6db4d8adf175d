"""Compares xrun with its twins in PyTorch: parameters, losses and gradient norms of the first steps, and floating-point operations.

    cargo build --release
    python benches/pytorch/parity.py                         # all kinds of steps; needs PyTorch, NumPy and Pillow
    python benches/pytorch/parity.py --kinds plain --size large

Both begin with the parameters of xrun's checkpoint and take the same steps on the same batches: losses of later steps also compare
gradients and AdamW. Exits with 1 if the losses differ by more than the tolerance.
"""
import argparse
import importlib
import json
import pathlib
import shutil
import sys
import tempfile

from experiments import KINDS, LARGE, ROOT, arguments, finished_run, refer

# Largest relative difference of losses, and of gradient norms. Rounding differs by kernel; quantised values at the edge of two levels
# fall to either.
TOLERANCE = {kind: (2e-5, 1e-3) for kind in KINDS} | {"quantised": (1e-3, 1e-2)}
STEPS = 6
# Of the optimiser, where that of the experiment is so high that differences in the last bit grow tenfold with each step.
LEARNING_RATES = {"detection": 1e-4}


def lossless(cache, directory):
    """Copies generated videos with frames as PNG: decoders of JPEG differ in last bits. Returns the experiment that reads them."""
    from PIL import Image

    (source,) = cache.glob("generated-*")
    for path in source.glob("**/*.jpg"):
        target = directory / path.relative_to(source).with_suffix(".png")
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.open(path).save(target, compress_level=1)
    (directory / "annotations.json").write_text((source / "annotations.json").read_text().replace(".jpg", ".png"))
    experiment = directory.parent / "lossless.toml"
    text = (ROOT / "experiments/stage2.toml").read_text()
    experiment.write_text(text.replace("[dataset.synthetic-video]", f'[dataset.coco]\npath = "{directory}"'))
    return experiment


def counted(twin, parts):
    """Returns the operations that PyTorch counts in a step, with attention as products."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        twin.step(0, parts[0])
        twin.step(1, parts[1])
        twin.step(2, parts[2])
    return counter.get_total_flops() / 3


def compare(program, kind, size, cache, steps):
    """Returns parameters, operations and the differences of a kind of step."""
    import torch

    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        experiment = data = None
        if KINDS[kind][0] == "stage2":
            if not any(cache.glob("generated-*")):
                with finished_run(program, kind, "small", 1, cache, {}):
                    pass
            data = work / "lossless"
            experiment = lossless(cache, data)
        reference = refer(program, kind, size, cache, work / "reference", experiment, data)
        rate = LEARNING_RATES.get(kind)
        further = {"optimizer.adamw.learning_rate": rate} if rate else {}
        with finished_run(program, kind, size, steps, cache, further, experiment) as (results, _, _):
            lines = [json.loads(line) for line in (results / "metrics.jsonl").read_text().splitlines()]
            expected = [(line["loss"], line["gradient_norm"]) for line in lines if line["kind"] == "train"][:steps]
        script, *rest = arguments(kind, size)
        module = importlib.import_module(pathlib.Path(script).stem)
        parser = argparse.ArgumentParser()
        parser.add_argument("kind")
        module.add_arguments(parser)
        settings = parser.parse_args(rest + (["--exact"] if data else []))
        reference = json.loads((reference / "reference.json").read_text())
        twin, dataset = module.make(settings, reference)
        twin.learning_rate = rate or twin.learning_rate
        twin.prepare(reference, dataset)
        found = [twin.step(number, dataset[number]) for number in range(steps)]
        operations = counted(twin, [dataset[number] for number in range(3)])
        apart = [max(abs(one[at] - other[at]) / abs(one[at]) for one, other in zip(expected, found)) for at in range(2)]
        return {
            "parameters": sum(parameter.numel() for parameter in twin.model.parameters()),
            "flops": twin.flops(),
            "flops_counted": operations,
            "xrun": expected,
            "pytorch": found,
            "loss_difference": apart[0],
            "norm_difference": apart[1],
            "tolerance": TOLERANCE[kind],
            "equal": all(one <= limit for one, limit in zip(apart, TOLERANCE[kind])),
            "torch": torch.__version__,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xrun", default=str(ROOT / "target/release/xrun"), metavar="PROGRAM")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS))
    parser.add_argument("--size", choices=["small", "large"], default="small")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--cache", type=pathlib.Path, help="directory of generated data [default: a temporary one]")
    parser.add_argument("--json", action="store_true")
    settings = parser.parse_args()
    cache = settings.cache or pathlib.Path(tempfile.mkdtemp())
    different = False
    for kind in settings.kinds or (LARGE if settings.size == "large" else KINDS):
        own = cache / f"{KINDS[kind][0]}-{settings.size}"
        own.mkdir(parents=True, exist_ok=True)
        found = compare(settings.xrun, kind, settings.size, own, settings.steps)
        different |= not found["equal"]
        if settings.json:
            print(json.dumps({"kind": kind, "size": settings.size} | found), flush=True)
            continue
        verdict = "equal" if found["equal"] else "DIFFERENT"
        print(f"{kind:15} {verdict}: losses differ by {found['loss_difference']:.1e}, gradient norms by {found['norm_difference']:.1e}", end="")
        print(f"; {found['parameters']:,} parameters, {found['flops'] / 1e6:,.1f} MFLOP a step ({found['flops_counted'] / 1e6:,.1f} counted)", flush=True)
    if not settings.cache:
        shutil.rmtree(cache)
    sys.exit(different)


if __name__ == "__main__":
    main()
