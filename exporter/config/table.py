"""The table of settings: one field per option, with its type, its default and its meaning."""

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
    PRICE,
    SWITCH,
    URL,
    ListenAddress,
    choice,
    duration,
    option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the exporter. Durations are in seconds; a pattern matches a whole name."""

    config: Path | None = field(
        metadata=option(ABSOLUTE_PATH, None, "YAML file with values for the other options.")
    )
    listen: ListenAddress = field(
        metadata=option(ADDRESS, ":9836", "Listen address of the page and of /metrics.")
    )
    web_config: Path | None = field(
        metadata=option(
            PATH,
            None,
            "Web configuration file for TLS, client certificates and passwords, in the format of the"
            " Prometheus exporter toolkit: docs/web-config.md.",
        )
    )
    route_prefix: str | None = field(
        metadata=option(
            PREFIX,
            None,
            "Path prefix under which all routes are also served, for a proxy that forwards its path"
            " unchanged. Not needed for a proxy that strips the path: the links of the page are"
            " relative.",
        )
    )
    frame_ancestors: tuple[str, ...] = field(
        metadata=option(
            ANCESTOR,
            None,
            "Origins that may show the page in a frame; no other origin may. In the environment,"
            " separate several with commas.",
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
            "Time for which the last good answer of a failing source is shown; at least the poll interval.",
        )
    )
    idle_after: float = field(
        metadata=option(
            duration("1s", "168h"),
            "10m",
            "Time without compute use after which a holder is idle, on the page and in the other"
            " formats. A holder is active for 1m after its last compute use (for this time if it is"
            " shorter), and quiet in between.",
        )
    )
    gpu_hour_price: float | None = field(
        metadata=option(PRICE, None, "Price of a GPU-hour, of all GPUs alike, for the savings of advice.")
    )
    history_retention: float = field(
        metadata=option(
            duration("5m", "168h"),
            "6h",
            "Retention of the history that is kept in memory for the timelines of the page; older"
            " data is coarser.",
        )
    )
    prometheus_url: str | None = field(
        metadata=option(
            URL,
            None,
            "Base URL of a Prometheus that scrapes the nodes, as the source of longer timelines on"
            " the page of the node, and of the cluster in `hub` and `inspect`.",
        )
    )
    prometheus_token_file: Path | None = field(
        metadata=option(PATH, None, "File with the bearer token for --prometheus-url.")
    )
    prometheus_ca_file: Path | None = field(
        metadata=option(
            PATH,
            None,
            "File with the CA certificates to trust for --prometheus-url, instead of those of the system.",
        )
    )
    nvml_library: Path | None = field(
        metadata=option(
            PATH, None, "Path of the driver's libnvidia-ml.so.1, if it is not in a standard location."
        )
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
            "Socket of the kubelet's Pods API.",
            shown="`<kubelet-root>/pods-api/pods-api.sock`",
        )
    )
    pod_log_dir: Path = field(
        metadata=option(
            PATH,
            "/var/log/pods",
            "Directory of the kubelet's pod logs; only the names of directories are read.",
        )
    )
    proc_root: Path = field(metadata=option(PATH, "/proc", "Path of the procfs of the node's PID namespace."))
    sys_root: Path = field(metadata=option(PATH, "/sys", "Path of the sysfs of the node."))
    hami_root: Path = field(
        metadata=option(
            PATH, "/usr/local/vgpu", "Directory in which HAMi and volcano-vgpu keep the usage of containers."
        )
    )
    hami_vnpu_root: Path = field(
        metadata=option(
            PATH, "/usr/local/hami-vnpu-core", "Directory in which HAMi keeps the NPU usage of containers."
        )
    )
    cgpu_root: Path = field(
        metadata=option(
            PATH, "{proc_root}/cgpu_km", "Directory of cGPU in the procfs.", shown="`<proc-root>/cgpu_km`"
        )
    )
    vcuda_root: Path = field(
        metadata=option(
            PATH,
            "/etc/gpu-manager/vm",
            "Directory in which Tencent's gpu-manager keeps the limits and processes of containers.",
        )
    )
    vgpu_manager_root: Path = field(
        metadata=option(
            PATH, "/etc/vgpu-manager", "Directory in which vgpu-manager keeps the limits of containers."
        )
    )
    mps_root: Path = field(
        metadata=option(PATH, "/run/nvidia/mps", "Directory of the MPS daemons of NVIDIA's device plugin.")
    )
    runai_root: Path = field(
        metadata=option(PATH, "/runai", "Directory in which run:ai keeps the usage of pods.")
    )
    resource_pattern: tuple[re.Pattern[str], ...] = field(
        metadata=option(
            PATTERN,
            None,
            "Additional resource names of GPUs, matched whole, such as `nvidia\\.com/a100.*`;"
            " NVIDIA's own names are built in. In the environment, separate several with commas.",
            repeatable=True,
        )
    )
    pod_labels: tuple[re.Pattern[str], ...] = field(
        metadata=option(
            PATTERN,
            None,
            "Names of the pod labels to show on /metrics, matched whole, such as"
            " `app\\.kubernetes\\.io/.*`; requires the kubelet's Pods API or the Kubernetes API. In"
            " the environment, separate several with commas.",
            repeatable=True,
        )
    )
    job_mapping_dir: Path | None = field(
        metadata=option(
            PATH,
            None,
            "Directory with the job mapping files of a batch system, as for dcgm-exporter: a file"
            " named `<GPU>` or `<GPU>.<GPU instance>` with one job per line.",
        )
    )
    metric_set: Literal["core", "standard", "full"] = field(
        metadata=option(
            choice("core", "standard", "full"),
            "core",
            "Native series on /metrics: `core` has what the alerts and the Fleet, Node and Tenant"
            " dashboards need, `standard` also what the Hardware dashboard shows, `full` all.",
        )
    )
    metric_allowlist: tuple[re.Pattern[str], ...] = field(
        metadata=option(
            PATTERN,
            None,
            "Names of series to add to the set, matched whole, such as `gpuslice_gpu_fan_ratio`.",
            repeatable=True,
        )
    )
    metric_denylist: tuple[re.Pattern[str], ...] = field(
        metadata=option(
            PATTERN,
            None,
            "Names of series to leave out, matched whole; wins over `--metric-allowlist`.",
            repeatable=True,
        )
    )
    dcgm_names: Literal["default", "all", "only", "off", "legacy"] = field(
        metadata=option(
            choice("default", "all", "only", "off", "legacy"),
            "default",
            "Series under dcgm-exporter's names on /metrics: `default` has those of its"
            " default-counters.csv, `all` all that are known here, `off` none; `only` has the default"
            " ones without the native series of devices and containers, `legacy` the default ones and"
            " the lower-case names of dcgm-exporter 1.x.",
        )
    )
    dcgm_hostname_label: Literal["Hostname", "hostname"] = field(
        metadata=option(
            choice("Hostname", "hostname"),
            "Hostname",
            "Name of the node label on the series under dcgm-exporter's names.",
        )
    )
    dcgm_exporter_url: str | None = field(
        metadata=option(
            URL,
            None,
            "URL of /metrics of a dcgm-exporter on this node, as the source of profiling metrics of"
            " GPUs older than Hopper.",
        )
    )
    pcie_throughput: bool = field(
        metadata=option(
            SWITCH, "off", "Read the PCIe throughput, which takes the driver 20 ms per direction and GPU."
        )
    )
    driver_release_file: Path | None = field(
        metadata=option(
            PATH,
            None,
            "NVML is shut down while this file exists, so that GPUs can be reset or repartitioned.",
        )
    )
    kubernetes_api: Literal["auto", "on", "off"] = field(
        metadata=option(
            choice("auto", "on", "off"),
            "auto",
            "Watch this node and its pods in the Kubernetes API: annotations, which some sharing"
            " systems use, and labels, with which a MIG manager requests the release of the driver."
            " `auto` does so in pods with a token. Requires the `kubernetes` extra, and permission to"
            " list and watch pods and nodes.",
        )
    )
    kubeconfig: Path | None = field(
        metadata=option(
            PATH,
            None,
            "Kubeconfig file to reach the Kubernetes API from outside a cluster; also turns"
            " --kubernetes-api auto on.",
        )
    )
    log_level: Literal["debug", "info", "warning", "error"] = field(
        metadata=option(
            choice("debug", "info", "warning", "error"),
            "info",
            "Minimum severity of the messages that are logged.",
        )
    )
    log_format: Literal["text", "json"] = field(
        metadata=option(choice("text", "json"), "text", "Format of the log lines.")
    )
