"""The table of settings: one field per option, with its type, its default and its meaning."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exporter.config.commands import (
    ALL_COMMANDS,
    KUBERNETES_COMMANDS,
    MACHINE_COMMANDS,
    NODE_COMMANDS,
    PROMETHEUS_COMMANDS,
    SERVING_COMMANDS,
)
from exporter.config.headers import Header
from exporter.config.parse import (
    ABSOLUTE_PATH,
    ADDRESS,
    ANCESTOR,
    HEADER,
    NAME,
    PATH,
    PATTERN,
    PREFIX,
    PRICE,
    SWITCH,
    URL,
    ListenAddress,
    duration,
    option,
)
from exporter.documents import choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the exporter. Durations are in seconds; a pattern matches a whole name."""

    config: Path | None = option(
        ABSOLUTE_PATH, "YAML file with values for the other options.", commands=ALL_COMMANDS
    )
    listen: ListenAddress = option(
        ADDRESS,
        "Listen address of the page and of /metrics. `:9836` and `[::]:9836` are all addresses of this host,"
        " of IPv6 and of IPv4; `0.0.0.0:9836` those of IPv4.",
        default=":9836",
        commands=SERVING_COMMANDS,
    )
    web_config: Path | None = option(
        PATH,
        "Web configuration file for TLS, client certificates and passwords, in the format of the"
        " Prometheus exporter toolkit: docs/web-config.md.",
        commands=SERVING_COMMANDS,
    )
    route_prefix: str | None = option(
        PREFIX,
        "Path prefix under which all routes are also served, for a proxy that forwards its path unchanged."
        " Not needed for a proxy that strips the path: the links of the page are relative.",
        commands=SERVING_COMMANDS,
    )
    frame_ancestors: tuple[str, ...] = option(
        ANCESTOR,
        "Origins that may show the page in a frame; no other origin may.",
        repeatable=True,
        commands=SERVING_COMMANDS,
    )
    node_name: str = option(
        NAME,
        "Name of this node on the page and in metrics.",
        default="{host}",
        shown="`$NODE_NAME`, else the host name",
        commands=MACHINE_COMMANDS,
    )
    poll_interval: float = option(
        duration("0.1s", "1h"), "Time from one poll of all sources to the next.", default="5s"
    )
    stale_after: float = option(
        duration("0.1s", "24h"),
        "Time for which the last good answer of a failing source is shown; at least the poll interval.",
        default="60s",
    )
    idle_after: float = option(
        duration("1s", "168h"),
        "Time without compute use after which a holder is idle, on the page and in the other"
        " formats. A holder is active for 1m after its last compute use (for this time if it is"
        " shorter), and quiet in between.",
        default="10m",
        commands=(*NODE_COMMANDS, "inspect", "is"),
    )
    gpu_hour_price: float | None = option(
        PRICE,
        "Price of a GPU-hour, of all GPUs alike, for the savings of advice.",
        commands=(*SERVING_COMMANDS, "inspect", "advise", "is"),
    )
    prices: Path | None = option(
        PATH, "YAML file with prices of GPU-hours by model, for [usage](usage.md).", commands=("hub", "usage")
    )
    history_retention: float = option(
        duration("5m", "168h"),
        "Retention of the history in memory, for the timelines of the page; older data is coarser.",
        default="6h",
        commands=("serve", "demo"),
    )
    prometheus_url: str | None = option(
        URL,
        "URL of the Prometheus that scrapes the nodes. A flag of `doctor`: check its rules, not this node.",
        commands=PROMETHEUS_COMMANDS,
    )
    prometheus_token_file: Path | None = option(
        PATH, "File with the bearer token for --prometheus-url.", commands=PROMETHEUS_COMMANDS
    )
    prometheus_header: tuple[Header, ...] = option(
        HEADER,
        "Header of the requests to --prometheus-url, as NAME: VALUE, such as `X-Scope-OrgID: team-a` for a"
        " tenant. Lists of processes show it, so a secret belongs in --prometheus-header-file. In the"
        " environment, separate several with line breaks.",
        repeatable=True,
        separator="\n",
        commands=PROMETHEUS_COMMANDS,
    )
    prometheus_header_file: Path | None = option(
        PATH,
        "File with further headers of these requests, one NAME: VALUE in each line; it is read for each"
        " request. Empty lines, and lines that begin with #, are left out.",
        commands=PROMETHEUS_COMMANDS,
    )
    prometheus_ca_file: Path | None = option(
        PATH,
        "File with the CA certificates to trust for --prometheus-url, instead of those of the system.",
        commands=PROMETHEUS_COMMANDS,
    )
    nvml_library: Path | None = option(
        PATH,
        "Path of the driver's libnvidia-ml.so.1, if it is not in a standard location.",
        commands=MACHINE_COMMANDS,
    )
    kubelet_root: Path = option(
        PATH, "Root directory of the kubelet.", default="/var/lib/kubelet", commands=MACHINE_COMMANDS
    )
    pod_resources_socket: Path = option(
        PATH,
        "Socket of the kubelet's pod-resources API.",
        default="{kubelet_root}/pod-resources/kubelet.sock",
        shown="`<kubelet-root>/pod-resources/kubelet.sock`",
        commands=MACHINE_COMMANDS,
    )
    pods_api_socket: Path = option(
        PATH,
        "Socket of the kubelet's Pods API.",
        default="{kubelet_root}/pods-api/pods-api.sock",
        shown="`<kubelet-root>/pods-api/pods-api.sock`",
        commands=MACHINE_COMMANDS,
    )
    pod_log_dir: Path = option(
        PATH,
        "Directory of the kubelet's pod logs; only the names of directories are read.",
        default="/var/log/pods",
        commands=MACHINE_COMMANDS,
    )
    proc_root: Path = option(
        PATH, "Path of the procfs of the node's PID namespace.", default="/proc", commands=MACHINE_COMMANDS
    )
    sys_root: Path = option(PATH, "Path of the sysfs of the node.", default="/sys", commands=MACHINE_COMMANDS)
    cgroup_root: Path = option(
        PATH, "Mount of the node's cgroup v2 hierarchy.", default="/sys/fs/cgroup", commands=MACHINE_COMMANDS
    )
    hami_root: Path = option(
        PATH,
        "Directory in which HAMi and volcano-vgpu keep the usage of containers.",
        default="/usr/local/vgpu",
        commands=MACHINE_COMMANDS,
    )
    hami_vnpu_root: Path = option(
        PATH,
        "Directory in which HAMi keeps the NPU usage of containers.",
        default="/usr/local/hami-vnpu-core",
        commands=MACHINE_COMMANDS,
    )
    cgpu_root: Path = option(
        PATH,
        "Directory of cGPU in the procfs.",
        default="{proc_root}/cgpu_km",
        shown="`<proc-root>/cgpu_km`",
        commands=MACHINE_COMMANDS,
    )
    vcuda_root: Path = option(
        PATH,
        "Directory in which Tencent's gpu-manager keeps the limits and processes of containers.",
        default="/etc/gpu-manager/vm",
        commands=MACHINE_COMMANDS,
    )
    vgpu_manager_root: Path = option(
        PATH, "Directory of vgpu-manager's limits.", default="/etc/vgpu-manager", commands=MACHINE_COMMANDS
    )
    mps_root: Path = option(
        PATH,
        "Directory of MPS of NVIDIA's device plugin.",
        default="/run/nvidia/mps",
        commands=MACHINE_COMMANDS,
    )
    runai_root: Path = option(
        PATH, "Directory of run:ai with the usage of pods.", default="/runai", commands=MACHINE_COMMANDS
    )
    resource_pattern: tuple[re.Pattern[str], ...] = option(
        PATTERN,
        "Additional resource names of GPUs, matched whole, such as `nvidia\\.com/a100.*`;"
        " NVIDIA's own names are built in.",
        repeatable=True,
    )
    dra_ignore_driver: tuple[re.Pattern[str], ...] = option(
        PATTERN,
        "Names of DRA drivers whose devices are not GPUs of this node, matched whole, such as"
        " `nic\\.example\\.com`. The claims of other unknown drivers may be for GPUs, so that counts and"
        " entitlements there are unknown.",
        repeatable=True,
    )
    pod_labels: tuple[re.Pattern[str], ...] = option(
        PATTERN,
        "Names of the pod labels to show on /metrics, matched whole, such as"
        " `app\\.kubernetes\\.io/.*`; requires the kubelet's Pods API or the Kubernetes API.",
        repeatable=True,
    )
    job_mapping_dir: Path | None = option(
        PATH,
        "Directory with the job mapping files of a batch system, as for dcgm-exporter: a file"
        " named `<GPU>` or `<GPU>.<GPU instance>` with one job per line.",
    )
    metric_set: Literal["core", "standard", "full"] = option(
        choice("core", "standard", "full"),
        "Native series on /metrics: `core` has what the alerts and the Fleet, Node and Tenant"
        " dashboards need, `standard` also what the Hardware dashboard shows, `full` all.",
        default="core",
    )
    metric_allowlist: tuple[re.Pattern[str], ...] = option(
        PATTERN,
        "Names of series to add to the set, matched whole, such as `gpuslice_gpu_fan_ratio`.",
        repeatable=True,
    )
    metric_denylist: tuple[re.Pattern[str], ...] = option(
        PATTERN,
        "Names of series to leave out, matched whole; wins over `--metric-allowlist`.",
        repeatable=True,
    )
    dcgm_names: Literal["default", "all", "only", "off", "legacy"] = option(
        choice("default", "all", "only", "off", "legacy"),
        "Series under dcgm-exporter's names on /metrics: `default` has those of its default-counters.csv,"
        " `all` all that are known here, `off` none; `only` has the default ones without the native series of"
        " devices and containers, `legacy` the default ones and the lower-case names of dcgm-exporter 1.x.",
        default="default",
    )
    dcgm_version: Literal["4.8", "4.9", "both"] = option(
        choice("4.8", "4.9", "both"),
        "dcgm-exporter whose names, units and labels these series have: up to `4.8`, or from `4.9` on. `both`"
        " has each renamed series twice.",
        default="4.8",
    )
    dcgm_hostname_label: Literal["Hostname", "hostname"] = option(
        choice("Hostname", "hostname"),
        "Name of the node label on the series under dcgm-exporter's names up to 4.8; later names have"
        " `hostname`.",
        default="Hostname",
    )
    dcgm_exporter_url: str | None = option(
        URL,
        "URL of /metrics of a dcgm-exporter here: a source of profiling metrics of GPUs before Hopper.",
    )
    pcie_throughput: bool = option(
        SWITCH, "Read the PCIe throughput, which takes the driver 20 ms per direction and GPU.", default="off"
    )
    driver_release_file: Path | None = option(
        PATH, "NVML is shut down while this file exists, so that GPUs can be reset or repartitioned."
    )
    kubernetes_api: Literal["auto", "on", "off"] = option(
        choice("auto", "on", "off"),
        "Watch this node and its pods in the Kubernetes API: annotations, which some sharing systems use, and"
        " labels, with which a MIG manager requests the release of the driver; `auto` does so in pods with a"
        " token. Of `hub`: watch the whole cluster; only with `on` or --kubeconfig. Requires the `kubernetes`"
        " extra, and permission to list and watch pods and nodes.",
        default="auto",
        commands=KUBERNETES_COMMANDS,
    )
    kubeconfig: Path | None = option(
        PATH,
        "Kubeconfig file to reach the Kubernetes API from outside; also turns --kubernetes-api auto on.",
        commands=KUBERNETES_COMMANDS,
    )
    log_level: Literal["debug", "info", "warning", "error"] = option(
        choice("debug", "info", "warning", "error"),
        "Minimum severity of the messages that are logged.",
        default="info",
        commands=ALL_COMMANDS,
    )
    log_format: Literal["text", "json"] = option(
        choice("text", "json"), "Format of the log lines.", default="text", commands=ALL_COMMANDS
    )
