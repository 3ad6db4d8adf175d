"""Keeps MIB more each tenth of a second, for SECONDS: `leak.py MIB SECONDS`."""

import sys
import time

mib, seconds = float(sys.argv[1]), float(sys.argv[2])
kept, end = [], time.time() + seconds
while time.time() < end:
    kept.append(bytearray(b"x") * int(mib * 2**20))
    time.sleep(0.1)
