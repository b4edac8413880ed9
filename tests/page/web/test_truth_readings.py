"""The page of a GPU equals /metrics: every reading is a series of that GPU, in its unit."""

import re
from collections import defaultdict

import pytest

from exporter.metrics import GPU, LEVEL_LABELS, MIG, VGPU
from tests.page.web.truth import GIB, gpu_of, is_duration, is_number, linked_holder, series_of, uuids
from tests.page.web.views_reading import SCENARIOS

# Where the page has another place for them.
_ELSEWHERE = {"sharing", "topology", "events"}
# What a number in a unit is worth, and its digits; by what the names of its families end in.
_UNITS = {
    "GiB": (GIB, 1, "_bytes"),
    "MiB": (1 << 20, 0, "_bytes"),
    "GiB/s": (GIB, 1, "_bytes_per_second"),
    "MiB/s": (1 << 20, 1, "_bytes_per_second"),
    "%": (0.01, 0, "_ratio"),
    "W": (1, 0, "_watts"),
    "°C": (1, 0, "_celsius"),
    "MHz": (1e6, 0, "_hertz"),
    "kJ": (1000, 1, "_joules"),
    "ms": (0.001, 1, "_seconds"),
}


def lines(element):
    """Return pairs of name and value by the text that explains them."""
    found = defaultdict(list)
    for group in element.all("div", of="readings"):
        for line in group.all("dl"):
            for pair in line.all("div"):
                term = pair.one("dt")
                found[term.attributes["title"]].append((term.text, pair.one("dd").text))
    return found


def is_value(family, text, value) -> bool:
    """Whether a text is a value in the unit of its family."""
    name = family.removesuffix("_total")
    if re.fullmatch("yes|no", text):
        return value == (text == "yes")
    number, _, unit = text.rpartition(" ")
    if unit in _UNITS:
        worth, digits, suffix = _UNITS[unit]
        return name.endswith(suffix) and is_number(number, value / worth, digits)
    if name.endswith("_seconds"):
        return is_duration(text, value)
    if any(name.endswith(suffix) for *_, suffix in _UNITS.values()):
        return False
    bare = re.sub(r"\s", "", text)
    return is_number(bare, value, 2 if "." in bare else 0)


def spelt(text) -> str:
    """Return the name of a label or field in lower case, its words separated by single spaces."""
    return re.sub(r"[\s_:,;]+", " ", text).strip().lower()


def unread(series, families, labels, shown):
    """Yield the samples that are not among the lines of a page, or not as they are."""
    expected = defaultdict(list)
    for family in families:
        if family.group not in _ELSEWHERE:
            for sample in series.all(family.name.removeprefix("gpuslice_"), **labels):
                own = {
                    name: text
                    for name, text in sample.labels.items()
                    if name not in LEVEL_LABELS[family.level]
                }
                expected[family.help].append((family, own, sample.value))
    for words, samples in expected.items():
        there = list(shown.pop(words, ()))
        if not are_said(words, samples, there):
            yield words, there, samples


# The HELP of families that have a sample for each of several states.
STATES = re.compile(r"1 if (this|the GPU (needs|has) this|the driver reports this) ")


def are_said(words, samples, there) -> bool:
    """Whether the lines under these words are the samples of their families."""
    family = samples[0][0]
    if family.type == "info":
        values = [text for _, own, _ in samples for text in own.values()]
        return sorted(values) == sorted(text for _, text in there)
    if STATES.match(words):
        holding = sorted(spelt(" ".join(own.values())) for _, own, value in samples if value)
        return [sorted(map(spelt, said.split(";"))) for _, said in there] == [holding or ["none"]]
    if family.name.endswith("_timestamp_seconds") and not there:
        return True
    return len(there) == len(samples) and all(is_said(each, there) for each in samples)


def is_said(sample, there) -> bool:
    """Whether a line has the value of a sample, and its labels in its name."""
    family, own, value = sample
    return any(
        is_value(family.name, text, value) and spelt(" ".join(own.values())) in spelt(name)
        for name, text in there
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_readings_are_the_series_of_the_gpu(name) -> None:
    """Every series of a GPU, MIG device or vGPU has a line with its unit, and every line is a series."""
    series = series_of(name)
    for uuid in uuids(name):
        section = gpu_of(name, uuid).one(id="readings")
        own, parts = (
            [
                child
                for child in section.children
                if not isinstance(child, str) and "readings" in child.classes
            ],
            {},
        )
        for part in section.all("details"):
            if part.all("span", of="ct"):
                parts[part.one("span", of="ct").text] = lines(part)
        (block,) = own
        holder = type(section)("", {}, [block])
        shown = lines(holder)
        assert list(unread(series, GPU, {"uuid": uuid}, shown)) == []
        assert shown == {}
        migs = [sample.labels["mig_uuid"] for sample in series.all("mig_info", uuid=uuid)]
        vgpus = [sample.labels["vgpu_uuid"] for sample in series.all("vgpu_info", uuid=uuid)]
        assert sorted(parts) == sorted([*migs, *vgpus])
        for part, said in parts.items():
            level, table = ("mig_uuid", MIG) if part in migs else ("vgpu_uuid", VGPU)
            assert list(unread(series, table, {"uuid": uuid, level: part}, said)) == []
            assert said == {}


@pytest.mark.parametrize("name", SCENARIOS)
def test_processes_add_up_to_their_containers(name) -> None:
    """Their number, memory and compute are those of the container, if its numbers are from processes."""
    series = series_of(name)
    for uuid in uuids(name):
        sizes, shares = defaultdict(list), defaultdict(list)
        for row in gpu_of(name, uuid).one(id="processes").all("tr"):
            if row.all("a", of="who"):
                memory, compute = (cell.text for cell in row.all("td", of="end"))
                sizes[linked_holder(row)].append(memory.removesuffix(" GiB"))
                shares[linked_holder(row)].append(compute.removesuffix(" GPU"))
        keys = [key for key in series.containers if key.uuid == uuid]
        for holder in {key.holder for key in keys}:
            mine = [key for key in keys if key.holder == holder]
            counted = [series.of(key, "processes") for key in mine]
            assert None in counted or sum(counted) == len(sizes[holder])
            if all(series.info(key).get("memory_source") == "process" for key in mine):
                assert adds_up(
                    sizes[holder], sum(series.of(key, "memory_used_bytes") for key in mine) / GIB, 1
                )
            if all(series.info(key).get("compute_source") == "process" for key in mine):
                assert adds_up(shares[holder], sum(series.of(key, "compute_used_ratio") for key in mine), 2)


def adds_up(texts, value, digits) -> bool:
    """Whether rounded texts add up to a value; ``<`` is a little."""
    known = sum(0.0 if text.startswith("<") else float(text) for text in texts)
    return abs(known - value) <= 10**-digits / 2 * max(len(texts), 1) + 1e-6
