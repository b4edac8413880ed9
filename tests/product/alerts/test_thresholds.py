"""Files of thresholds: what they change, and the errors of unusable ones."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from alerts.thresholds import ThresholdError, load_thresholds
from alerts.write import ALERTS, RECORDING, rule_files

STANDARD = rule_files(load_thresholds())


def write_file(folder: Path, text: str) -> Path:
    """Return a file of thresholds."""
    file = folder / "mine.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_an_unusable_file_is_refused_with_section_and_key(text: str, message: str, tmp_path: Path) -> None:
    file = write_file(tmp_path, text)
    with pytest.raises(ThresholdError) as error:
        load_thresholds(file)
    assert str(error.value).startswith(f"{file}: ")
    assert message in str(error.value)


@pytest.mark.parametrize("content", [None, b"[hardware]\nlost_for = '\xff'\n"], ids=["missing", "not UTF-8"])
def test_an_unreadable_file_is_refused_by_name(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ThresholdError, match=r"mine\.toml"):
        load_thresholds(file)


def test_a_key_that_the_standard_file_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    standard = Path("alerts/thresholds.toml").read_text()
    less = write_file(tmp_path, standard.replace('lost_for = "3m"\n', ""))
    monkeypatch.setattr("alerts.thresholds.STANDARD", less)
    with pytest.raises(ThresholdError, match=r"\[hardware\] lacks lost_for"):
        load_thresholds()


def test_the_program_writes_rules_with_the_thresholds_of_a_file(tmp_path: Path) -> None:
    """Only the alert whose threshold is in the file is changed."""
    file = write_file(tmp_path, '[hardware]\nlost_for = "7m"\n')
    done = run("--thresholds", str(file), "--output", str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (0, "")
    written = {path: (tmp_path / "out" / path).read_text() for path in STANDARD}
    assert written[RECORDING] == STANDARD[RECORDING]
    before, after = (
        {
            rule["alert"]: rule
            for group in yaml.load(text, yaml.CSafeLoader)["groups"]
            for rule in group["rules"]
        }
        for text in (STANDARD[ALERTS], written[ALERTS])
    )
    assert [name for name in before if before[name] != after[name]] == ["GpuSliceGpuLost"]
    assert after["GpuSliceGpuLost"]["for"] == "7m"


def test_the_program_writes_nothing_with_an_unusable_file(tmp_path: Path) -> None:
    file = write_file(tmp_path, "[hardware]\nlost_for = 3\n")
    done = run("--thresholds", str(file), "--output", str(tmp_path / "out"))
    assert done.returncode == 2
    assert done.stderr == f"error: {file}: [hardware] lost_for is 3, and must be text\n"
    assert not (tmp_path / "out").exists()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program that writes the rules."""
    command = [sys.executable, "-m", "alerts", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
