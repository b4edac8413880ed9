"""The results of a long run: a table, and findings as tests."""

import json

from tests.together.fuzz.report import Outcome, keep, kept, outcome_of, regression, table
from tests.together.fuzz.test_targets import BY_NAME

DONE = {
    "target": "b",
    "inputs": 1000000,
    "seconds": 41.26,
    "slowest": 0.0021,
    "megabytes": 90,
    "findings": {},
}


def test_a_run_is_read_from_its_output(tmp_path) -> None:
    """The figures are those of the last line, the edges those of the last line of libFuzzer."""
    output = f"#2 INITED cov: 3 ft: 4\n#99 NEW    cov: 17 ft: 34 corp: 1\n{json.dumps(DONE)}\n"

    assert outcome_of("b", output, tmp_path) == Outcome(**DONE, edges=17)


def test_a_run_without_an_end_is_a_finding(tmp_path) -> None:
    """LibFuzzer ends a process that hangs or takes too much memory; the finding is its input."""
    (tmp_path / "a-timeout-00ff").write_bytes(b"x")

    assert outcome_of("a", "ALARM: working on the last Unit", tmp_path).findings == {
        "timeout": str(tmp_path / "a-timeout-00ff")
    }
    assert outcome_of("b", "", tmp_path).findings == {"ended": str(tmp_path / "b.log")}


def test_a_table_has_a_row_for_each_target_and_their_sum() -> None:
    found = Outcome(
        target="a", inputs=5, seconds=1, slowest=0.5, megabytes=1, edges=2, findings={"slow": "x"}
    )
    text = table([Outcome(**DONE, edges=17), found], "a machine")

    assert text.splitlines()[-3:] == [
        "| a | 5 | 1 | 2 | 500.0 ms | 1 |",
        "| b | 1 000 000 | 41 | 17 | 2.1 ms | 0 |",
        "| **all 2** | 1 000 005 | 42 | 19 | 500.0 ms | 1 |",
    ]


def test_the_last_run_of_each_target_is_kept(tmp_path) -> None:
    """A run of hours can be made in parts. A target that never ran has no row."""
    keep(Outcome(**DONE, edges=1), tmp_path)
    last = Outcome(**DONE, edges=17)
    keep(last, tmp_path)

    assert kept(["a", "b"], tmp_path) == [last]


def test_a_finding_is_printed_as_a_test() -> None:
    seen: list[tuple[object, bytes]] = []
    names = {"BY_NAME": BY_NAME, "examine": lambda *given: seen.append(given), "base64": __import__("base64")}
    exec(regression("text-hami", "ValueError x.py:f", b"\xff'\"", "build/x"), names)  # noqa: S102 - as pytest would
    names["test_text_hami_valueerror_x_py_f"]()

    assert seen == [(BY_NAME["text-hami"], b"\xff'\"")]
