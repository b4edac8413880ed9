"""Each command has its own options: as flags, variables and keys of the file, and in its help."""

import argparse
import re
from dataclasses import fields

import pytest

from exporter.commands import HELP, TRANSLATE
from exporter.config import Settings, SettingsError, add_options, load_settings
from exporter.config.commands import ALL_COMMANDS
from tests.core.commands.program import output_of, run
from tests.core.config.test_settings import BAD_VALUES, VALUES, kebab, variable

COMMANDS = list(HELP)
# Flags that are not in the table of settings, with the commands that have them.
OWN_FLAGS = {
    "--format": {"snapshot", "usage"},
    "--month": {"usage"},
    "--json": {"doctor"},
    "--seed": {"demo"},
    "--refresh": {"hub"},
    "--details": {"inspect"},
    "--namespace": {"hub", "inspect", "waiting"},
    "--keep": {"translate"},
    "--unmasked": {"record"},
    "--count": {"metrics"},
}
# What a command cannot do without.
NEEDED = {TRANSLATE: ["file"], "is": ["ml/train"], "why": ["ml/train"]}
FLAG = re.compile(r"^  (?:-\w, )?(--[a-z-]+)", re.MULTILINE)


def commands_of(name):
    """Return the commands of an option by the table."""
    return {row.name: row.metadata["option"].commands for row in fields(Settings)}[name]


def own(command):
    """Return the names of the options of a command, and those of all others."""
    names = [row.name for row in fields(Settings)]
    return [name for name in names if command in commands_of(name)], [
        name for name in names if command not in commands_of(name)
    ]


def test_every_command_but_translate_has_settings():
    assert set(ALL_COMMANDS) == set(HELP) - {TRANSLATE}
    assert all(set(commands_of(row.name)) <= set(ALL_COMMANDS) for row in fields(Settings))
    assert own(TRANSLATE)[0] == []


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("log_level", set(HELP) - {"translate"}),
        ("config", set(HELP) - {"translate"}),
        ("listen", {"serve", "demo", "hub"}),
        ("frame_ancestors", {"serve", "demo", "hub"}),
        ("prometheus_url", {"hub", "inspect", "advise", "is", "why", "waiting", "usage", "doctor"}),
        ("prices", {"hub", "usage"}),
        ("poll_interval", {"serve", "demo", "snapshot", "doctor", "record", "metrics"}),
        ("pod_labels", {"serve", "demo", "snapshot", "doctor", "record", "metrics"}),
        ("kubelet_root", {"serve", "snapshot", "doctor", "record", "metrics"}),
        ("kubernetes_api", {"serve", "snapshot", "doctor", "record", "metrics", "hub", "why", "waiting"}),
        ("history_retention", {"serve", "demo"}),
        ("gpu_hour_price", {"serve", "demo", "hub", "inspect", "advise", "is"}),
    ],
)
def test_options_belong_to_the_commands_that_use_them(name, commands):
    assert set(commands_of(name)) == commands


@pytest.mark.parametrize("command", COMMANDS)
def test_a_flag_of_another_command_names_the_commands_that_have_it(command):
    flags = {f"--{kebab(name)}": set(commands_of(name)) for name in own(command)[1]} | OWN_FLAGS
    for flag, commands in flags.items():
        if command in commands:
            continue
        for words in ([flag, "value"], [f"{flag}=value"]):
            done = run(command, *NEEDED.get(command, ()), *words)
            assert (done.returncode, done.stdout) == (2, "")
            start = f"gpuslice-exporter {command}: {flag} is an option of "
            assert done.stderr.startswith(start)
            named, _, hint = done.stderr.removeprefix(start).partition("; ")
            assert set(named.split(", ")) == commands
            assert hint == f"see gpuslice-exporter {command} --help\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_variables_and_keys_of_other_commands_are_ignored(command, tmp_path):
    """Whatever their values: other commands in the same pod have the same variables and file."""
    others = own(command)[1]
    path = tmp_path / "settings.yaml"
    path.write_text("".join(f"{kebab(name)}: ['*', '*']\n" for name in others if name != "config"))
    bad = {variable(name): BAD_VALUES[name][0] for name in others}
    file = {} if command == TRANSLATE else {"GPUSLICE_CONFIG": str(path)}
    read = load_settings({"command": command}, bad | file)
    plain = load_settings({"command": command}, file)
    assert read == plain


@pytest.mark.parametrize("command", COMMANDS)
def test_variables_and_keys_of_the_command_are_read(command, tmp_path):
    path = tmp_path / "settings.yaml"
    for name in own(command)[0]:
        with pytest.raises(SettingsError):
            load_settings({"command": command}, {variable(name): BAD_VALUES[name][0]})
        if name != "config":
            text, value = VALUES[name]
            path.write_text(f"{kebab(name)}: {text}\n")
            for environ in ({variable(name): text}, {"GPUSLICE_CONFIG": str(path)}):
                assert getattr(load_settings({"command": command}, environ), name) == value


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != TRANSLATE])
def test_a_key_that_no_command_has_is_an_error(command, tmp_path):
    """With the nearest key of any command."""
    path = tmp_path / "settings.yaml"
    path.write_text("prometheus-ulr: http://p:9090\n")
    with pytest.raises(SettingsError, match="no such option; did you mean prometheus-url"):
        load_settings({"command": command}, {"GPUSLICE_CONFIG": str(path)})


def test_no_setting_of_a_pod_ends_translate(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("groups: []\n")
    # An environment cannot have a NUL.
    bad = {variable(name): values[0] for name, values in BAD_VALUES.items() if "\0" not in values[0]}
    done = run("translate", "--print", rules, **bad, NODE_NAME="a\nb")
    assert (done.returncode, done.stdout) == (0, "groups: []\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_the_options_of_the_command_and_no_other(command):
    text = output_of(command, "--help")
    settings = {f"--{kebab(name)}" for name in own(command)[0]}
    every = {f"--{kebab(row.name)}" for row in fields(Settings)}
    listed = set(FLAG.findall(text))
    assert listed & every == settings
    assert {flag for flag in OWN_FLAGS if command in OWN_FLAGS[flag]} == listed & OWN_FLAGS.keys()
    assert ("variables, such as GPUSLICE_" in " ".join(text.split())) == bool(settings)


@pytest.mark.parametrize(
    ("command", "lines"),
    [("inspect", 80), ("advise", 70), ("usage", 85), ("hub", 85), ("translate", 25), ("demo", 120)],
)
def test_help_is_short(command, lines):
    """In a terminal of 80 columns."""
    assert len(run(command, "--help", COLUMNS="80").stdout.splitlines()) <= lines


def test_all_commands_have_each_option_once():
    """Options of all commands fit into one parser, as for the documentation."""
    parser = argparse.ArgumentParser()
    add_options(parser)
    assert len(FLAG.findall(parser.format_help())) == 1 + len(fields(Settings))
