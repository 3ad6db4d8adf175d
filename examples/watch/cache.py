"""A cache of decoded images for the next epoch has no bound. The control run keeps the newest 16."""

import collections

from steps import LEAK_PER_STEP, Loop, rss_bytes

CACHE_SIZE = 16

if __name__ == "__main__":
    loop = Loop(__doc__)
    cache = collections.OrderedDict()
    for step in loop:
        cache[step] = rss_bytes(LEAK_PER_STEP)
        if loop.bounded and len(cache) > CACHE_SIZE:
            cache.popitem(last=False)
