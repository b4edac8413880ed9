"""Which holders the table shows: words, lists, and what nothing matches."""

import pytest

from exporter.web.node_parameters import LONGEST, Query
from exporter.web.pages.holder_filters import Word, words_of
from tests.web.holders_reading import asked, pods


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ml/anna", ["anna"]),
        ("ANNA", ["anna"]),
        ("jupyter", ["anna"]),
        ("ns:qa", ["bench"]),
        ("pod:b", ["bench", "web"]),
        ("container:jup", ["anna"]),
        ("gpu:1", ["bench", "web"]),
        ("gpu:13", ["train 0", "old"]),
        ("gpu:gpu-13", ["train 0", "old"]),
        ("gpu:m-1", []),
        ("state:idle", ["old"]),
        ("state:over", ["web"]),
        ("slice:2g", ["train 0"]),
        ("sharing:mig", ["train 0"]),
        ("sharing:hami", ["web"]),
        ("isolation:soft", ["web"]),
        ("gpu:1 -web", ["bench"]),
        ("-ns:ml", ["bench"]),
        ('"train 0"', ["train 0"]),
        ('pod:"n 0"', ["train 0"]),
        ('"gpu:1"', []),
        ("colour:red", []),
        ("ml idle", ["old"]),
    ],
)
def test_every_word_has_to_match(text, shown) -> None:
    """A minus excludes."""
    assert pods(asked(Query(text=text).url)) == shown


def test_quotes_keep_words_together() -> None:
    assert words_of('ns:"a b" -"c d" "" "e f') == [
        Word("ns", "a b", out=False),
        Word("", "c d", out=True),
        Word("", "e f", out=False),
    ]


def test_a_minus_or_a_key_alone_is_text() -> None:
    assert words_of("- ns:") == [Word("", "-", out=False), Word("", "ns:", out=False)]


def test_namespace_gpu_and_state_narrow_the_table() -> None:
    section = asked("?namespace=ml&gpu=13&state=idle-memory")

    assert pods(section) == ["old"]
    assert section.one(id="holders-count").one("p").text == "5 holders, 1 shown"
    options = {choice.attributes["name"]: choice.all("option") for choice in section.all("select")}
    assert [option.text for option in options["namespace"]] == ["all namespaces", "ml (4)", "qa (1)"]
    assert [option.text for option in options["gpu"]] == ["all GPUs", "GPU 0 (1)", "GPU 1 (2)", "GPU 13 (2)"]
    assert [option.attributes["value"] for option in options["state"]] == [
        "",
        "over-share",
        "unheld",
        "idle-memory",
        "active",
        "unknown",
    ]
    picked = [each.text for some in options.values() for each in some if "selected" in each.attributes]
    assert picked == ["ml (4)", "GPU 13 (2)", "idle, holding memory (1)"]


def test_a_choice_without_matches_stays_in_the_list() -> None:
    section = asked("?namespace=gone")

    (picked,) = [option for option in section.all("option") if "selected" in option.attributes]
    assert picked.text == "gone (0)"


def test_an_empty_table_links_to_all_holders() -> None:
    section = asked("?q=nobody&sort=-memory&range=6h")

    panel = section.one(id="holders-unmatched")
    assert panel.text == "No holder matches this filter. Show all 5 holders"
    assert panel.one("a").attributes["href"] == "?sort=-memory&range=6h#holders"
    assert not section.all("table")


def test_a_truncated_filter_is_reported() -> None:
    assert str(LONGEST) in asked(f"?q={'x' * 5000}").one("p", of="remark").text
