"""The table of settings: one field per option, with how it is written, its default and its meaning."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from exporter.config.parse import (
    ABSOLUTE_PATH,
    ADDRESS,
    ANCESTOR,
    NAME,
    PATH,
    PATTERN,
    PREFIX,
    SWITCH,
    URL,
    Kind,
    ListenAddress,
    choice,
    duration,
)


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table. ``default`` may name the fields before it in braces; None is no value at all.

    ``shown`` is the default as the docs have it.
    """

    kind: Kind
    default: str | None
    help: str
    shown: str
    repeatable: bool


def option(
    kind: Kind, default: str | None, text: str, *, shown: str = "", repeatable: bool = False
) -> dict[str, Option]:
    """Make the metadata of a field; ``shown`` stands in the docs for a default that is no constant."""
    shown = shown or (f"`{default}`" if default else "none")
    return {"option": Option(kind, default, text, shown, repeatable)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the exporter runs with. Durations are in seconds; a pattern matches a whole name."""

    config: Path | None = field(
        metadata=option(ABSOLUTE_PATH, None, "YAML file with any of the other options.")
    )
    listen: ListenAddress = field(metadata=option(ADDRESS, ":9836", "Address of the page and of /metrics."))
    web_config: Path | None = field(
        metadata=option(
            PATH,
            None,
            "File that asks for TLS, certificates and passwords, in the format of Prometheus' exporters:"
            " docs/web-config.md.",
        )
    )
    route_prefix: str | None = field(
        metadata=option(
            PREFIX,
            None,
            "Path below which everything is served too, for a proxy that passes its path on. One that strips"
            " it needs nothing: the page has relative links only.",
        )
    )
    frame_ancestors: tuple[str, ...] = field(
        metadata=option(
            ANCESTOR,
            None,
            "Whose pages may show this one in a frame; nobody's else. In the environment, commas separate"
            " several.",
            repeatable=True,
        )
    )
    node_name: str = field(
        metadata=option(
            NAME,
            "{host}",
            "Name of this node on the page and in metrics.",
            shown="`$NODE_NAME`, else the host name",
        )
    )
    poll_interval: float = field(
        metadata=option(duration("0.1s", "1h"), "5s", "Time from one poll of all sources to the next.")
    )
    stale_after: float = field(
        metadata=option(
            duration("0.1s", "24h"),
            "60s",
            "How long the last good answer of a failing source is shown; at least the poll interval.",
        )
    )
    idle_after: float = field(
        metadata=option(
            duration("1s", "168h"),
            "10m",
            "How long a holder must not have computed to be called idle, on the page and in its other forms. "
            "It is active for 1m after it was last seen computing, or for this time if that is less, and "
            "quiet in between.",
        )
    )
    history_retention: float = field(
        metadata=option(
            duration("5m", "168h"),
            "6h",
            "How much of the past the page keeps in memory for its timelines; the older, the coarser.",
        )
    )
    prometheus_url: str | None = field(
        metadata=option(
            URL,
            None,
            "Root of a Prometheus that scrapes the nodes: it gives the page of this node longer timelines,"
            " and `hub` and `inspect` their cluster.",
        )
    )
    prometheus_token_file: Path | None = field(
        metadata=option(PATH, None, "File with a bearer token for that Prometheus.")
    )
    prometheus_ca_file: Path | None = field(
        metadata=option(
            PATH, None, "File with the certificates to trust of that Prometheus, instead of the system's."
        )
    )
    nvml_library: Path | None = field(
        metadata=option(PATH, None, "The driver's libnvidia-ml.so.1, where the usual places do not have it.")
    )
    kubelet_root: Path = field(metadata=option(PATH, "/var/lib/kubelet", "Root directory of the kubelet."))
    pod_resources_socket: Path = field(
        metadata=option(
            PATH,
            "{kubelet_root}/pod-resources/kubelet.sock",
            "Socket of the kubelet's pod-resources API.",
            shown="`<kubelet-root>/pod-resources/kubelet.sock`",
        )
    )
    pods_api_socket: Path = field(
        metadata=option(
            PATH,
            "{kubelet_root}/pods-api/pods-api.sock",
            "Socket of the kubelet's pods API.",
            shown="`<kubelet-root>/pods-api/pods-api.sock`",
        )
    )
    pod_log_dir: Path = field(
        metadata=option(PATH, "/var/log/pods", "The kubelet's directory of pod logs, read for names only.")
    )
    proc_root: Path = field(metadata=option(PATH, "/proc", "The procfs of the node's pid namespace."))
    sys_root: Path = field(metadata=option(PATH, "/sys", "The sysfs of the node."))
    hami_root: Path = field(
        metadata=option(PATH, "/usr/local/vgpu", "Where HAMi and volcano-vgpu keep what containers use.")
    )
    hami_vnpu_root: Path = field(
        metadata=option(PATH, "/usr/local/hami-vnpu-core", "Where HAMi keeps what containers use of NPUs.")
    )
    cgpu_root: Path = field(
        metadata=option(PATH, "{proc_root}/cgpu_km", "The procfs of cGPU.", shown="`<proc-root>/cgpu_km`")
    )
    vcuda_root: Path = field(
        metadata=option(
            PATH, "/etc/gpu-manager/vm", "Where Tencent's gpu-manager keeps limits and processes."
        )
    )
    vgpu_manager_root: Path = field(
        metadata=option(PATH, "/etc/vgpu-manager", "Where vgpu-manager keeps the limits of containers.")
    )
    mps_root: Path = field(
        metadata=option(PATH, "/run/nvidia/mps", "Where NVIDIA's device plugin keeps its MPS daemons.")
    )
    runai_root: Path = field(metadata=option(PATH, "/runai", "Where run:ai keeps what pods use."))
    resource_pattern: tuple[re.Pattern[str], ...] = field(
        metadata=option(
            PATTERN,
            None,
            "Further resource names that are GPUs, matched whole, such as `nvidia\\.com/a100.*`; NVIDIA's own"
            " names are always known. In the environment, commas separate several.",
            repeatable=True,
        )
    )
    pod_labels: tuple[re.Pattern[str], ...] = field(
        metadata=option(
            PATTERN,
            None,
            "Names of pod labels for /metrics to show, matched whole, such as `app\\.kubernetes\\.io/.*`;"
            " labels are known where the kubelet's pods API or the Kubernetes API is asked. In the"
            " environment, commas separate several.",
            repeatable=True,
        )
    )
    job_mapping_dir: Path | None = field(
        metadata=option(
            PATH,
            None,
            "Directory of files that say which jobs of a batch system have which GPU, as for dcgm-exporter:"
            " named `<GPU>` or `<GPU>.<GPU instance>`, a job on each line.",
        )
    )
    dcgm_names: Literal["on", "off", "only", "legacy"] = field(
        metadata=option(
            choice("on", "off", "only", "legacy"),
            "on",
            "Whether /metrics carries dcgm-exporter's series too, or nothing else; `legacy` carries them"
            " under the lower-case names of its first version as well.",
        )
    )
    dcgm_hostname_label: Literal["Hostname", "hostname"] = field(
        metadata=option(
            choice("Hostname", "hostname"),
            "Hostname",
            "Spelling of the label with the node in dcgm-exporter's series.",
        )
    )
    dcgm_exporter_url: str | None = field(
        metadata=option(
            URL,
            None,
            "/metrics of a dcgm-exporter on this node, for what NVML cannot give: profiling meters before"
            " Hopper.",
        )
    )
    pcie_throughput: bool = field(
        metadata=option(
            SWITCH, "off", "Ask for PCIe throughput too, which takes the driver 20 ms per direction and GPU."
        )
    )
    driver_release_file: Path | None = field(
        metadata=option(
            PATH,
            None,
            "While this file exists the driver is given up, so that GPUs can be reset or recut.",
        )
    )
    kubernetes_api: Literal["auto", "on", "off"] = field(
        metadata=option(
            choice("auto", "on", "off"),
            "auto",
            "Follow the objects of this node and its pods: annotations, by which some systems share GPUs, and"
            " labels, by which a MIG manager wants the driver. `auto` does so in pods with a token. Needs the"
            " `kubernetes` extra, and the right to list and watch pods and nodes.",
        )
    )
    kubeconfig: Path | None = field(
        metadata=option(PATH, None, "How to reach the Kubernetes API from outside a cluster; asks for it.")
    )
    log_level: Literal["debug", "info", "warning", "error"] = field(
        metadata=option(
            choice("debug", "info", "warning", "error"), "info", "Least severe message that is logged."
        )
    )
    log_format: Literal["text", "json"] = field(
        metadata=option(choice("text", "json"), "text", "Form of the log lines.")
    )
