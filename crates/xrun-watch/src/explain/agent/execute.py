"""Makes another process of this Python execute a file, and prints a word on the outcome and a reason."""

import sys

try:
    execute = sys.remote_exec
except AttributeError:
    print("older %d.%d" % sys.version_info[:2])
else:
    try:
        execute(int(sys.argv[1]), sys.argv[2])
    except PermissionError as error:
        print("forbidden %s" % error)
    except Exception as error:
        print("failed %s" % error)
    else:
        print("done")
