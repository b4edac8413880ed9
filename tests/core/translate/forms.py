"""Expressions on DCGM's old names and their translations, in the forms that dashboards and rules have."""

from typing import Final

TRANSLATED: Final[dict[str, str]] = {
    # Names alone.
    "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    'sum(DCGM_FI_DEV_POWER_USAGE{gpu="0"})': 'sum(DCGM_FI_DEV_BOARD_POWER_WATTS{gpu="0"})',
    '{__name__="DCGM_FI_DEV_GPU_TEMP", gpu="0"}': '{__name__="DCGM_FI_DEV_GPU_TEMP_CELSIUS", gpu="0"}',
    "DCGM_FI_DEV_GPU_TEMP > DCGM_FI_DEV_SLOWDOWN_TEMP": (
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS > DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS"
    ),
    "increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[1h]) > 0": "increase(DCGM_FI_DEV_PCIE_REPLAY_TOTAL[1h]) > 0",
    # Units.
    "DCGM_FI_DEV_GPU_UTIL": "DCGM_FI_DEV_GPU_UTIL_RATIO * 100",
    "DCGM_FI_DEV_FB_USED": "DCGM_FI_DEV_FB_USED_BYTES / 1024 / 1024",
    "DCGM_FI_DEV_SM_CLOCK < 500": "DCGM_FI_DEV_SM_CLOCK_HERTZ / 1000000 < 500",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND / 1024000",
    "-DCGM_FI_DEV_GPU_UTIL": "-DCGM_FI_DEV_GPU_UTIL_RATIO * 100",
    "avg(DCGM_FI_DEV_GPU_UTIL) > 80": "avg(DCGM_FI_DEV_GPU_UTIL_RATIO) * 100 > 80",
    "DCGM_FI_DEV_GPU_UTIL + 5": "DCGM_FI_DEV_GPU_UTIL_RATIO * 100 + 5",
    "5 - DCGM_FI_DEV_GPU_UTIL": "5 - DCGM_FI_DEV_GPU_UTIL_RATIO * 100",
    "DCGM_FI_DEV_GPU_UTIL ^ 2": "(DCGM_FI_DEV_GPU_UTIL_RATIO * 100) ^ 2",
    "7 % DCGM_FI_DEV_GPU_UTIL": "7 % round(DCGM_FI_DEV_GPU_UTIL_RATIO * 100)",
    "ceil(avg(DCGM_FI_DEV_GPU_UTIL))": "ceil(avg(round(DCGM_FI_DEV_GPU_UTIL_RATIO * 100)))",
    "ceil(avg_over_time(DCGM_FI_DEV_FB_USED[9m]))": (
        "ceil(avg_over_time(DCGM_FI_DEV_FB_USED_BYTES[9m]) / 1024 / 1024)"
    ),
    "100 / DCGM_FI_DEV_FB_TOTAL": "100 / DCGM_FI_DEV_FB_CAPACITY_BYTES * 1024 * 1024",
    "(DCGM_FI_DEV_GPU_UTIL + DCGM_FI_DEV_MEM_COPY_UTIL) / 2": (
        "(DCGM_FI_DEV_GPU_UTIL_RATIO + DCGM_FI_DEV_MEMORY_UTIL_RATIO) / 2 * 100"
    ),
    "DCGM_FI_DEV_GPU_UTIL - DCGM_FI_DEV_MEM_COPY_UTIL > 0.5": (
        "(DCGM_FI_DEV_GPU_UTIL_RATIO - DCGM_FI_DEV_MEMORY_UTIL_RATIO) * 100 > 0.5"
    ),
    # Units that cancel, and numbers that converted them.
    "DCGM_FI_DEV_FB_USED * 1024 * 1024": "DCGM_FI_DEV_FB_USED_BYTES",
    "1024 * 1024 * DCGM_FI_DEV_FB_USED": "DCGM_FI_DEV_FB_USED_BYTES",
    "sum(DCGM_FI_DEV_FB_USED * 2^20) / 1e9": "sum(DCGM_FI_DEV_FB_USED_BYTES) / 1e9",
    "DCGM_FI_DEV_FB_USED / 1024": "DCGM_FI_DEV_FB_USED_BYTES / 1024 / 1024 / 1024",
    "avg(DCGM_FI_DEV_GPU_UTIL) / 100": "avg(DCGM_FI_DEV_GPU_UTIL_RATIO)",
    "DCGM_FI_DEV_SM_CLOCK * 1000000": "DCGM_FI_DEV_SM_CLOCK_HERTZ",
    "DCGM_FI_DEV_SM_CLOCK / 1000": "DCGM_FI_DEV_SM_CLOCK_HERTZ / 1000000000",
    "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m]) / 1000": "rate(DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL[5m])",
    "increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1h]) / 3600000": (
        "increase(DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL[1h]) / 3600"
    ),
    "sum(rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m])) * 2": (
        "sum(rate(DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL[5m])) * 2000"
    ),
    "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) * 100 > 90": (
        "DCGM_FI_DEV_FB_USED_BYTES / (DCGM_FI_DEV_FB_USED_BYTES + DCGM_FI_DEV_FB_FREE_BYTES) * 100 > 90"
    ),
    "DCGM_FI_DEV_FB_USED / clamp_min(DCGM_FI_DEV_FB_TOTAL, 1)": (
        "DCGM_FI_DEV_FB_USED_BYTES / clamp_min(DCGM_FI_DEV_FB_CAPACITY_BYTES / 1024 / 1024, 1) / 1024 / 1024"
    ),
    "DCGM_FI_DEV_FB_USED > on (UUID) DCGM_FI_DEV_FB_FREE": (
        "(DCGM_FI_DEV_FB_USED_BYTES > on (UUID) DCGM_FI_DEV_FB_FREE_BYTES) / 1024 / 1024"
    ),
    "DCGM_FI_DEV_FB_USED > bool DCGM_FI_DEV_FB_FREE": (
        "DCGM_FI_DEV_FB_USED_BYTES > bool DCGM_FI_DEV_FB_FREE_BYTES"
    ),
    # Functions and aggregations.
    "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m])": (
        "rate(DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL[5m]) * 1000"
    ),
    "quantile_over_time(0.95, DCGM_FI_DEV_GPU_UTIL[5m])": (
        "quantile_over_time(0.95, DCGM_FI_DEV_GPU_UTIL_RATIO[5m]) * 100"
    ),
    "quantile(0.95, DCGM_FI_DEV_GPU_UTIL)": "quantile(0.95, DCGM_FI_DEV_GPU_UTIL_RATIO) * 100",
    "stddev(DCGM_FI_DEV_GPU_UTIL)": "stddev(DCGM_FI_DEV_GPU_UTIL_RATIO) * 100",
    "stdvar(DCGM_FI_DEV_GPU_UTIL)": "stdvar(DCGM_FI_DEV_GPU_UTIL_RATIO * 100)",
    "stdvar_over_time(DCGM_FI_DEV_GPU_UTIL[9m])": "stdvar_over_time(DCGM_FI_DEV_GPU_UTIL_RATIO[9m]) * 10000",
    "deriv(DCGM_FI_DEV_FB_USED[9m]) > 0": "deriv(DCGM_FI_DEV_FB_USED_BYTES[9m]) / 1024 / 1024 > 0",
    "predict_linear(DCGM_FI_DEV_FB_FREE[9m], 60) < 0": (
        "predict_linear(DCGM_FI_DEV_FB_FREE_BYTES[9m], 60) / 1024 / 1024 < 0"
    ),
    "topk(2, DCGM_FI_DEV_FB_USED)": "topk(2, DCGM_FI_DEV_FB_USED_BYTES / 1024 / 1024)",
    "sort_desc(sum by (pod) (DCGM_FI_DEV_FB_USED))": (
        "sort_desc(sum by (pod) (DCGM_FI_DEV_FB_USED_BYTES) / 1024 / 1024)"
    ),
    "count(DCGM_FI_DEV_GPU_UTIL)": "count(DCGM_FI_DEV_GPU_UTIL_RATIO)",
    "count(DCGM_FI_DEV_GPU_UTIL > 50)": "count(DCGM_FI_DEV_GPU_UTIL_RATIO * 100 > 50)",
    'count_values("v", DCGM_FI_DEV_GPU_UTIL)': 'count_values("v", round(DCGM_FI_DEV_GPU_UTIL_RATIO * 100))',
    "absent(DCGM_FI_DEV_GPU_UTIL)": "absent(DCGM_FI_DEV_GPU_UTIL_RATIO)",
    "changes(DCGM_FI_DEV_GPU_UTIL[9m])": "changes(DCGM_FI_DEV_GPU_UTIL_RATIO[9m])",
    "timestamp(DCGM_FI_DEV_FB_USED)": "timestamp(DCGM_FI_DEV_FB_USED_BYTES)",
    "clamp_max(DCGM_FI_DEV_GPU_UTIL, 50)": "clamp_max(DCGM_FI_DEV_GPU_UTIL_RATIO * 100, 50)",
    "round(DCGM_FI_DEV_FB_USED / 1024, 0.1)": "round(DCGM_FI_DEV_FB_USED_BYTES / 1024 / 1024 / 1024, 0.1)",
    "scalar(sum(DCGM_FI_DEV_FB_USED)) + 1": "scalar(sum(DCGM_FI_DEV_FB_USED_BYTES)) / 1024 / 1024 + 1",
    "vector(0) + on () sum(DCGM_FI_DEV_GPU_UTIL)": (
        "vector(0) + on () sum(DCGM_FI_DEV_GPU_UTIL_RATIO) * 100"
    ),
    # Offsets, times, subqueries.
    "DCGM_FI_DEV_GPU_UTIL offset 10m": "DCGM_FI_DEV_GPU_UTIL_RATIO offset 10m * 100",
    "max_over_time(DCGM_FI_DEV_GPU_UTIL[20m:5m] offset 5m)": (
        "max_over_time(DCGM_FI_DEV_GPU_UTIL_RATIO[20m:5m] offset 5m) * 100"
    ),
    "max_over_time((DCGM_FI_DEV_GPU_UTIL > 80)[20m:5m])": (
        "max_over_time((DCGM_FI_DEV_GPU_UTIL_RATIO * 100 > 80)[20m:5m])"
    ),
    "sum_over_time(sum(DCGM_FI_DEV_GPU_UTIL)[20m:5m])": (
        "sum_over_time(sum(DCGM_FI_DEV_GPU_UTIL_RATIO)[20m:5m]) * 100"
    ),
    # Sets.
    "DCGM_FI_DEV_POWER_USAGE and DCGM_FI_DEV_GPU_UTIL < 5": (
        "DCGM_FI_DEV_BOARD_POWER_WATTS and DCGM_FI_DEV_GPU_UTIL_RATIO * 100 < 5"
    ),
    "DCGM_FI_DEV_GPU_UTIL unless DCGM_FI_DEV_FB_USED": (
        "DCGM_FI_DEV_GPU_UTIL_RATIO * 100 unless DCGM_FI_DEV_FB_USED_BYTES"
    ),
    "sum(DCGM_FI_DEV_GPU_UTIL) or vector(0)": "sum(DCGM_FI_DEV_GPU_UTIL_RATIO) * 100 or vector(0)",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE * 100 or DCGM_FI_DEV_GPU_UTIL": (
        "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO * 100 or DCGM_FI_DEV_GPU_UTIL_RATIO * 100"
    ),
    # The old rounding, where a comparison depends on it.
    "DCGM_FI_DEV_FB_USED == 0": "floor(DCGM_FI_DEV_FB_USED_BYTES / 1024 / 1024) == 0",
    "DCGM_FI_DEV_FB_USED > 0": "floor(DCGM_FI_DEV_FB_USED_BYTES / 1024 / 1024) > 0",
    "sum(DCGM_FI_DEV_FB_USED) == 0": "sum(floor(DCGM_FI_DEV_FB_USED_BYTES / 1024 / 1024)) == 0",
    "max_over_time(DCGM_FI_DEV_FB_USED[9m]) == 0": (
        "floor(max_over_time(DCGM_FI_DEV_FB_USED_BYTES[9m]) / 1024 / 1024) == 0"
    ),
    "DCGM_FI_DEV_GPU_UTIL == 57": "round(DCGM_FI_DEV_GPU_UTIL_RATIO * 100) == 57",
    "DCGM_FI_DEV_GPU_UTIL == bool 100": "round(DCGM_FI_DEV_GPU_UTIL_RATIO * 100) == bool 100",
    "avg_over_time(DCGM_FI_DEV_GPU_UTIL[9m]) == 0": (
        "avg_over_time(DCGM_FI_DEV_GPU_UTIL_RATIO[9m]) * 100 == 0"
    ),
    # Labels.
    'avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL{Hostname=~"h.*"})': (
        'avg by (hostname) (DCGM_FI_DEV_GPU_UTIL_RATIO{hostname=~"h.*"}) * 100'
    ),
    "sum without (Hostname, DCGM_FI_DRIVER_VERSION) (DCGM_FI_DEV_GPU_TEMP)": (
        "sum without (hostname, DCGM_FI_SYSTEM_DRIVER_VERSION) (DCGM_FI_DEV_GPU_TEMP_CELSIUS)"
    ),
    'DCGM_FI_PROF_PCIE_TX_BYTES{Hostname="h0"}': 'DCGM_FI_PROF_PCIE_TX_BYTES{hostname="h0"}',
    'label_replace(DCGM_FI_DEV_GPU_TEMP, "node", "$1", "Hostname", "(.*)")': (
        'label_replace(DCGM_FI_DEV_GPU_TEMP_CELSIUS, "node", "$1", "hostname", "(.*)")'
    ),
    'label_join(DCGM_FI_DEV_GPU_TEMP, "id", "/", "Hostname", "gpu")': (
        'label_join(DCGM_FI_DEV_GPU_TEMP_CELSIUS, "id", "/", "hostname", "gpu")'
    ),
    "DCGM_FI_DEV_GPU_TEMP * on (Hostname) group_left (label_zone) "
    'label_replace(kube_node_labels, "Hostname", "$1", "node", "(.*)")': (
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS * on (hostname) group_left (label_zone) "
        'label_replace(kube_node_labels, "hostname", "$1", "node", "(.*)")'
    ),
    "DCGM_FI_DEV_FB_USED / on (Hostname) group_left () sum by (Hostname) (DCGM_FI_DEV_FB_TOTAL)": (
        "DCGM_FI_DEV_FB_USED_BYTES / on (hostname) group_left () "
        "sum by (hostname) (DCGM_FI_DEV_FB_CAPACITY_BYTES)"
    ),
    # Names by patterns.
    '{__name__=~"DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_MEMORY_TEMP", gpu="0"} > 50': (
        '{__name__=~"DCGM_FI_DEV_GPU_TEMP_CELSIUS|DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", gpu="0"} > 50'
    ),
    'count({__name__=~"DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_FB_USED"})': (
        'count({__name__=~"DCGM_FI_DEV_GPU_TEMP_CELSIUS|DCGM_FI_DEV_FB_USED_BYTES"})'
    ),
    # Comments and lines.
    "DCGM_FI_DEV_GPU_UTIL # busy\n  > 80 # percent": (
        "DCGM_FI_DEV_GPU_UTIL_RATIO * 100 # busy\n  > 80 # percent"
    ),
    "DCGM_FI_DEV_FB_USED # MiB\n* 1024 * 1024": (
        "DCGM_FI_DEV_FB_USED_BYTES # MiB\n* 1024 * 1024 / 1024 / 1024"
    ),
    "SUM BY (gpu) (DCGM_FI_DEV_GPU_UTIL)": "SUM BY (gpu) (DCGM_FI_DEV_GPU_UTIL_RATIO) * 100",
}

