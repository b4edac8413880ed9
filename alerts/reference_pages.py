"""The reference pages of XIDs, conditions, MIG profiles and settings, from the tables in ``exporter/``."""

from dataclasses import fields

from exporter.config import Settings, kebab, variable
from exporter.config.commands import title_of
from exporter.config.parse import Option
from exporter.model.conditions import TABLE
from exporter.model.mig_profiles import LISTINGS
from exporter.model.xids import CLASSES, RECOVERY_SINCE, XIDS, Xid

_XIDS = """\
# XID codes

*Generated from `exporter/model/xids.py` by `make docs`.*

An XID is the number of an error that the NVIDIA driver reports. Meanings and actions follow the
[NVIDIA catalogue](https://docs.nvidia.com/deploy/xid-errors/index.html), reworded; the kernel log
(`NVRM: Xid`) has more details. With a code in **bold** the GPU is unreliable until the action is taken.
"""
_CONDITIONS = """
## Conditions

What is wrong with a GPU, as `gpuslice_gpu_condition` reports it; the page, the alerts and the dashboards use
it as well. A condition is absent while an input that could raise it is unknown and no other input raises it.
After a restart of the exporter, earlier XIDs and times are unknown.

An XID counts until the GPU is restarted, which takes two signs:

- the counter of energy is near 0 and rises from there, or another counter is near 0 with it: PCIe replays,
  times of violations, volatile ECC errors or NVLink errors; on a GPU without a counter of energy, one of the
  first two, or two of these, in two readings;
- a counter is lower after the GPU did not answer for a while; or
- the GPU did not answer, and the kernel module of the driver was unloaded.

It also ends when the GPU was unplugged or unbound, and is back, and when the driver has withdrawn its
recovery action. A single reading of a counter that is lower, a counter that was cleared by hand, and a GPU
that only did not answer for a while are no restart. On a GPU without a counter that only a restart sets back,
an XID counts for 6 hours.

The driver's recovery action decides on the codes that it covers, if it was read after the XID: with *none*,
a code of class reset needs nothing. These codes, and the driver branch that covers each first, are from the
catalogue: {covered}. All other codes, and all codes with older drivers, count by their class.
"""
_MIG_PROFILES = """# MIG profiles

*Generated from `exporter/model/mig_profiles.py` by `make docs`.*

A GPU instance has less usable memory than the name of its profile says, and its multiprocessors are not so
many sevenths of the GPU. The series `gpuslice_node_mig_profile_memory_bytes`,
`gpuslice_node_mig_profile_multiprocessors` and `gpuslice_node_mig_profile_instances` have what each profile
of the node's GPU models really has, also while MIG mode is disabled. Models without a MIG mode have none.

- `source="driver"`: reported by the driver of the node (`nvmlDeviceGetGpuInstanceProfileInfoV`, which very
  old drivers lack). It needs no MIG mode: NVIDIA's
  [go-nvlib](https://github.com/NVIDIA/go-nvlib/blob/main/pkg/nvlib/device/device.go) asks every GPU that has
  one, enabled or not.
- `source="table"`: the driver does not report them, and these are the values of the listings below. A model
  without a listing, and a profile that a listing lacks, has no series then.

Sizes differ a little between drivers: 1g.10gb of an H100 80GB has
[9.62 GiB](https://cloud.google.com/compute/docs/gpus/create-gpu-vm-accelerator-optimized) with driver 525 and
9.75 GiB with a later one.
"""
_SETTINGS = """\
# Settings

*Made from the table in `exporter/config/table.py` by `make docs`.*

Each option is a flag, an environment variable, and a key of the file that `--config` names. A flag overrides
the variable, and the variable overrides the file. What can be given several times is separated by commas in
the variable, and is a list in the file.

A command has the flags of its own options only. Variables and files may be shared by several commands, as in
a pod: a command ignores those of options that it does not have. An option that no command has is an error in
the file. `gpuslice-exporter COMMAND --help` lists the options of a command, and its flags that are not
settings, such as the output format. `translate` has no settings.
"""
_SETTINGS_TABLE = """
Options of {commands}:

| Flag | Environment | YAML key | Default | Value | Meaning |
|---|---|---|---|---|---|
"""


def xids_page() -> str:
    """Return the page of XIDs and of the conditions that they raise, as Markdown."""
    rows = (f"| `{name}` | {row.raised} | {row.cleared} |" for name, row in TABLE.items())
    head = "| condition | raised by | cleared by |", "| --- | --- | --- |"
    conditions = _CONDITIONS.format(covered=_covered())
    return "\n".join((xids_markdown().rstrip("\n"), conditions, *head, *rows, ""))


def _covered() -> str:
    """Return the codes that the recovery action covers, by the branch from which it does."""
    codes: dict[int, list[str]] = {}
    for code, branch in sorted(RECOVERY_SINCE.items()):
        codes.setdefault(branch, []).append(str(code))
    return "; ".join(
        f"from R{branch} on, {', '.join(of_branch)}" for branch, of_branch in sorted(codes.items())
    )


def xids_markdown() -> str:
    """Return the page of the codes as Markdown."""
    classes = (f"| {kind} | {text} |" for kind, text in CLASSES.items())
    rows = (
        f"| {_bold(xid)} | {xid.kind} | {xid.meaning.rstrip('.')} | {xid.action.rstrip('.')} |"
        for xid in XIDS.values()
    )
    lines = (
        _XIDS,
        "| class | meaning |\n| --- | --- |",
        *classes,
        "\n| XID | class | meaning | first action |\n| --- | --- | --- | --- |",
        *rows,
        "",
    )
    return "\n".join(lines)


def _bold(xid: Xid) -> str:
    return f"**{xid.code}**" if xid.alert else str(xid.code)


def mig_profiles_page() -> str:
    """Return the page of the listings, as Markdown."""
    lines = [_MIG_PROFILES.rstrip()]
    for listing, rows in LISTINGS.items():
        title = f"{', '.join(listing.models)}: {listing.gibibytes} GiB"
        lines += ["", f"## {title}", "", f"From <{listing.source}>.", ""]
        lines += ["| profile | usable memory | multiprocessors | instances |", "| --- | --: | --: | --: |"]
        lines += [
            f"| `{name}` | {size / 1024:.2f} GiB | {sms} | {count} |" for name, size, sms, count in rows
        ]
    return "\n".join((*lines, ""))


def settings_page() -> str:
    """Return the page of all options as Markdown, by the headings of --help and by commands."""
    options = {row.name: row.metadata["option"] for row in fields(Settings)}
    groups = dict.fromkeys(row.commands for row in options.values())
    text = _SETTINGS
    for title in dict.fromkeys(map(title_of, groups)):
        text += f"\n## {title}\n"
        for commands in (commands for commands in groups if title_of(commands) == title):
            text += _SETTINGS_TABLE.format(commands=", ".join(f"`{command}`" for command in commands))
            text += "".join(
                _settings_row(name, row) for name, row in options.items() if row.commands == commands
            )
    return text


def _settings_row(name: str, row: Option) -> str:
    flag, key = f"`--{kebab(name)}`", "none" if name == "config" else f"`{kebab(name)}`"
    repeat = ", several times" if row.repeatable else ""
    cells = flag, f"`{variable(name)}`", key, row.shown, row.kind.allowed + repeat, row.help
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
