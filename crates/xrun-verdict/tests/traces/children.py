"""Two children, of which the first leaks: `children.py MIB SECONDS`."""

import subprocess
import sys

mib, seconds = sys.argv[1:3]
jobs = [subprocess.Popen([sys.executable, "leak.py", rate, seconds]) for rate in (mib, "0")]
for job in jobs:
    job.wait()
