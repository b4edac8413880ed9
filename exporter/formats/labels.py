"""Labels of pods as text."""

from collections.abc import Iterable, Sequence

from exporter.wording import short_names

_MOST_LABELS, _LONGEST_LABEL = 3, 40


def label_texts(labels: Iterable[tuple[str, str]]) -> list[str]:
    """Return labels as ``name=value``."""
    return [f"{name}={value}" for name, value in labels]


def short_labels(labels: Sequence[tuple[str, str]]) -> str:
    """Return the first labels without the prefixes of their names, each of limited length, as one text."""
    names = short_names([name for name, _ in labels])
    texts = [f"{name}={value}" for name, (_, value) in zip(names, labels, strict=True)]
    shown = [_cut(text) for text in texts[:_MOST_LABELS]]
    more = [f"+{len(texts) - len(shown)}"] if len(texts) > len(shown) else []
    return " ".join([*shown, *more])


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"
