"""Reading, checking and writing of scenarios: everything about a node, in one JSON document.

The fields are in the package, the shorthands in ``expand``, the checks here and, of GPUs, in ``check_gpus``.
"""

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable
from importlib import resources
from pathlib import Path

from exporter.demo import scenario as schema
from exporter.demo.nvml import FUNCTIONS
from exporter.demo.nvml.call import code_of
from exporter.demo.scenario import Fault, Scenario, with_paths
from exporter.demo.scenario.amd_gpus import check_amd, gpus_of
from exporter.demo.scenario.check_gpus import check_gpus, check_layout
from exporter.demo.scenario.expand import expand
from exporter.demo.scenario.gpus import Gpu
from exporter.demo.scenario.pods import Curve, Pod, Process, keys, peak
from exporter.demo.sharing_files import KEEPERS, NUMBERED
from exporter.documents import DocumentError, decode, encode, fail

DEFAULT = "showcase"
_FOLDER, _SUFFIX = resources.files("exporter.demo") / "scenarios", ".json"
_DNS_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]*[a-z0-9])?")
_UID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
_KEPT = {
    "pod_uid": _UID,
    "container": _DNS_NAME,
    "container_id": re.compile(r"[0-9a-f]{12,64}"),
    "claim_uid": _UID,
}
_NUMBER, _DEVICE = re.compile("[0-9]{1,4}"), re.compile("[0-9A-Za-z:./-]{0,90}")


def parse(text: str, source: str = "scenario") -> Scenario:
    """Return the scenario in a JSON text; raise DocumentError with ``source`` and the path of the mistake."""
    try:
        document = json.loads(text, parse_constant=lambda name: fail("", f"{name} is not a number in JSON"))
        scenario = expand(decode(Scenario, document))
        check(scenario)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise DocumentError(source, f"{place}: is not JSON: {error.msg}") from None
    except DocumentError as error:
        raise DocumentError(source, str(error)) from None
    except (RecursionError, ValueError) as error:
        raise DocumentError(source, f"cannot be read as JSON: {error}") from None
    return scenario


