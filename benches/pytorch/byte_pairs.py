"""Byte-level BPE, learned as `xrun_data::tokenizer` learns it (Hugging Face's trainer): the same words give the same tokens. ASCII only."""
import collections
import re

END_OF_TEXT = 0
# GPT-2's pattern for ASCII.
PATTERN = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def letters():
    """GPT-2's letter of each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


class BytePairs:
    def __init__(self, texts, size):
        """Learns up to `size` tokens from pairs of a text and the number of times that it occurs."""
        counts = collections.Counter()
        for text, times in texts:
            for word in PATTERN.findall(text):
                counts[word] += times
        of_byte = letters()
        tokens = {letter: number for number, letter in enumerate(["<|endoftext|>", *sorted(of_byte)])}
        self.first = [tokens[letter] for letter in of_byte]
        self.ranks, self.known = {}, {}
        names = list(tokens)
        words = [([self.first[byte] for byte in word.encode()], count) for word, count in counts.items()]
        while len(names) < size:
            pairs = collections.Counter()
            for word, count in words:
                for pair in zip(word, word[1:]):
                    pairs[pair] += count
            pair = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
            if pair is None or pairs[pair] < 2:
                break
            name = names[pair[0]] + names[pair[1]]
            if name not in tokens:
                tokens[name] = len(names)
                names.append(name)
            self.ranks[pair] = (len(self.ranks), tokens[name])
            words = [(merged(word, pair, tokens[name]), count) for word, count in words]
        # A letter is a byte; the end of a text is none of it.
        self.bytes = [0, *map(len, names[1:])]

    def encode(self, text):
        return [token for word in PATTERN.findall(text) for token in self.word(word)]

    def word(self, word):
        if word not in self.known:
            tokens = [self.first[byte] for byte in word.encode()]
            while pairs := [pair for pair in zip(tokens, tokens[1:]) if pair in self.ranks]:
                pair = min(pairs, key=self.ranks.get)
                tokens = merged(tokens, pair, self.ranks[pair][1])
            self.known[word] = tokens
        return self.known[word]


def merged(word, pair, token):
    result, at = [], 0
    while at < len(word):
        found = tuple(word[at : at + 2]) == pair
        result.append(token if found else word[at])
        at += 1 + found
    return result
