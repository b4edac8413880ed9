"""Inputs for hypothesis: valid ones with a few changes, each of a kind that a file or an answer suffers.

A change that shuts the door of the decoder is mostly taken back, so that most inputs have several changes
behind it; and one in four ends with a change that may be anything.
"""

import re
from collections.abc import Iterator, Sequence
from random import Random

from hypothesis import strategies as st

from tests.together.fuzz.door import Door
from tests.together.fuzz.target import Target

# What numbers, texts and records of any format turn on.
WORDS = (
    b"", b"\0", b"-1", b"0", b"1" + b"0" * 400, b"9" * 5000, b"1e999", b"nan", b"Infinity", b"null", b"true",
    b"[]", b"{}", b'""', b"[" * 2000, b'{"a":' * 500, b"\xff\xff\xff\xff", b"\xff" * 8, b"\x80",
    b"\xed\xa0\x80", b"\\ud800", "٣".encode(), b"\x1e", b"\n", b" ", b",", b":", b";", b"/", b'"',
)  # fmt: skip
# The parts that valid texts are made of: quoted texts, numbers, words, and marks between them.
_TOKENS = (rb'"[^"]*"', rb"-?[0-9]+(?:\.[0-9]+)?", rb"[A-Za-z_]+", rb"[^\sA-Za-z0-9_\"]")
# Parts of a text, and what can stand in the place of one: such a text is mostly a text still.
_LIKE = (
    (
        re.compile(rb'(?<=")[^"\\]*(?=")'),
        (b"", b"x", b"0", b"-1", b"9999999999999999999", b"GPU-1", "é".encode(), b"8Gi"),
    ),
    (
        re.compile(rb"-?[0-9]+(?:\.[0-9]+)?"),
        (b"0", b"1", b"7", b"100", b"-1", b"2147483648", b"18446744073709551616", b"0.5"),
    ),
    (re.compile(rb"[A-Za-z0-9_-]{2,}"), (b"x", b"true", b"null", b"nan", b"0", b"GPU-0")),
)
# Whole numbers at the edges of what a field of a record can be, and the sizes of such fields.
_NUMBERS = (0, 1, 2, 5, 100, 101, 255, 1 << 15, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, 1 << 63, -1, -2)
_SIZES = (1, 2, 4, 8)
_LENGTHS = (0, 1, 1, 2, 4, 8, 32, 4096)
# Of any name, one of the same length is a name.
_LETTERS = b"0123456789abcdefxyzAZ-_.:/"
# Of long inputs, so many places are spread over the whole.
MOST_PLACES = 24
# Longer ones are only exchanged: many in one input would take all the time.
LONGEST_WORD = 500
# So often is a change tried that must not shut the door.
TRIES = 24
# The part of all inputs that end with a change of any kind, whatever comes of it.
ROUGH = 0.25


def exchanged(target: Target) -> Iterator[bytes]:
    """Yield the seeds with one of their parts exchanged for each of the words, one at a time."""
    for seed in dict.fromkeys(target.seeds()):
        spans = sorted({match.span() for token in _TOKENS for match in re.finditer(token, seed)})
        for begin, end in (*spans[:: 1 + len(spans) // MOST_PLACES], (0, len(seed)), (len(seed), len(seed))):
            for word in (*WORDS, *target.words):
                yield seed[:begin] + word + seed[end:]


def inputs_of(target: Target, door: Door) -> st.SearchStrategy[bytes]:
    """Make inputs for a target: a seed, and up to four edits of it."""
    editor = Editor(door, [word for word in (*WORDS, *target.words) if len(word) <= LONGEST_WORD])
    # Edits are picked by a generator of their own: hypothesis would take longer to pick them than they take.
    return st.builds(
        editor.edited, st.sampled_from(editor.seeds), st.randoms(use_true_random=True), st.integers(1, 4)
    )


class Editor:
    """Edits the inputs of one target, which are those of ``seeds`` at first."""

    def __init__(self, door: Door, words: Sequence[bytes]) -> None:
        self.seeds = door.seeds()
        self._door, self._words = door, words
        # Those that leave a text a text and a record a record stand more than once.
        self._edits = (
            *(self._exchange, self._exchange, self._letter, self._overwrite, self._overwrite),
            *(self._put, self._flip, self._repeat, self._cut, self._splice),
        )

    def edited(self, content: bytes, random: Random, count: int) -> bytes:
        """Edit an input so many times; what shuts the door is taken back, but for one last edit in four."""
        for _ in range(TRIES):
            if not count:
                break
            changed = self._edit(content, random)
            if changed != content and (self._door.opens(changed) or not self._door.opens(content)):
                content, count = changed, count - 1
        return self._edit(content, random) if random.random() < ROUGH else content

    def _edit(self, content: bytes, random: Random) -> bytes:
        return random.choice(self._edits)(content, random)

    def _exchange(self, content: bytes, random: Random) -> bytes:
        """Put in the place of a part of a text another of its kind, or a word, or what stands elsewhere."""
        pattern, words = random.choice(_LIKE)
        spans = [match.span() for match in pattern.finditer(content)]
        if not spans:
            return content
        (begin, end), other = random.choice(spans), slice(*random.choice(spans))
        found = random.choice((random.choice(words), content[other], random.choice(self._words)))
        return content[:begin] + found + content[end:]

    def _letter(self, content: bytes, random: Random) -> bytes:
        """Write one letter for another."""
        place = random.randrange(len(content) or 1)
        return content[:place] + bytes([random.choice(_LETTERS)]) + content[place + 1 :]

    def _overwrite(self, content: bytes, random: Random) -> bytes:
        """Put a number of some bytes where one of that size can lie; the length stays as it is."""
        size, number = random.choice(_SIZES), random.choice((*_NUMBERS, random.getrandbits(64)))
        begin = random.randrange(len(content) + 1) // size * size
        written = (number % (1 << 8 * size)).to_bytes(size, "little")[: len(content) - begin]
        return content[:begin] + written + content[begin + len(written) :]

    def _put(self, content: bytes, random: Random) -> bytes:
        """Put a word in the place of some bytes."""
        place, length = random.randrange(len(content) + 1), random.choice(_LENGTHS)
        word = random.choice((random.choice(self._words), random.randbytes(random.randrange(9))))
        return content[:place] + word + content[place + length :]

    def _flip(self, content: bytes, random: Random) -> bytes:
        if not content:
            return content
        place = random.randrange(len(content))
        return content[:place] + bytes([content[place] ^ 1 << random.randrange(8)]) + content[place + 1 :]

    def _repeat(self, content: bytes, random: Random) -> bytes:
        place, length = random.randrange(len(content) + 1), random.choice(_LENGTHS)
        part = content[place : place + length] * random.choice((2, 3, 40))
        return content[:place] + part + content[place + length :]

    def _cut(self, content: bytes, random: Random) -> bytes:
        return content[: random.randrange(len(content) + 1)]

    def _splice(self, content: bytes, random: Random) -> bytes:
        """Go on as another input does, from the same place or from another."""
        seed, place = random.choice(self.seeds), random.randrange(len(content) + 1)
        return content[:place] + seed[random.choice((place, random.randrange(len(seed) + 1))) :]
