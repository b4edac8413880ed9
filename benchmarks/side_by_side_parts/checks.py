"""What pages leave out, asked of the pages themselves: each answer comes with what was seen."""

import http.client
import math
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.side_by_side_parts.driver import Layout
from benchmarks.side_by_side_parts.node import Node
from benchmarks.side_by_side_parts.programs import Program, environment
from benchmarks.side_by_side_parts.running import Running, fetch, free_port, stop
from benchmarks.side_by_side_parts.samples import Page, read, spelled

LOST_GPU, HANGING_GPU, HEALTHY_GPU = 2, 3, 4
LOST_SECONDS, HANGING_SECONDS, MISSING_SECONDS, POLLED_SECONDS = 4.0, 14.0, 20.0, 2.0
# A GPU's own memory is told to the byte, or in MiB with as many digits.
_CLOSE = 1e-6

Answers = dict[str, dict[str, str]]


def pages(programs: Sequence[Running], node: Node) -> Answers:
    """Ask what the pages say of a healthy node; answers by question and program."""
    read_now = {each.program.name: read(each.program, node.layout, each.page()) for each in programs}
    asked = {
        "names the pod of each holder": lambda page: _pods(page, node),
        "memory of all holders, as a share of what the GPUs say is used": share,
        "GPUs whose holders and rest add up to what is used": adds_up,
        "holders that carry a figure of the whole GPU": whole,
        "what each holder is entitled to": _entitled,
        "memory of a process that the driver does not tell": lambda page: untold(page, node),
        "fan of a GPU that has none": lambda page: page.told(page.program.names.fan, 0),
        "utilization of a GPU, which the driver does not tell of one that is cut": lambda page: page.told(
            page.program.names.utilization, 0
        ),
        "when a GPU was read": _timestamps,
    }
    return {
        question: {name: answer(page) for name, page in read_now.items()}
        for question, answer in asked.items()
    }


def _pods(page: Page, node: Node) -> str:
    named = {labels.get("pod") for _, labels, _ in page.samples}
    pods = {pod.name for of_gpu in node.pods for pod in of_gpu}
    return f"{len(pods & named)} of {len(pods)}"


def share(page: Page) -> str:
    """Say how much of what is used the holders have together, as printed."""
    told = page.of(page.program.names.held)
    held = [value for value in told if not math.isnan(value)]
    if not held:
        return "no holders"
    used = sum(page.layout.used(gpu) for gpu in range(page.layout.gpus))
    found = f"{sum(held) * page.program.names.unit / used:.2f}"
    return found if len(held) == len(told) else f"{found}; NaN, as Prometheus adds it up"


def adds_up(page: Page) -> str:
    """Count the GPUs whose holders and rest give what is in use, which the stub knows."""
    layout, names = page.layout, page.program.names
    if not names.held:
        return "no holders"
    right, unsaid = 0, 0
    for gpu in range(layout.gpus):
        of_gpu = {names.device: page.device(gpu)}
        rest = page.of(names.rest, of_gpu) if names.rest else [0.0]
        if not rest:
            unsaid += 1
        told = sum(page.of(names.held, of_gpu)) + sum(rest)
        right += bool(rest) and math.isclose(told * names.unit, layout.used(gpu), rel_tol=_CLOSE)
    said = f"{right} of {layout.gpus}"
    return f"{said}, and {unsaid} whose rest is left out" if unsaid else said


def whole(page: Page) -> str:
    """Count the samples of holders that have a figure of their whole GPU."""
    names = page.program.names
    rows = page.of_holders()
    if not rows:
        return "no holders"
    wrong = 0
    for gpu in range(page.layout.gpus):
        of_gpu = {names.device: page.device(gpu)}
        figures = {value for name in (names.used, names.power) for value in page.of(name, of_gpu)}
        figures |= {value for value in page.of(names.utilization, of_gpu) if not math.isnan(value)}
        mine = [value for _, labels, value in rows if of_gpu.items() <= labels.items()]
        wrong += sum(value in figures for value in mine)
    return f"{wrong} of {len(rows)} samples"


def _entitled(page: Page) -> str:
    found = {name for name, _, _ in page.of_holders() if "entitled" in name or "limit" in name}
    return ", ".join(sorted(found)) or "not told"


