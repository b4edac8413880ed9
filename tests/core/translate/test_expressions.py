"""Expressions: what becomes of each form, and which are refused."""

import random

import pytest

from exporter.translate.edits import changed
from exporter.translate.expression import translate_expression
from exporter.translate.names import TARGETS, UntranslatableError
from tests.core.translate.forms import NOT_OURS, OWN, REFUSED, TRANSLATED, UNCHANGED, WITH_VARIABLES

WORDS = (
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "foo", "$x", "${y}", "[[z]]", "[5m]", "[$w]", "[1h:]"),
    *("(", ")", "{", "}", ",", "+", "-", "*", "/", "^", "%", "==", ">", "and", "or", "unless", "bool", "on"),
    *("ignoring", "group_left", "by", "without", "sum", "count", "topk", "rate", "absent", "label_replace"),
    *('"a"', "'b'", "`c`", "5", "1024", "1e3", "0x1F", ".5", "Inf", "NaN", "offset", "@", "start", "end"),
    *("=", "=~", 'gpu="0"', "Hostname", "(Hostname)", "# note", "\n", "é", "\0", "{{x}}", "{{", "::"),
)


def translated(text: str, target: str = "dcgm-4.9") -> str:
    return changed(text, translate_expression(text, TARGETS[target]).edits)


@pytest.mark.parametrize("text", [*TRANSLATED, *WITH_VARIABLES])
def test_a_form_becomes_what_a_person_would_write(text: str) -> None:
    assert translated(text) == (TRANSLATED | WITH_VARIABLES)[text]


@pytest.mark.parametrize("text", [*UNCHANGED, *TRANSLATED.values(), *WITH_VARIABLES.values()])
def test_what_has_no_old_name_stays_byte_for_byte(text: str) -> None:
    """Also a translation itself: to translate twice does no harm."""
    assert translated(text) == text


@pytest.mark.parametrize(("text", "reason"), REFUSED.items())
def test_what_cannot_be_translated_has_its_reason(text: str, reason: str) -> None:
    with pytest.raises(UntranslatableError, match=reason):
        translated(text)


@pytest.mark.parametrize("text", OWN)
def test_our_own_series_have_their_own_units_and_labels(text: str) -> None:
    assert translated(text, "gpuslice") == OWN[text]


@pytest.mark.parametrize(("text", "reason"), NOT_OURS.items())
def test_what_our_series_do_not_have_has_its_reason(text: str, reason: str) -> None:
    with pytest.raises(UntranslatableError, match=reason):
        translated(text, "gpuslice")


def test_kept_names_stay() -> None:
    names = TARGETS["dcgm-4.9"].keep(["DCGM_FI_DEV_GPU_UTIL"])
    text = 'DCGM_FI_DEV_GPU_UTIL{Hostname="h0"} / DCGM_FI_DEV_FB_USED'

    new = changed(text, translate_expression(text, names).edits)

    assert new == 'DCGM_FI_DEV_GPU_UTIL{hostname="h0"} / DCGM_FI_DEV_FB_USED_BYTES * 1024 * 1024'


def test_records_of_dcgm_have_its_labels() -> None:
    """Their names stay, and so does their unit."""
    names = TARGETS["dcgm-4.9"].with_records(["gpu:util"])
    text = "sum by (Hostname) (gpu:util) * on (Hostname) group_left () DCGM_FI_DEV_GPU_UTIL"

    new = changed(text, translate_expression(text, names).edits)

    assert new == (
        "sum by (hostname) (gpu:util) * on (hostname) group_left () DCGM_FI_DEV_GPU_UTIL_RATIO * 100"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(" * 5000 + "DCGM_FI_DEV_GPU_UTIL" + ")" * 5000, "more than 3000 words"),
        ("(" * 101 + "DCGM_FI_DEV_GPU_UTIL" + ")" * 101, "nested deeper than 100"),
        ("-" * 2000 + "DCGM_FI_DEV_GPU_UTIL", "nested deeper than 100"),
        ("+".join(["DCGM_FI_DEV_GPU_UTIL"] * 1400), "nested too deeply"),
        ("DCGM_FI_DEV_GPU_UTIL" + " + $a" * 20, "more than 6 variables"),
        ("DCGM_FI_DEV_GPU_UTIL offset Inf", "cannot be parsed"),
        ('DCGM_FI_DEV_GPU_UTIL{a="\ud800"}', "cannot be parsed"),
    ],
)
def test_hostile_expressions_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UntranslatableError, match=reason):
        translated(text)


def test_a_range_without_an_end_is_refused_at_once() -> None:
    """A pattern that backtracks would take years for this one."""
    text = "max_over_time(DCGM_FI_DEV_GPU_UTIL[5m " + "$interval5m " * 60

    with pytest.raises(UntranslatableError, match="not expected"):
        translated(text)


def test_numbers_of_any_size_are_harmless() -> None:
    assert translated("DCGM_FI_DEV_GPU_UTIL * 1e99^64^64").endswith(" * 1e99^64^64 * 100")
    assert translated(f"DCGM_FI_DEV_GPU_UTIL * {'9' * 5000}").endswith("9 * 100")


@pytest.mark.parametrize("seed", range(4))
def test_nonsense_is_refused_or_translated(seed: int) -> None:
    """Any sequence of words; a translation is always an expression itself."""
    source = random.Random(seed)  # noqa: S311 - nothing secret
    done = 0
    reasons = set()
    for _ in range(400):
        text = source.choice(("", " ")).join(source.choices(WORDS, k=source.randrange(1, 13)))
        try:
            translate_expression(f"DCGM_FI_DEV_GPU_UTIL {text}", TARGETS["dcgm-4.9"])
            done += 1
        except UntranslatableError as error:
            reasons.add(str(error))

    assert done
    assert not [reason for reason in reasons if "its translation is not valid" in reason]
