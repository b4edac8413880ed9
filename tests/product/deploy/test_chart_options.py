"""Options that the chart's templates use are refused as arguments and variables, which these do not see."""

import re

import pytest
import yaml

from exporter.config import load_settings, variable
from tests.core.config.test_settings import VALUES
from tests.product.deploy.charts import refusal
from tests.product.deploy.render import CHART
from tests.product.deploy.rendering import example, mount_paths, pod_spec

TEMPLATES = {path.name: path.read_text() for path in sorted((CHART / "templates").iterdir())}
EVERY_SYSTEM = (
    "hami",
    "hami-vnpu",
    "gpu-manager",
    "vgpu-manager",
    "mps",
    "runai",
    "pods-api",
    "memory-limits",
)


def _table(name: str) -> dict[str, str]:
    """Return a table of the template with the options."""
    text = TEMPLATES["_derived.tpl"].split(f'{{{{- define "gpuslice.{name}" -}}}}\n')[1]
    return dict(yaml.safe_load(text.split("{{- end")[0]))


DERIVED, HUB_DERIVED, MOUNTED = map(_table, ("derived", "hubDerived", "mounted"))


def _flag(variable: str) -> str:
    return "--" + variable.removeprefix("GPUSLICE_").lower().replace("_", "-")


def test_every_option_that_a_template_names_is_in_the_tables() -> None:
    """As a variable, as a key of `config`, or by `--config`, whose file may have any."""
    text = "".join(text for name, text in TEMPLATES.items() if name != "_derived.tpl")
    named = {
        variable(name)
        for name in VALUES
        if re.search(
            rf"{variable(name)}\b|\"{name.replace('_', '-')}\"|config\)?\.{name}\b|\(\.\)\.{name}\b", text
        )
    }

    assert named | {"GPUSLICE_CONFIG"} == {name for name in DERIVED if name.startswith("GPUSLICE_")}
    assert HUB_DERIVED.keys() <= DERIVED.keys()
    assert set(re.findall(r"name: (NVIDIA_MIG\w+|NODE_NAME)", text)) == DERIVED.keys() - named - {
        "GPUSLICE_CONFIG"
    }


def test_every_option_at_whose_default_a_value_mounts_is_in_the_tables() -> None:
    """Except for the two directories that are always mounted."""
    mounts = {path for name in EVERY_SYSTEM for path in mount_paths(pod_spec(example(name))).values()}
    mounts -= set(mount_paths(pod_spec(example())).values())
    defaults = load_settings({}, {})
    at = {
        name.replace("_", "-")
        for name in VALUES
        if name.endswith(("_root", "_socket", "_dir"))
        and {str(getattr(defaults, name)), str(getattr(defaults, name)).rpartition("/")[0]} & mounts
    }

    assert at == MOUNTED.keys()


@pytest.mark.tools
@pytest.mark.parametrize("name", DERIVED)
def test_an_option_that_the_chart_uses_is_refused_elsewhere(name: str) -> None:
    """With the value to use instead."""
    remedy = f"follows {DERIVED[name]}: set that instead."

    assert f"extraEnv {name} is not seen" in (
        message := refusal({"extraEnv": [{"name": name, "value": "a"}]})
    )
    assert remedy in message
    if name.startswith("GPUSLICE_"):
        flag = _flag(name)
        for arguments in ([f"{flag}=:9400"], ["--log-level=debug", flag, ":9400"]):
            assert f"extraArgs {flag} is not seen" in (message := refusal({"extraArgs": arguments}))
            assert remedy in message


@pytest.mark.tools
@pytest.mark.parametrize("name", HUB_DERIVED)
def test_an_option_of_the_hub_that_the_chart_uses_is_refused_elsewhere(name: str) -> None:
    message = refusal({"hub": {"extraEnv": [{"name": name, "value": "a"}]}})

    assert f"hub.extraEnv {name} is not seen" in message
    assert f"follows {HUB_DERIVED[name]}: set that instead." in message


@pytest.mark.tools
@pytest.mark.parametrize("option", MOUNTED)
def test_another_path_than_the_mounted_one_is_refused(option: str) -> None:
    """The program would not look where the chart mounts."""
    *groups, switch = MOUNTED[option].split(".")
    values: dict = {switch: True}
    for group in reversed(groups):
        values = {group: values}

    for given in (
        {"config": {option: "/other"}},
        {"extraArgs": [f"--{option}=/other"]},
        {"extraEnv": [{"name": variable(option.replace("-", "_")), "value": "/other"}]},
    ):
        assert MOUNTED[option] in refusal(values | given)