def untold(page: Page, node: Node) -> str:
    """Say what stands for the process whose memory the driver does not tell."""
    if node.layout.untold is None:
        return "-"
    gpu, part = node.layout.untold
    mine = {"pid": str(node.pids[gpu][part]), "pod": node.pods[gpu][part].name}
    names = page.program.names
    if not names.held:
        return "no holders"
    return spelled(page.of(names.held, {names.holder: mine[names.holder]}))


def _timestamps(page: Page) -> str:
    found = {
        name for name, labels, _ in page.samples if "timestamp" in name and page.device(0) in labels.values()
    }
    return ", ".join(sorted(name for name in found if "read" in name)) or "not told"


def lost(programs: Sequence[Running], layout: Layout) -> dict[str, str]:
    """Let a GPU fall off the bus; say what the page then says of it and of its neighbour."""
    for each in programs:
        each.control.lose(LOST_GPU)
    time.sleep(LOST_SECONDS)
    found = {each.program.name: _after_loss(each, layout) for each in programs}
    for each in programs:
        each.control.lose(None)
    return found


def _after_loss(each: Running, layout: Layout) -> str:
    try:
        page = read(each.program, layout, each.page())
    except (OSError, http.client.HTTPException):
        return f"no page any more; {_ended(each)}"
    names = page.program.names
    held = page.of(names.held, {names.device: page.device(LOST_GPU)}) if names.held else []
    told = [
        f"its memory: {page.told(names.used, LOST_GPU)}",
        f"its power: {page.told(names.power, LOST_GPU)}",
        f"memory of its holders: {spelled(held)}",
        f"power of its neighbour: {_age(page, HEALTHY_GPU)}",
    ]
    up = page.told("gpuslice_gpu_up", LOST_GPU)
    return "; ".join([*told, *([] if up == "absent" else [f"up: {up}"])])


def _age(page: Page, gpu: int) -> str:
    if not page.program.names.power:
        return "age not told"
    age = page.age(gpu, time.time())
    return "absent" if age is None else f"{age:.0f} s old"


def hanging(programs: Sequence[Running], layout: Layout) -> dict[str, str]:
    """Let all calls about a GPU hang; say what the page then says of it and of its neighbour."""
    for each in programs:
        each.control.hang(HANGING_GPU)
    time.sleep(HANGING_SECONDS)
    counted = {each.program.name: each.control.counts().cycles for each in programs}
    time.sleep(3.0)
    found = {each.program.name: _while_hanging(each, layout, counted[each.program.name]) for each in programs}
    for each in programs:
        each.control.hang(None)
    return found


def _while_hanging(each: Running, layout: Layout, cycles: int) -> str:
    polling = "polls on" if each.control.counts().cycles > cycles else "polls no more"
    try:
        page = read(each.program, layout, each.page())
    except (OSError, http.client.HTTPException):
        return f"{polling}; no page any more; {_ended(each)}"
    other, own = _age(page, HEALTHY_GPU), _age(page, HANGING_GPU)
    return f"{polling}; power of its neighbour: {other}; of the one that hangs: {own}"


def _ended(each: Running) -> str:
    code = each.process.poll()
    return "still running" if code is None else f"ended with {code}"


def missing(program: Program, folder: Path) -> str:
    """Start a program on a machine without the library; say whether it runs and answers."""
    port = free_port()
    process = subprocess.Popen(  # noqa: S603 - the words are ours
        program.command(port, folder),
        env=environment(program, None, None),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
    )
    until = time.monotonic() + MISSING_SECONDS
    try:
        while process.poll() is None and not _text(port) and time.monotonic() < until:
            time.sleep(0.2)
        if process.poll() is not None:
            return f"ends with code {process.returncode}"
        # The first page may be older than the first poll.
        time.sleep(POLLED_SECONDS)
        lines = _text(port).splitlines()
    finally:
        stop(process)
    if not lines:
        return f"runs, no page in {MISSING_SECONDS:g} s"
    said = any("LibraryNotFound" in line for line in lines)
    return f"runs, page of {len(lines)} lines" + (", says LibraryNotFound" if said else "")


def _text(port: int) -> str:
    """Return the page; "" where there is none."""
    try:
        return fetch(port, {}).decode()
    except (OSError, http.client.HTTPException):
        return ""
