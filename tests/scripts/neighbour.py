import os, sys, time
with open(sys.argv[1], "wb") as file:
    for _ in range(6000):
        file.write(b"x" * 262_144)
        file.flush()
        time.sleep(0.01)
