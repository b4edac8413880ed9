"""A simulated week of holders, as series and records in a real Prometheus."""

import asyncio
import re
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import yaml

from exporter.fleet.advice_queries import device_questions, holder_questions
from exporter.fleet.prometheus import Prometheus as Client
from tests.core.advice.simulated import H100, H100_BYTES, PROFILES, STEP, Run
from tests.product.alerts.committed import committed_rules
from tests.product.compat.places import Stored, blocks, serve
from tests.together.end_to_end.programs import Prometheus
from tests.tools import tool

Answer = TypeVar("Answer")
# Steps of the week, and those after it in which holders of its end go on, for commands that ask for now.
WEEK, AFTER = 2016, 36
NODE = {"cluster": "west", "node": "n1"}
READ = re.compile(r"\b\w+:gpuslice_\w+:\w+")
TARGET = {"job": "gpuslice-exporter", "instance": "n1:9836"}
# A group is evaluated at an offset in its interval, a hash of this path and its name.
RULES = "rules.yaml"
# Groups, each after those that it reads, and the number of steps up to the end that are recorded.
ROUNDS = (
    ("gpuslice-containers", WEEK),
    ("gpuslice-hours", WEEK),
    ("gpuslice-advice-hours", WEEK),
    ("gpuslice-advice-steps", WEEK),
    ("gpuslice-advice-week", 24),
)


