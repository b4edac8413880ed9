"""The one list of targets, for hypothesis, for the guided runs and for the check that none is missing."""

from tests.together.fuzz import (
    targets_amd,
    targets_config,
    targets_files,
    targets_kubelet,
    targets_nvml,
    targets_nvml_events,
    targets_nvml_limits,
    targets_nvml_meters,
    targets_nvml_parts,
    targets_proc,
    targets_scheduling,
    targets_systems,
    targets_texts,
    targets_translate,
    targets_web,
)
from tests.together.fuzz.target import Target

TARGETS: tuple[Target, ...] = (
    *targets_kubelet.TARGETS,
    *targets_scheduling.TARGETS,
    *targets_texts.TARGETS,
    *targets_systems.TARGETS,
    *targets_files.TARGETS,
    *targets_proc.TARGETS,
    *targets_nvml.TARGETS,
    *targets_nvml_parts.TARGETS,
    *targets_nvml_meters.TARGETS,
    *targets_nvml_events.TARGETS,
    *targets_nvml_limits.TARGETS,
    *targets_amd.TARGETS,
    *targets_web.TARGETS,
    *targets_config.TARGETS,
    *targets_translate.TARGETS,
)
