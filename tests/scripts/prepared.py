import glob, os, sys, time
def sampled():
    """Waits until more samples of the watcher, which may be late, are written; ten seconds at most."""
    size = lambda: sum(os.path.getsize(path) for path in glob.glob("results/*/latest/memory.jsonl"))
    before, begun = size(), time.time()
    while size() == before and time.time() < begun + 10:
        time.sleep(0.005)
for n in range(0, 401, 40):
    sys.stderr.write(f"\r {n // 4}%|##   | {n}/400 [00:01<00:02, 99it/s]")
    sys.stderr.flush()
    time.sleep(0.03)
kept = []
for n in range(1, 201):
    kept.append(bytearray(b"x") * 262_144)
    print(f"step {n} loss {1 / n:.4f}", flush=True)
    time.sleep(0.008)
    if n % 8 == 0:
        sampled()
