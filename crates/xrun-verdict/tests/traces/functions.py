"""As `leak.py`, in a function that mprof marks: `functions.py MIB SECONDS`."""

import sys
import time


@profile
def load(mib):
    time.sleep(0.5)
    return bytearray(b"x") * int(mib * 2**20)


kept, end = [], time.time() + float(sys.argv[2])
while time.time() < end:
    kept.append(load(float(sys.argv[1])))