UNCHANGED: Final = (
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "rate(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL [5m])  > 0",
    "DCGM_FI_DEV_GPU_UTIL_RATIO * 100 > 80",
    'count({__name__=~"DCGM_FI_.*"})',
    'up{job="DCGM", Hostname="h0"}',
    'kube_node_labels{node="DCGM"}',
)

WITH_VARIABLES: Final[dict[str, str]] = {
    'avg(DCGM_FI_DEV_GPU_UTIL{instance=~"$instance", gpu=~"${gpu:regex}"}) > $limit': (
        'avg(DCGM_FI_DEV_GPU_UTIL_RATIO{instance=~"$instance", gpu=~"${gpu:regex}"}) * 100 > $limit'
    ),
    "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[$__rate_interval]) / 1000": (
        "rate(DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL[$__rate_interval])"
    ),
    "avg_over_time(DCGM_FI_DEV_GPU_UTIL[${window}:$__interval] offset $shift)": (
        "avg_over_time(DCGM_FI_DEV_GPU_UTIL_RATIO[${window}:$__interval] offset $shift) * 100"
    ),
    "max_over_time(DCGM_FI_DEV_GPU_UTIL[[[window]]])": (
        "max_over_time(DCGM_FI_DEV_GPU_UTIL_RATIO[[[window]]]) * 100"
    ),
    "topk($n, sum by ($group) (DCGM_FI_DEV_FB_USED{$more}))": (
        "topk($n, sum by ($group) (DCGM_FI_DEV_FB_USED_BYTES{$more}) / 1024 / 1024)"
    ),
    "$aggregation(DCGM_FI_DEV_GPU_UTIL)": "$aggregation(DCGM_FI_DEV_GPU_UTIL_RATIO * 100)",
    "${aggregation}_over_time(DCGM_FI_DEV_GPU_TEMP[5m])": (
        "${aggregation}_over_time(DCGM_FI_DEV_GPU_TEMP_CELSIUS[5m])"
    ),
    "$metric + DCGM_FI_DEV_GPU_TEMP": "$metric + DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    '$metric{gpu="0"} + DCGM_FI_DEV_GPU_TEMP': '$metric{gpu="0"} + DCGM_FI_DEV_GPU_TEMP_CELSIUS',
    'DCGM_FI_DEV_GPU_UTIL{job="{{ .Values.job }}"} > {{ .Values.limit | default 80 }}': (
        'DCGM_FI_DEV_GPU_UTIL_RATIO{job="{{ .Values.job }}"} * 100 > {{ .Values.limit | default 80 }}'
    ),
}

