"""The schema of advice, in ``/api/v1/advice``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from exporter.advice.model import Confidence, Reason, Verdict
from exporter.web.kit.openapi.describe import Schema, choice, flag, listed, number, text, whole


def advice_schema(more: Mapping[str, Schema] = MappingProxyType({})) -> Schema:
    """Return the schema of the advice on all holders of a node, or with ``more`` fields on a cluster."""
    saved = {
        "gpus": number("GPUs, as a mean over the windows; null without any advice.", null=True),
        "gpu_hours_per_day": number("GPU-hours a day.", null=True),
        "cost_per_day": number("Their cost by --gpu-hour-price, null without it.", null=True),
    }
    savings = {
        "could_be_freed": whole(saved, "Freed by the first options together."),
        "would_fit": whole(saved, "The part of it that another holder would get."),
        "may_fit": whole(saved, "The part of it of which this is unknown."),
        "without_advice": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "How many have no advice, and so are in no sum, by reason.",
        },
    }
    return whole(
        {
            "timestamp": number("Unix time of the snapshot."),
            "advice": listed(_advice(), "One for each container, or for each GPU with time-slicing."),
            "savings": whole(savings, "Options that exclude each other are never added up."),
            **more,
        }
    )


def _advice() -> Schema:
    window = {
        "start": number("Unix time at which the first of its pods was first seen."),
        "end": number("Unix time of the end of the last 5-minute step."),
        "held_seconds": number("Time held, in sum over the pods."),
    }
    need = {
        "memory_bytes": number("Peak of memory with a margin."),
        "compute_gpus": number("95th percentile of 5-minute means with a margin.", null=True),
    }
    return whole(
        {
            "cluster": text("Value of the label cluster in Prometheus, null on a node.", null=True),
            "namespace": text("Namespace; null for the holders of a GPU together.", null=True),
            "workload": text(
                "Owner of the pods, or the pod; null for the holders of a GPU together.", null=True
            ),
            "container": text("Container; null if it is unknown or for the holders of a GPU.", null=True),
            "now": text("What it holds."),
            "options": listed(_option(), "What would fit, the best first; the others exclude it."),
            "reason": choice(get_args(Reason), "Why there is no option.", null=True),
            "why": text("The reason in words, or empty."),
            "confidence": choice(get_args(Confidence), "By days, coverage and number of pods.", null=True),
            "window": whole(window),
            "coverage": number("Share of the time held in which use was known."),
            "pods": number("Pods in the window.", kind="integer"),
            "need": {"anyOf": [whole(need), {"type": "null"}], "description": "What each device must have."},
            "device": _device(),
            "uses": listed(_use(), "The inputs, by container and device."),
        }
    )


def _option() -> Schema:
    return whole(
        {
            "verdict": choice(get_args(Verdict)),
            "target": text("What would fit."),
            "gpus_freed": number("GPUs freed; negative if more is needed."),
            "would_fit": flag("Whether another holder would get what is freed.", null=True),
            "notes": listed({"type": "string"}, "What to know before following it."),
        }
    )


def _device() -> Schema:
    return whole(
        {
            "model": text("Model of the GPU."),
            "sharing": text("Sharing mode of the device."),
            "isolation": text("Isolation of its holders."),
            "profile": text("Profile of the MIG device.", null=True),
            "memory_bytes": number("Memory of the device.", null=True),
            "unattributed_ratio": number("Mean share of its memory that no container uses.", null=True),
        }
    )


def _use() -> Schema:
    return whole(
        {
            "namespace": text("Namespace."),
            "pod": text("Pod."),
            "container": text("Container."),
            "uuid": text("UUID of the GPU."),
            "mig_uuid": text("UUID of the MIG device.", null=True),
            "node": text("Node on which it runs now; null if it has ended, and on a node.", null=True),
            "held_seconds": number("Time held."),
            "memory_coverage": number("Share of it in which memory use was known."),
            "compute_coverage": number("Share of it in which compute use was known."),
            "computing_seconds": number("Time in 5-minute steps with compute."),
            "memory_peak_bytes": number("Most memory used at a poll.", null=True),
            "memory_flat": flag("Whether memory stays within 2 % of the peak."),
            "compute_p95_gpus": number("95th percentile of 5-minute means.", null=True),
            "compute_mean_gpus": number("Mean over the measured time.", null=True),
            "sm_p95_ratio": number("The same of SM activity of the device.", null=True),
            "memory_entitled_bytes": number("Memory that it is entitled to.", null=True),
            "compute_entitled_gpus": number("Compute that it is entitled to.", null=True),
        }
    )
