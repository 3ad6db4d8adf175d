"""The random numbers of xrun, so that its twins draw the same batches: ChaCha with 8 rounds, and what the crate `rand` 0.10 makes of it.

`Draws` is `xrun_core::seed::generator`, `Permutation` is `xrun_data::order`. `QuickDraws` has the same methods on Python's own
generator, for training: a Python program has no reason to compute ChaCha.
"""
import functools
import hashlib
import random
import struct

import numpy as np

WORD = 2**32
# Blocks of 16 words that are computed at a time.
BLOCKS = 16


class Draws:
    def __init__(self, seed, purpose, number):
        self.key = hashlib.sha256(struct.pack("<IQ", seed, number) + purpose.encode()).digest()
        self.counter, self.words, self.at = 0, [], 0

    def refill(self):
        constants = np.frombuffer(b"expand 32-byte k", "<u4")
        counters = np.arange(self.counter, self.counter + BLOCKS, dtype="u4")
        first = [np.full(BLOCKS, word, "u4") for word in (*constants, *np.frombuffer(self.key, "<u4"))]
        first += [counters, *(np.zeros(BLOCKS, "u4") for _ in range(3))]
        state = [word.copy() for word in first]

        def quarter(a, b, c, d):
            for one, other, target, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                state[one] = state[one] + state[other]
                mixed = state[target] ^ state[one]
                state[target] = (mixed << np.uint32(bits)) | (mixed >> np.uint32(32 - bits))

        for _ in range(4):
            for column in range(4):
                quarter(column, 4 + column, 8 + column, 12 + column)
            for column in range(4):
                quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
        self.words = np.stack([mixed + word for mixed, word in zip(state, first)], 1).ravel().tolist()
        self.counter, self.at = self.counter + BLOCKS, 0

    def u32(self):
        if self.at == len(self.words):
            self.refill()
        self.at += 1
        return self.words[self.at - 1]

    def u64(self):
        low = self.u32()
        return self.u32() << 32 | low

    def below(self, bound):
        """`random_range(0..bound)`: Canon's method."""
        high, low = divmod(self.u32() * bound, WORD)
        if low > WORD - bound:
            high += low + (self.u32() * bound >> 32) >= WORD
        return high

    def uniform(self, low, high):
        """`random_range(low..=high)` of 32-bit floats."""
        low, high = np.float32(low), np.float32(high)
        return np.float32((self.u32() >> 9) / 2**23) * (high - low) + low

    def uniform64(self):
        """`random::<f64>()`."""
        return (self.u64() >> 11) / 2**53

    def coin(self):
        """`random_bool(0.5)`."""
        return self.u64() < 2**63

    def shuffle(self, items):
        chunk, remaining = 0, 1
        for at in range(len(items)):
            if remaining == 0:
                bound, end = at + 1, at + 2
                while bound * end < WORD:
                    bound, end = bound * end, end + 1
                chunk, remaining = self.below(bound), end - at - 1
            remaining -= 1
            chunk, other = divmod(chunk, at + 1) if remaining else (0, chunk)
            items[at], items[other] = items[other], items[at]

    def sample(self, length, count):
        """`index::sample` by Floyd's algorithm, which it uses for fewer than 12."""
        assert count < 12, count
        found = []
        for last in range(length - count, length):
            drawn = self.below(last + 1)
            if drawn in found:
                found[found.index(drawn)] = last
            found.append(drawn)
        return found


class QuickDraws(random.Random):
    def __init__(self, seed, purpose, number):
        super().__init__(f"{seed} {purpose} {number}")

    below, sample = random.Random.randrange, lambda self, length, count: random.Random.sample(self, range(length), count)

    def coin(self):
        return self.random() < 0.5


class Permutation:
    """Order of `count` items: a Feistel network of four rounds over the next power of four."""

    def __init__(self, seed, purpose, epoch, count):
        draws = Draws(seed, purpose, epoch)
        self.count, self.bits = count, max(-(-(count - 1).bit_length() // 2), 1)
        self.keys = [draws.u64() for _ in range(4)]

    def __call__(self, position):
        position = self.shuffled(position)
        while position >= self.count:
            position = self.shuffled(position)
        return position

    def shuffled(self, value):
        mask, all_bits = 2**self.bits - 1, 2**64 - 1
        left, right = value >> self.bits, value & mask
        for key in self.keys:
            mixed = right ^ key
            mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & all_bits
            mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & all_bits
            left, right = right, left ^ (mixed ^ mixed >> 31) & mask
        return left << self.bits | right


permutation = functools.lru_cache(8)(Permutation)


def items_of_batch(seed, purpose, number, size, count):
    """`xrun_training::epochs::items_of_batch`: items in the order of their epochs."""
    positions = range(number * size, (number + 1) * size)
    orders = {epoch: permutation(seed, purpose, epoch, count) for epoch in {position // count for position in positions}}
    return [orders[position // count](position % count) for position in positions]
