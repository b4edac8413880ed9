"""Inputs for hypothesis: valid ones with a few changes, each of a kind that a file or an answer suffers."""

import re
from collections.abc import Callable, Iterator, Sequence

from hypothesis import strategies as st

from tests.fuzz.target import Target

Edit = Callable[[bytes], bytes]

# What numbers, texts and records of any format turn on.
WORDS = (
    b"", b"\0", b"-1", b"0", b"1" + b"0" * 400, b"9" * 5000, b"1e999", b"nan", b"Infinity", b"null", b"true",
    b"[]", b"{}", b'""', b"[" * 2000, b'{"a":' * 500, b"\xff\xff\xff\xff", b"\xff" * 8, b"\x80",
    b"\xed\xa0\x80", b"\\ud800", "٣".encode(), b"\x1e", b"\n", b" ", b",", b":", b";", b"/", b'"',
)  # fmt: skip


# The parts that valid texts are made of: quoted texts, numbers, words, and marks between them.
_TOKENS = (rb'"[^"]*"', rb"-?[0-9]+(?:\.[0-9]+)?", rb"[A-Za-z_]+", rb"[^\sA-Za-z0-9_\"]")
# Of long inputs, so many places are spread over the whole.
MOST_PLACES = 24


def exchanged(target: Target) -> Iterator[bytes]:
    """Yield the seeds with one of their parts exchanged for each of the words, one at a time."""
    for seed in dict.fromkeys(target.seeds()):
        spans = sorted({match.span() for token in _TOKENS for match in re.finditer(token, seed)})
        for begin, end in (*spans[:: 1 + len(spans) // MOST_PLACES], (0, len(seed)), (len(seed), len(seed))):
            for word in (*WORDS, *target.words):
                yield seed[:begin] + word + seed[end:]


def inputs_of(target: Target) -> st.SearchStrategy[bytes]:
    """Make inputs for a target: a seed, and up to four edits of it."""
    seeds = [seed for seed in target.seeds() if seed]
    words = st.sampled_from((*WORDS, *target.words)) | st.binary(max_size=8)
    edits = st.lists(_edits(words, seeds), max_size=4)
    return st.builds(_edited, st.sampled_from(seeds), edits)


def _edited(content: bytes, edits: Sequence[Edit]) -> bytes:
    for edit in edits:
        content = edit(content)
    return content


def _edits(words: st.SearchStrategy[bytes], seeds: Sequence[bytes]) -> st.SearchStrategy[Edit]:
    # Places are parts of the whole, so that they mean something at any length.
    places = st.integers(0, 4095)
    lengths = st.sampled_from((0, 1, 1, 2, 4, 8, 32, 4096))
    return st.one_of(
        st.builds(_put, places, lengths, words),
        st.builds(_put, places, lengths, words),
        st.builds(_flip, places, st.integers(0, 7)),
        st.builds(_repeat, places, lengths, st.sampled_from((2, 3, 40))),
        st.builds(_cut, places),
        st.builds(_splice, places, places, st.sampled_from(seeds)),
    )


def _at(content: bytes, place: int) -> int:
    return place * len(content) // 4095


def _put(place: int, length: int, word: bytes) -> Edit:
    """Put a word in the place of so many bytes."""
    return lambda content: content[: _at(content, place)] + word + content[_at(content, place) + length :]


def _flip(place: int, bit: int) -> Edit:
    def edit(content: bytes) -> bytes:
        at = min(_at(content, place), len(content) - 1)
        return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :] if content else content

    return edit


def _repeat(place: int, length: int, times: int) -> Edit:
    def edit(content: bytes) -> bytes:
        at = _at(content, place)
        return content[:at] + content[at : at + length] * times + content[at + length :]

    return edit


def _cut(place: int) -> Edit:
    return lambda content: content[: _at(content, place)]


def _splice(place: int, other: int, seed: bytes) -> Edit:
    """Go on as another input does."""
    return lambda content: content[: _at(content, place)] + seed[_at(seed, other) :]
