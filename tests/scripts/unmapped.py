import os, sys, time
file = os.memfd_create("buffer")
for n in range(1, 201):
    if len(sys.argv) < 2:
        os.write(file, b"x" * 262_144)
    print(f"step {n} loss {1 / n:.4f}", flush=True)
    time.sleep(0.008)