REFUSED: Final[dict[str, str]] = {
    "DCGM_FI_DEV_GPU_UTIL +": "cannot be parsed",
    "DCGM_FI_DEV_GPU_UTIL default 0": "cannot be parsed",
    "DCGM_FI_DEV_GPU_UTIL ~ 5": "'~' is not expected at character 22",
    "DCGM_FI_DEV_GPU_UTIL[5m]": "range cannot be converted",
    "DCGM_FI_$field": "made of a variable",
    '{__name__="DCGM_FI_$field"}': "made of a variable",
    "${function}_over_time(DCGM_FI_DEV_GPU_UTIL[5m])": "not proportional",
    "changes(DCGM_FI_DEV_FB_USED[5m])": "other steps",
    "avg_over_time(DCGM_FI_DEV_FB_USED[5m]) == 0": "exact number",
    'sum({__name__=~"DCGM_FI_.*"})': "several names",
    '{__name__=~"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_DEV_FB_USED"}': "several names",
    '{__name__=~"DCGM_FI_DEV_GPU_UTIL|DCGM_FI_DEV_ENC_UTIL"}': "several names",
    '{__name__=~"DCGM_FI_DEV_.*_(UTIL|CLOCK)"}': "selects names that change",
    '{__name__!~"DCGM_FI_DEV_GPU_.*", gpu="0"}': "selects names that change",
    '{__name__=~"(DCGM_.*)+"}': "is not understood",
    'count by (__name__) ({__name__=~"DCGM_FI_DEV_FB_.*"})': "a label of the result",
    "DCGM_FI_DEV_GPU_UTIL * on (Hostname) group_left () my_nodes": "not of DCGM",
    'label_replace(DCGM_FI_DEV_GPU_TEMP, "x", "$1", "__name__", "(.*)")': "a label of the result",
}

