"""Thresholds of one's own: what they change, and what is said of those that cannot be used."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from alerts.thresholds import ThresholdError, load_thresholds
from alerts.write import ALERTS, RECORDING, rule_files


def own(folder: Path, text: str) -> Path:
    """Write a file of thresholds."""
    file = folder / "mine.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[network]\nspeed = 1\n", "no section is called 'network'; there are rules, exporter, hardware"),
        ("[hardware]\nlost = '3m'\n", "[hardware] has no 'lost'; it has lost_for, "),
        ("[hardware]\nlost_for = 3\n", "[hardware] lost_for is 3, and must be text"),
        ("[hardware]\nlost_for = 'soon'\n", "[hardware] lost_for is 'soon', and must be a time such as 90s"),
        ("[hardware]\nlost_for = '3 m'\n", "[hardware] lost_for is '3 m', and must be a time"),
        ("[hardware]\nlost_for = ''\n", "[hardware] lost_for is '', and must be a time"),
        ("[hardware]\nxid_burst = '20'\n", "[hardware] xid_burst is '20', and must be a number of 0 or more"),
        ("[hardware]\nxid_burst = -1\n", "[hardware] xid_burst is -1, and must be a number of 0 or more"),
        ("[hardware]\nxid_burst = true\n", "[hardware] xid_burst is True, and must be a number of 0 or more"),
        ("lost_for = '3m'\n", "'lost_for' is outside of a section such as [sharing]"),
        ("[hardware\n", "Expected ']'"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_of(text: str, said: str, tmp_path: Path) -> None:
    """The error names the file, the section and the key, and what should stand there."""
    file = own(tmp_path, text)
    with pytest.raises(ThresholdError) as error:
        load_thresholds(file)
    assert str(error.value).startswith(f"{file}: ")
    assert said in str(error.value)


@pytest.mark.parametrize("content", [None, b"[hardware]\nlost_for = '\xff'\n"], ids=["missing", "not UTF-8"])
def test_a_file_that_cannot_be_read_is_told_of(content: bytes | None, tmp_path: Path) -> None:
    """A file that is not there, or is no text, is an error that names it."""
    file = tmp_path / "mine.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ThresholdError, match=r"mine\.toml"):
        load_thresholds(file)


def test_a_standard_that_lacks_a_key_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A key that stands neither in the standard file nor in one's own is an error that names it."""
    standard = Path("alerts/thresholds.toml").read_text()
    less = own(tmp_path, standard.replace('lost_for = "3m"\n', ""))
    monkeypatch.setattr("alerts.thresholds.STANDARD", less)
    with pytest.raises(ThresholdError, match=r"\[hardware\] lacks lost_for"):
        load_thresholds()


def test_a_partial_file_changes_its_keys_only(tmp_path: Path) -> None:
    """Of all alerts only the one whose number is in the file is written otherwise."""
    numbers = load_thresholds(own(tmp_path, '[hardware]\nlost_for = "7m"\n'))
    before, after = rule_files(load_thresholds()), rule_files(numbers)
    changed = {path for path in before if before[path] != after[path]}
    assert RECORDING not in changed
    rules = [
        {rule["alert"]: rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]}
        for text in (before[ALERTS], after[ALERTS])
    ]
    assert [name for name in rules[0] if rules[0][name] != rules[1][name]] == ["GpuSliceGpuLost"]
    assert rules[1]["GpuSliceGpuLost"]["for"] == "7m"


def test_the_program_writes_rules_by_a_file(tmp_path: Path) -> None:
    """``python -m alerts --thresholds FILE --output DIR`` writes all files there, with the file's numbers."""
    file = own(tmp_path, "[hardware]\nxid_burst = 77\n")
    ran = call("--thresholds", str(file), "--output", str(tmp_path / "out"))
    assert (ran.returncode, ran.stderr) == (0, "")
    written = {path: (tmp_path / "out" / path).read_text() for path in rule_files(load_thresholds())}
    assert written == rule_files(load_thresholds(file))
    assert ">= 77" in written[ALERTS]


def test_the_program_refuses_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    """A file that cannot be used ends the program with 2 and one line, and nothing is written."""
    file = own(tmp_path, "[hardware]\nlost_for = 3\n")
    ran = call("--thresholds", str(file), "--output", str(tmp_path / "out"))
    assert ran.returncode == 2
    assert ran.stderr == f"error: {file}: [hardware] lost_for is 3, and must be text\n"
    assert not (tmp_path / "out").exists()


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program that writes the rules."""
    command = [sys.executable, "-m", "alerts", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