@cache
def end() -> float:
    """Return the Unix time of the end: the last full hour when this was first called."""
    return time.time() // 3600 * 3600


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A container that holds a device from a step of the week until its run ends."""

    run: Run
    begin: int = 0
    sharing: str = "exclusive"
    isolation: str = "none"
    mig_uuid: str = ""
    model: str = H100
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: tuple[str, str] | None = None
    namespace: str = "ml"

    @property
    def device(self) -> dict[str, str]:
        gpu = {"gpu": str(self.run.gpu), "uuid": f"GPU-{self.run.gpu}"}
        return NODE | TARGET | gpu | ({"mig_uuid": self.mig_uuid} if self.mig_uuid else {})

    @property
    def pod(self) -> dict[str, str]:
        return {"namespace": self.namespace, "pod": self.run.pod}

    def series(self) -> Iterator[Stored]:
        """Yield the series of the exporter, and that of kube-state-metrics about the owner."""
        run, count = self.run, len(self.run.memory)
        held = [STEP * (step + 0.5) for step in range(count)]
        entitled = run.compute_entitled
        kind = {"model": self.model, "sharing": self.sharing, "isolation": self.isolation}
        yield self._of("info", [1] * count, **kind, resource="nvidia.com/gpu")
        after = AFTER if self.begin + count == WEEK else 0
        yield self._of("slices", [1] * (count + after))
        yield self._of("memory_used_bytes", run.memory)
        yield self._of("memory_peak_bytes", list(accumulate(run.memory, max)))
        yield self._of("compute_used_ratio", run.compute)
        yield self._of("used_gpu_seconds_total", list(accumulate(share * STEP for share in run.compute)))
        yield self._of("held_seconds_total", held)
        yield self._of("memory_measured_seconds_total", [seconds * run.memory_coverage for seconds in held])
        if run.memory_entitled is not None:
            yield self._of("memory_entitled_bytes", [run.memory_entitled] * count)
        if entitled is not None:
            measured = [seconds * entitled * run.compute_coverage for seconds in held]
            yield self._of("compute_entitled_ratio", [entitled] * count)
            yield self._of("entitled_gpu_seconds_total", [seconds * entitled for seconds in held])
            yield self._of("compute_measured_gpu_seconds_total", measured)
        if self.labels:
            yield self._stored("gpuslice_pod_labels", [1] * count, NODE | TARGET | self.pod | self.labels)
        if self.owner is not None:
            owner = {"owner_kind": self.owner[0], "owner_name": self.owner[1]}
            yield self._stored("kube_pod_owner", [1] * count, {"cluster": "west"} | self.pod | owner)
        if run.sm is not None:
            level = "mig" if self.mig_uuid else "gpu"
            yield self._stored(f"gpuslice_{level}_sm_active_ratio", run.sm, self.device)

    def _of(self, name: str, values: Sequence[float], **labels: str) -> Stored:
        named = {"container": "main", **labels}
        return self._stored(f"gpuslice_container_{name}", values, self.device | self.pod | named)

    def _stored(self, name: str, values: Sequence[float], labels: Mapping[str, str]) -> Stored:
        return stored(name, values, labels, self.begin)


def on(run: Run, pod: str, gpu: int) -> Run:
    """Return a run of a pod on a GPU."""
    return replace(run, pod=pod, gpu=gpu)


def node() -> Iterator[Stored]:
    """Yield the series of an exporter that answers."""
    count = WEEK + AFTER
    moments = [end() + (step - WEEK + 0.5) * STEP for step in range(count)]
    yield stored("gpuslice_node_info", [1] * count, NODE | TARGET)
    yield stored("gpuslice_snapshot_timestamp_seconds", moments, NODE | TARGET)
    yield stored("node:gpuslice_exporters:count", [1] * count, NODE)
    yield stored("kube_namespace_created", [1] * count, {"cluster": "west", "namespace": "empty"})


def stored(name: str, values: Sequence[float], labels: Mapping[str, str], begin: int = 0) -> Stored:
    """Return a series with a sample in the middle of each step."""
    start = end() - WEEK * STEP + STEP / 2
    points = [(start + (begin + step) * STEP, repr(float(value))) for step, value in enumerate(values)]
    return Stored({"__name__": name, **labels}, points)


def devices(holders: Sequence[Holder], rest: Mapping[int, float]) -> Iterator[Stored]:
    """Yield the series of the devices; ``rest`` are shares of unattributed memory by GPU."""
    for holder in {first.run.gpu: first for first in holders}.values():
        labels = {key: value for key, value in holder.device.items() if key != "mig_uuid"}
        used = [0.0] * WEEK
        for user in holders:
            if user.run.gpu == holder.run.gpu:
                for step, size in enumerate(user.run.memory, user.begin):
                    used[step] += size
        share = rest.get(holder.run.gpu, 0.0)
        total = [float(H100_BYTES)] * WEEK
        yield stored("gpuslice_gpu_up", [1] * WEEK, labels)
        yield stored("gpuslice_gpu_memory_total_bytes", total, labels)
        yield stored("gpuslice_gpu_memory_used_bytes", used, labels)
        yield stored("gpuslice_gpu_unattributed_memory_bytes", [share * H100_BYTES] * WEEK, labels)
        yield stored("gpuslice_gpu_nvlink_transmit_bytes_total", [7] * WEEK, labels)
        yield stored("gpuslice_gpu_slices", [4] * WEEK, labels | {"resource": "nvidia.com/gpu.shared"})
    for profile in PROFILES:
        labels = NODE | TARGET | {"model": H100, "profile": profile.name, "source": "driver"}
        yield stored("gpuslice_node_mig_profile_memory_bytes", [profile.memory or 0] * WEEK, labels)
        sms = [profile.multiprocessors or 0] * WEEK
        yield stored("gpuslice_node_mig_profile_multiprocessors", sms, labels)


def mig_device(uuid: str, gpu: int, profile: str) -> Iterator[Stored]:
    """Yield the series of a MIG device."""
    (memory,) = (listed.memory for listed in PROFILES if listed.name == profile)
    labels = NODE | TARGET | {"gpu": str(gpu), "uuid": f"GPU-{gpu}", "mig_uuid": uuid, "profile": profile}
    yield stored("gpuslice_mig_memory_total_bytes", [memory or 0] * WEEK, labels)
    yield stored("gpuslice_mig_unattributed_memory_bytes", [0] * WEEK, labels)


@contextmanager
def week(folder: Path, series: Sequence[Stored]) -> Iterator[Prometheus]:
    """Serve the series, and the records that the rules make of them."""
    program, promtool = tool("prometheus"), tool("promtool")
    folder.mkdir()
    blocks(folder, promtool, series)
    for name, steps in ROUNDS:
        (folder / RULES).write_text(yaml.safe_dump({"groups": [_advice_rules(name)]}))
        with serve(folder, program) as server:
            command = [promtool, "tsdb", "create-blocks-from", "--max-block-duration=192h", "rules"]
            command += [f"--url={server.url}", f"--start={end() - steps * STEP:.0f}", f"--end={end():.0f}"]
            command += ["--output-dir=data", RULES]
            made = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            assert made.returncode == 0, made.stderr
    with serve(folder, program) as server:
        yield server


def ask(server: Prometheus, question: Callable[[Client], Coroutine[None, None, Answer]]) -> Answer:
    """Return the answer to a question that a client asks."""

    async def answer() -> Answer:
        client = Client(server.url, deadline=60)
        try:
            return await question(client)
        finally:
            await client.close()

    return asyncio.run(answer())


def _advice_rules(name: str) -> dict[str, object]:
    """Return the rules of a group that advice reads; those of a minute are evaluated once in each step."""
    rules = committed_rules()
    (group,) = (group for group in rules.groups if group["name"] == name)
    needed: set[str] = set()
    read = {
        word for query in (device_questions() | holder_questions("")).values() for word in READ.findall(query)
    }
    while read - needed:
        needed |= read
        read = {word for record in needed for word in READ.findall(rules.records[record])}
    made = [rule for rule in group["rules"] if rule["record"] in needed]
    return group | {"rules": made} | ({} if "advice" in name else {"interval": "5m"})
