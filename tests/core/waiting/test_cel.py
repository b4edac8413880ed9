"""Simple selectors of devices mean what CEL says; all others are not judged."""

from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.quantity import billionths
from exporter.waiting.cel import SelectorError, matches
from exporter.waiting.cel_syntax import NotSimpleError
from exporter.waiting.objects import DeviceName, OfferedDraDevice, Version

GPU = OfferedDraDevice(
    name=DeviceName("gpu.nvidia.com", "node-1", "gpu-0-mig-0"),
    attributes={
        "gpu.nvidia.com/type": "mig",
        "gpu.nvidia.com/profile": "3g.40gb",
        "gpu.nvidia.com/index": 3,
        "gpu.nvidia.com/healthy": True,
        "gpu.nvidia.com/driverVersion": Version("570.86.15"),
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    },
    capacity={"gpu.nvidia.com/memory": billionths("40320Mi")},
)
OF = 'device.attributes["gpu.nvidia.com"]'
MEMORY = "device.capacity['gpu.nvidia.com'].memory"


@pytest.mark.parametrize(
    ("met", "expression"),
    [
        (True, "true"),
        (True, "device.driver == 'gpu.nvidia.com'"),
        (False, 'device.driver != "gpu.nvidia.com"'),
        (True, f"{OF}.type == 'mig'"),
        (True, f"{OF}['type'] == 'mig' && {OF}.profile == '3g.40gb'"),
        (True, f"{OF}.profile in ['1g.10gb', '3g.40gb']"),
        (False, f"{OF}.profile in []"),
        (True, f"'profile' in {OF}"),
        (False, f"'uuid' in {OF}"),
        (False, "'x' in device.attributes['other.example.com']"),
        (True, f"has({OF}.index) && {OF}.index > 2 && {OF}.index <= 3"),
        (True, f"!({OF}.index < -1)"),
        (True, f"!!{OF}.healthy"),
        (False, f"!!!{OF}.healthy"),
        (True, f"{OF}.profile.startsWith('3g') && {OF}.profile.endsWith('gb')"),
        (True, f"{OF}.type.upperAscii().contains('IG')"),
        (True, f"{OF}.type.lowerAscii() == 'mig'"),
        # CEL's == of different types is false, never an error.
        (False, f"{OF}.index == '3'"),
        (False, f"{OF}.healthy == 1"),
        (True, f"{OF}.index != true"),
        (True, f"{MEMORY}.compareTo(quantity('40Gi')) < 0"),
        (True, f"{MEMORY}.isGreaterThan(quantity('39Gi'))"),
        (True, f"{MEMORY} == quantity('40320Mi')"),
        (True, f"{OF}.driverVersion.isLessThan(semver('570.100.0'))"),
        (True, f"{OF}.driverVersion.compareTo(semver('570.86.15')) == 0"),
        (True, "semver('1.0.0-rc.2').isLessThan(semver('1.0.0'))"),
        (True, "semver('1.0.0-rc.2').isGreaterThan(semver('1.0.0-rc.1'))"),
        # && binds more than ||, relations more than &&.
        (True, "true || false && false"),
        (True, "1 == 2 || 2 == 2 && true"),
        (True, " ( device . driver\n== 'gpu.nvidia.com' ) "),
    ],
)
def test_a_simple_selector(met: bool, expression: str) -> None:
    assert matches(expression, GPU) is met


@pytest.mark.parametrize(
    "expression",
    [
        f"{OF}.uuid == 'x'",
        "device.attributes['other.example.com'].type == 'mig'",
        "device.capacity['gpu.nvidia.com'].cores == quantity('1')",
        f"{OF}.index < '4'",
        f"{OF}.index",
        f"{OF}.healthy && {OF}.index",
        f"{OF}.index.startsWith('3')",
        f"{OF}.type.compareTo('a') > 0",
        f"{OF}.driverVersion == '570.86.15'",
        "quantity('much') == quantity('1')",
    ],
)
def test_an_error_of_cel_is_not_false(expression: str) -> None:
    with pytest.raises(SelectorError):
        matches(expression, GPU)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "device",
        "device.name == 'a'",
        "device.allowMultipleAllocations",
        f"{OF}.profile.matches('^3g')",
        f"{OF}.profile.size() == 7",
        f"{OF}.index + 1 == 4",
        f"{OF}.index == 3.0",
        f"{OF}.index == 3u",
        f"{OF}.index == 0x3",
        f"{OF}.type == 'm\\x69g'",
        f"{OF}.type == r'mig'",
        f"{OF}.type == '''mig'''",
        f"{OF}.healthy ? true : false",
        f"{OF}.?uuid.orValue('x') == 'x'",
        "cel.bind(x, device.driver, x == 'a')",
        "['a'].exists(x, x == device.driver)",
        "true // a comment",
        "true true",
        "(true",
        "true &&",
        "[true",
        "1 = 1",
        "true & true",
        f"{'(' * 60}true{')' * 60}",
        "true || " * 2000 + "true",
        "'x' in device.attributes",
        "has(device.driver)",
    ],
)
def test_whatever_is_not_simple_is_not_judged(expression: str) -> None:
    with pytest.raises(NotSimpleError):
        matches(expression, GPU)


SIDES = {"true": True, "false": False, f"{OF}.uuid == 'x'": None}


@pytest.mark.parametrize(("left", "right"), list(product(SIDES, SIDES)))
def test_one_side_decides_whatever_the_other_is(left: str, right: str) -> None:
    """An error of one side does not matter if the other side is false of &&, or true of ||."""
    values = {SIDES[left], SIDES[right]}
    for operator, decisive in (("&&", False), ("||", True)):
        expected = decisive if decisive in values else (None if None in values else not decisive)
        try:
            found: bool | None = matches(f"{left} {operator} {right}", GPU)
        except SelectorError:
            found = None
        assert found is expected


ATOMS = st.sampled_from(
    [("true", True), ("false", False), (f"{OF}.index == 3", True), (f"{OF}.type in ['gpu', 'vfio']", False)]
)


def _joined(parts: st.SearchStrategy[tuple[str, bool]]) -> st.SearchStrategy[tuple[str, bool]]:
    def join(left: tuple[str, bool], operator: str, right: tuple[str, bool]) -> tuple[str, bool]:
        value = left[1] and right[1] if operator == "&&" else left[1] or right[1]
        return f"({left[0]} {operator} {right[0]})", value

    return st.builds(join, parts, st.sampled_from(["&&", "||"]), parts) | parts.map(
        lambda part: (f"!({part[0]})", not part[1])
    )


@given(st.recursive(ATOMS, _joined, max_leaves=12))
def test_truth_is_that_of_its_parts(expression: tuple[str, bool]) -> None:
    text, value = expression

    assert matches(text, GPU) is value


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from([*"()[]!.,'\"", "&&", "==", "device", "1"])).map(" ".join)
)
def test_any_text_is_a_truth_value_an_error_or_not_judged(text: str) -> None:
    with suppress(NotSimpleError, SelectorError):
        assert matches(text, GPU) in {True, False}