OWN: Final[dict[str, str]] = {
    "DCGM_FI_DEV_GPU_UTIL > 80": "gpuslice_gpu_utilization_ratio * 100 > 80",
    'DCGM_FI_DEV_FB_USED{Hostname="h0", gpu="0"}': (
        'gpuslice_gpu_memory_used_bytes{node="h0", gpu="0"} / 1024 / 1024'
    ),
    "sum by (Hostname, UUID) (DCGM_FI_DEV_POWER_USAGE)": "sum by (node, uuid) (gpuslice_gpu_power_watts)",
    "DCGM_FI_DEV_SM_CLOCK * 1000000": 'gpuslice_gpu_clock_hertz{clock="sm"}',
    'avg(DCGM_FI_DEV_MEM_CLOCK{gpu="0"})': 'avg(gpuslice_gpu_clock_hertz{clock="memory", gpu="0"}) / 1000000',
    "rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m]) / 1000": "rate(gpuslice_gpu_energy_joules_total[5m])",
    "DCGM_FI_DEV_FB_USED / DCGM_FI_DEV_FB_TOTAL": (
        "gpuslice_gpu_memory_used_bytes / gpuslice_gpu_memory_total_bytes"
    ),
    "avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE)": "avg(gpuslice_gpu_graphics_engine_active_ratio)",
    "DCGM_FI_DEV_GPU_UTIL_RATIO": "gpuslice_gpu_utilization_ratio",
    "DCGM_FI_DEV_FB_USED_BYTES / 1e9": "gpuslice_gpu_memory_used_bytes / 1e9",
}

NOT_OURS: Final[dict[str, str]] = {
    "sum by (pod) (DCGM_FI_DEV_FB_USED)": "several holders",
    'DCGM_FI_DEV_GPU_UTIL{modelName=~"A100.*"}': "gpuslice_gpu_info",
    'DCGM_FI_DEV_FB_USED{GPU_I_ID!=""}': "gpuslice_mig",
    "DCGM_FI_DEV_XID_ERRORS > 0": "the code is a label",
    'DCGM_FI_DEV_GPU_TEMP{job="dcgm-exporter"}': "selects targets of dcgm-exporter",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "byte counters",
    "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT": "known to mean the same",
    '{__name__=~"DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_SM_CLOCK"}': "several selectors",
}
