"""Every character of a YAML or JSON text is found where it is in the file."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.translate.documents import Mapping, Scalar, UnreadableFileError, read, scalars
from exporter.translate.edits import Edit, changed

CHARACTERS = st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], include_characters="\n\t")
TEXTS = st.text(st.one_of(st.sampled_from("ab {}\"'\\#:-\n"), CHARACTERS), max_size=60)
STYLES = ("'", '"', "|", ">", "")
YAML = """\
# a comment
literal: |  # another
  one {0}

    two
folded: >-
  one
  {0} two

  three
   deeper
deep: |2
    indented
  {0}
kept: >+
  {0}

single: 'it''s
  {0}'
double: "a \\"b\\" \\u00e9
  {0} \\
  c"
plain: one {0}
  two
anchor: &a {0}
alias: *a
flow: {{key: {0}, list: [1, "{0}"]}}
"""


def _values(text: str) -> list[Scalar]:
    """Return the scalars that are no keys, those with an alias once."""
    (document,) = read(text)
    assert isinstance(document, Mapping)
    return list({id(one): one for _, value in document.pairs for one in scalars(value)}.values())


def _with(text: str, new: str) -> str:
    """Put a text in place of each ``old`` of a file."""
    edits = []
    for scalar in _values(text):
        assert scalar.text is not None, scalar
        at = scalar.value.find("old")
        if at >= 0:
            edits.append(scalar.text.placed(Edit(at, at + 3, new)))
    return changed(text, sorted(edits))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("new", ["new", "NEW_NAME * 100", "(a + b) / 1024"])
def test_a_change_stays_within_its_words(ending: str, new: str) -> None:
    """Comments, quotes, folds, indentation, anchors and line ends stay as they were."""
    before = YAML.format("old").replace("\n", ending)

    assert _with(before, new) == YAML.format(new).replace("\n", ending)


@given(TEXTS, st.sampled_from(STYLES))
def test_any_text_in_any_style_is_understood(text: str, style: str) -> None:
    """As PyYAML writes it; what it cannot write in a style, it writes in another."""
    node = yaml.MappingNode(
        "tag:yaml.org,2002:map",
        [
            (
                yaml.ScalarNode("tag:yaml.org,2002:str", "key"),
                yaml.ScalarNode("tag:yaml.org,2002:str", f"{text}old", style=style),
            )
        ],
    )
    written = yaml.serialize(node, allow_unicode=True, width=20)

    (scalar,) = _values(written)
    assert scalar.value == yaml.safe_load(written)["key"] == f"{text}old"
    assert yaml.safe_load(_with(written, "new"))["key"] == f"{text}old".replace("old", "new", 1)


@given(TEXTS)
def test_any_text_in_json_is_understood(text: str) -> None:
    for written in (json.dumps({"key": f"{text}old"}), json.dumps({"key": f"{text}old"}, ensure_ascii=False)):
        assert json.loads(_with(written, 'new"\\'))["key"] == f"{text}old".replace("old", 'new"\\', 1)


def test_a_key_can_appear_twice() -> None:
    (document,) = read('{"a": "1", "b": [true, null, -1.5e3], "a": {"c": "2"}}')

    assert [scalar.value for scalar in scalars(document)] == [
        *("a", "1", "b", "true", "null", "-1.5e3", "a", "c", "2")
    ]


def test_templates_of_helm_are_read_over() -> None:
    """Those on lines of their own, and those within a line; what is between them is found."""
    text = """\
{{- if .Values.rules }}
groups:
  - name: {{ include "name" . }}
    {{- with .Values.labels }}
    labels:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    expr: old{job="{{ .Values.job }}"} > {{ .Values.limit }}
{{- end }}
"""
    (document,) = read(text)
    found = {scalar.value for scalar in scalars(document)}

    assert 'old{job="{{ .Values.job }}"} > {{ .Values.limit }}' in found
    assert '{{ include "name" . }}' in found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": "b"', "not JSON: Expecting ',' delimiter: line 1 column 10"),
        ("a:\n\tb: c", "not YAML: line 2, column 1: found character"),
        ('a: "\0"', "not YAML: .*control characters"),
        ("a: {{ x }\n b: [", "not YAML, also without the templates"),
        ("[" * 100_000, "nested too deeply"),
        ("a: " + "[" * 3000 + "]" * 3000, "nesting|nested"),
    ],
)
def test_broken_files_have_the_place(text: str, reason: str) -> None:
    with pytest.raises(UnreadableFileError, match=reason):
        read(text)
