"""Decoded pictures are kept for the next epoch, without a bound. The twin keeps the newest sixteen."""

import collections

from steps import KEPT, Loop, filled

KEPT_MAX = 16

if __name__ == "__main__":
    loop = Loop(__doc__)
    cache = collections.OrderedDict()
    for step in loop:
        cache[step] = filled(KEPT)
        if loop.bounded and len(cache) > KEPT_MAX:
            cache.popitem(last=False)
