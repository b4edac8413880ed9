"""How names, texts and numbers are spelt in both exposition formats, and a cache of label strings."""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

_SPECIAL = re.compile('[\\\\"\n\ud800-\udfff]')
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})

ODD_NUMBERS: Mapping[str, str] = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf", "True": "1", "False": "0"}
"""The few values whose repr is not how the formats spell them."""

_Names: TypeAlias = tuple[str, ...]


def encodable(text: str) -> str:
    """Replace what UTF-8 cannot carry (lone surrogates, from undecodable bytes) by U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def escape(value: str) -> str:
    """Escape a label value: backslash, quote and newline; most values need nothing."""
    return encodable(value).translate(_ESCAPES) if _SPECIAL.search(value) else value


def escape_help(text: str, *, openmetrics: bool) -> str:
    """Escape a help text; only OpenMetrics escapes quotes there."""
    return encodable(text).translate(_ESCAPES if openmetrics else _HELP_ESCAPES)


def label_set(names: _Names, values: _Names) -> str:
    """Spell the labels that identify an entity, braces included; nothing when there are none."""
    inner = ",".join([f'{name}="{escape(value)}"' for name, value in zip(names, values, strict=True)])
    return f"{{{inner}}}" if inner else ""


def extra_labels(names: _Names, values: _Names) -> str:
    """Spell labels that follow others, without braces; an empty value means no such label."""
    pairs = zip(names, values, strict=True)
    return ",".join([f'{name}="{escape(value)}"' for name, value in pairs if value])


def join_labels(labels: str, extra: str) -> str:
    """Put extra labels at the end of a label set."""
    if not extra:
        return labels
    return f"{labels[:-1]},{extra}}}" if labels else f"{{{extra}}}"


class LabelCache:
    """Label strings by what is in them. What was not asked for since the last turn is forgotten then."""

    def __init__(self, spell: Callable[[_Names, _Names], str]) -> None:
        self._spell = spell
        self._before: dict[tuple[_Names, _Names], str] = {}
        self._now: dict[tuple[_Names, _Names], str] = {}

    def __len__(self) -> int:
        return len(self._before | self._now)

    def text(self, names: _Names, values: _Names) -> str:
        """Give the string of these labels, spelling it only if it is new."""
        key = (names, values)
        text = self._now.get(key)
        if text is None:
            text = self._before.get(key)
            self._now[key] = text = self._spell(names, values) if text is None else text
        return text

    def turn(self) -> None:
        """End a snapshot: keep what it used, drop the rest."""
        self._before, self._now = self._now, {}