def load_file(path: Path) -> Scenario:
    """Return the scenario in a file; raise DocumentError also if the file cannot be read."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else "is not UTF-8 text"
        raise DocumentError(str(path), reason) from None
    return parse(text, str(path))


def dump(scenario: Scenario) -> str:
    """Return a scenario as JSON, which ``parse`` reads as an equal one."""
    return json.dumps(encode(scenario), indent=2) + "\n"


def names() -> tuple[str, ...]:
    """Return the names that ``load`` knows."""
    files = (entry.name for entry in _FOLDER.iterdir())
    return tuple(sorted(file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX)))


def scenarios() -> tuple[Scenario, ...]:
    """Return all scenarios that come with the program, in the order of ``names``."""
    return tuple(map(load, names()))


def load(name: str = DEFAULT) -> Scenario:
    """Return a scenario by name, or from a file if ``name`` is a path (with a slash or .json).

    Raises DocumentError, which for an unknown name lists the known ones.
    """
    if "/" in name or name.endswith(_SUFFIX):
        return load_file(Path(name))
    if name not in names():
        choices = f"choose one of {', '.join(names())}, or give the path of a file"
        fail("", f"there is no scenario {name!r}; {choices}")
    return parse((_FOLDER / f"{name}{_SUFFIX}").read_text("utf-8"), f"{name}{_SUFFIX}")


def check(scenario: Scenario) -> None:
    """Raise DocumentError with the path of the first impossible value."""
    check_gpus(scenario)
    for path, amd in with_paths("amd", scenario.amd):
        check_amd(amd, path)
    _check_identities(scenario)
    for path, pod in scenario.all_pods():
        _check_names(pod, path)
    for path, process in scenario.all_processes():
        _check_process(scenario, process, path)
    _check_memory(scenario)
    _check_kept(scenario)
    for path, fault in with_paths("faults", scenario.faults):
        _check_fault(scenario, fault, path)


def _gpus(scenario: Scenario) -> list[tuple[str, Gpu]]:
    return [*with_paths("gpus", scenario.gpus), *with_paths("amd", gpus_of(scenario.amd))]


def _check_names(pod: Pod, path: str) -> None:
    """Names become file names, so they must not lead out of their folder."""
    _matches(_DNS_NAME, pod.namespace, f"{path}.namespace")
    _matches(_DNS_NAME, pod.name, f"{path}.name")
    _matches(_UID, pod.uid, f"{path}.uid")
    containers = list(with_paths(f"{path}.containers", pod.containers))
    for container_path, container in containers:
        _matches(_DNS_NAME, container.name, f"{container_path}.name")
        _matches(_CONTAINER_ID, container.container_id, f"{container_path}.container_id")
        for claim_path, claim in with_paths(f"{container_path}.claims", container.claims):
            _matches(_UID, claim.uid, f"{claim_path}.uid")
    _check_unique("name", ((container_path, container.name) for container_path, container in containers))


def _check_kept(scenario: Scenario) -> None:
    for system, files in scenario.kept.items():
        if system not in KEEPERS:
            fail("kept", f"{system} is not a system with files; there are {', '.join(sorted(KEEPERS))}")
        for path, file in with_paths(f"kept.{system}", files):
            for field, pattern in _KEPT.items():
                if getattr(file, field):
                    _matches(pattern, getattr(file, field), f"{path}.{field}")
            kind = _NUMBER if system in NUMBERED else _DEVICE
            for use_path, use in with_paths(f"{path}.devices", file.devices):
                _matches(kind, use.device, f"{use_path}.device")


def _matches(pattern: re.Pattern[str], value: str, path: str) -> None:
    if not pattern.fullmatch(value):
        fail(path, f"must match {pattern.pattern}, not {value!r}")


def _check_identities(scenario: Scenario) -> None:
    gpus = _gpus(scenario)
    for field in ("uuid", "minor", "pci_bus_id"):
        _check_unique(field, ((path, getattr(gpu, field)) for path, gpu in gpus))
    instances = (each for path, gpu in gpus for each in with_paths(f"{path}.mig.instances", gpu.instances))
    _check_unique("uuid", ((path, instance.uuid) for path, instance in instances))
    _check_unique("name", ((path, pod.full_name) for path, pod in with_paths("pods", scenario.pods)))
    _check_unique("uid", ((path, pod.uid) for path, pod in scenario.all_pods()))
    container_ids = ((path, container.container_id) for path, container in scenario.all_containers())
    _check_unique("container_id", container_ids)
    _check_unique("pid", ((path, process.pid) for path, process in scenario.all_processes()))


def _check_unique(field: str, values: Iterable[tuple[str, Hashable]]) -> None:
    paths: dict[Hashable, str] = {}
    for path, value in values:
        if value in paths:
            fail(f"{path}.{field}", f"is {value}, which {paths[value]} already has")
        if value is not None:
            paths[value] = path


def _check_process(scenario: Scenario, process: Process, path: str) -> None:
    if process.pid <= 1:
        fail(f"{path}.pid", "must be above 1")
    if process.load.shape != "off" and process.load.high > 100:
        fail(f"{path}.load.high", "must be a percentage, at most 100")
    if process.device not in _devices(scenario):
        problem = f"{process.device} is neither a GPU without MIG nor a MIG instance of this node"
        fail(f"{path}.device", problem)


def _check_memory(scenario: Scenario) -> None:
    """Compare the processes that run from the start with the memory of each device."""
    usage: Counter[str] = Counter()
    for path, process in scenario.all_processes():
        if not path.startswith("faults"):
            memory = process.memory
            usage[process.device] += int(peak(memory)) if isinstance(memory, Curve) else memory or 0
    for path, gpu in _gpus(scenario):
        for key, _, instance in keys((gpu,)):
            room, name = gpu.memory_total - gpu.memory_reserved - gpu.overhead, "memory"
            if instance is not None:
                room = instance.memory_bytes - instance.reserved - instance.overhead
                name = f"{instance.profile} instance {instance.gi}/{instance.ci}"
            used = usage[key.mig_uuid or key.uuid]
            if used > room:
                fail(path, f"its processes use up to {used} bytes, its {name} has room for {room}")


def _check_fault(scenario: Scenario, fault: Fault, path: str) -> None:
    pods = {pod.full_name for _, pod in scenario.all_pods()}
    pids = {process.pid for _, process in scenario.all_processes()}
    if fault.at < 0 or (fault.for_ is not None and fault.for_ <= 0):
        fail(f"{path}.at" if fault.at < 0 else f"{path}.for", "must be a time in seconds after the start")
    if isinstance(fault, schema.NvmlFault):
        _check_nvml_fault(scenario, fault, path)
    if isinstance(fault, schema.GpuAbsent) and not 0 <= fault.gpu < len(scenario.gpus):
        fail(f"{path}.gpu", f"must be the index of one of the {len(scenario.gpus)} GPUs")
    if isinstance(fault, schema.MigLayout):
        check_layout(scenario.gpus[fault.gpu], fault.instances, f"{path}.instances")
    if isinstance(fault, schema.PodDelete) and fault.pod not in pods:
        fail(f"{path}.pod", f"{fault.pod} is not a pod (namespace/name) of this node")
    if isinstance(fault, schema.Unhealthy):
        offered = {key for offer in scenario.offers if offer.resource == fault.resource for key in offer.ids}
        for device in set(fault.devices) - offered:
            fail(f"{path}.devices", f"{device} is not an id of {fault.resource} that this node offers")
    if isinstance(fault, schema.ProcessExit) and fault.pid not in pids:
        fail(f"{path}.pid", f"no process has the pid {fault.pid}")


def _check_nvml_fault(scenario: Scenario, fault: schema.NvmlFault, path: str) -> None:
    function = None if isinstance(fault, schema.XidEvent) else fault.function
    if function is None and fault.device is None:
        fail(path, "must name a function, a device or both")
    if function is not None and function not in FUNCTIONS:
        fail(f"{path}.function", f"{function} is not a function of the fake driver")
    if isinstance(fault, schema.NvmlError) and code_of(fault.code) is None:
        fail(f"{path}.code", f"{fault.code} is not an NVML error, such as GPU_IS_LOST or NOT_SUPPORTED")
    devices = _devices(scenario) | {gpu.uuid for gpu in scenario.gpus}
    if fault.device is not None and fault.device not in devices:
        fail(f"{path}.device", f"{fault.device} is not a device of this node")


def _devices(scenario: Scenario) -> set[str]:
    """Return the uuids of GPUs without MIG, and of the MIG instances in all layouts."""
    uuids = {key.mig_uuid or key.uuid for key, _, _ in keys([gpu for _, gpu in _gpus(scenario)])}
    for fault in scenario.faults:
        if isinstance(fault, schema.MigLayout):
            uuids.update(instance.uuid for instance in fault.instances)
    return uuids
