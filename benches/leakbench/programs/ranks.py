#!/usr/bin/env python3
"""Eight ranks of `torchrun` (gloo, CPU), or workers of Ray, of which one leaks, another one in each run, or none; and whether `xrun watch`
names it.

    python benches/leakbench/programs/ranks.py target/release/xrun 20 5            # with a leak, without
    python benches/leakbench/programs/ranks.py target/release/xrun 20 5 --ray

Needs torch, and Ray for its workers. xrun numbers these as they get work, so that any one that alone grows is the leaking one.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

RANKS, STEPS = 8, 500


def train(leaky):
    import torch
    import torch.distributed as distributed

    distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(distributed.get_rank())
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(128, 128))
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.01), []
    for step in range(1, STEPS + 1):
        loss = model(torch.randn(64, 128)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if distributed.get_rank() == leaky:
            losses.append(torch.randn(1 << 17))
        if distributed.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.05)
    distributed.destroy_process_group()


def train_with_ray(leaky):
    import ray

    class Worker:
        def __init__(self, rank):
            import torch

            torch.set_num_threads(1)
            self.model, self.is_leaky, self.kept = torch.nn.Linear(128, 128), rank == leaky, []

        def step(self):
            import torch

            loss = self.model(torch.randn(64, 128)).square().mean()
            loss.backward()
            if self.is_leaky:
                self.kept.append(torch.randn(1 << 17))
            return loss.item()

    ray.init(num_cpus=RANKS, include_dashboard=False, object_store_memory=1 << 27)
    workers = [ray.remote(Worker).remote(rank) for rank in range(RANKS)]
    for step in range(1, STEPS + 1):
        losses = ray.get([worker.step.remote() for worker in workers])
        print(f"step {step} loss {losses[0]:.4f}", flush=True)
        time.sleep(0.05)


def judge(program, leaky, has_ray):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    launcher = [sys.executable, __file__, "--run-ray"] if has_ray else [*torchrun, "--", __file__, "--run"]
    words = [program, "watch", "--name", "one", "--no-patch", "--every", "100ms", "--time-limit", "4m", "--", *launcher, str(leaky)]
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ended = subprocess.run(words, cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        file = pathlib.Path(directory, "results/one/latest/verdict.json")
        if not file.exists():
            return False, ended.stderr[-300:]
        verdict = json.loads(file.read_text())
    message = verdict["message"]
    if leaky < 0:
        return verdict["verdict"] not in ("growing", "slowing", "retained"), f"{verdict['verdict']}: {message}"
    owner = verdict["owner"] or ""
    named = "alone grows" in message and (owner.startswith("Ray worker ") if has_ray else owner == f"rank {leaky}/private")
    return verdict["verdict"] == "growing" and named, message


def main():
    if sys.argv[1] == "--run":
        return train(int(sys.argv[2]))
    if sys.argv[1] == "--run-ray":
        return train_with_ray(int(sys.argv[2]))
    program, leaky, sound = str(pathlib.Path(sys.argv[1]).resolve()), int(sys.argv[2]), int(sys.argv[3])
    for what, count, rank in (("with a leak", leaky, lambda run: run % RANKS), ("without", sound, lambda run: -1)):
        right = 0
        for run in range(count):
            is_right, message = judge(program, rank(run), "--ray" in sys.argv)
            right += is_right
            print(f"{what}, {rank(run)}: {'right' if is_right else 'not right'}: {message}", flush=True)
        print(f"{right} of {count} {what} right", flush=True)


if __name__ == "__main__":
    main()
