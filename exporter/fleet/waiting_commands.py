"""The commands on pods that wait: ``why`` for one of them, ``waiting`` for all."""

import json
import sys
from collections.abc import Sequence

from exporter.config import Settings, SettingsError
from exporter.fleet.cluster_advice import ClusterAdvice, read_advice
from exporter.fleet.cluster_source import api_of_command, read_view
from exporter.fleet.commands import prometheus_of
from exporter.fleet.prometheus import Prometheus, PrometheusError
from exporter.fleet.targets import MissingSeriesError, UnknownNameError
from exporter.fleet.waiting import Waiting, narrowed, read_waiting
from exporter.fleet.waiting_data import waiting_csv, waiting_json
from exporter.fleet.waiting_text import waiting_text, why_text
from exporter.output import print_text, terminal_width
from exporter.waiting.objects import PodKey
from exporter.wording import printable

_FAILED = 1


async def why(settings: Settings, namespace: str, name: str, *, output: str) -> int:
    """Print why a pod waits, and return the exit code: 1 if it is not known or the pod does not wait.

    Raises SettingsError if neither the Kubernetes API nor a Prometheus can be asked.
    """
    key = PodKey(namespace, name)
    waiting = await _read(settings, key)
    if output == "json":
        print_text(json.dumps(waiting_json(waiting), indent=2) + "\n")
    else:
        print_text(why_text(waiting, key, terminal_width()))
    return 0 if waiting.answers else _FAILED


async def list_waiting(settings: Settings, namespaces: Sequence[str], *, output: str) -> int:
    """Print the pods that wait for a device, in these namespaces or in all.

    Return the exit code: 1 if they are not known. Raises SettingsError likewise.
    """
    waiting = narrowed(await _read(settings), namespaces)
    if output == "json":
        print_text(json.dumps(waiting_json(waiting), indent=2) + "\n")
    elif output == "csv":
        print_text(waiting_csv(waiting))
        sys.stderr.writelines(f"not known: {printable(each)}\n" for each in waiting.unseen)
    else:
        print_text(waiting_text(waiting, terminal_width()))
    return _FAILED if waiting.answers is None else 0


async def _read(settings: Settings, key: PodKey | None = None) -> Waiting:
    configure = api_of_command(settings)
    prometheus = None if settings.prometheus_url is None else prometheus_of(settings)
    if configure is None and prometheus is None:
        raise SettingsError(
            "pods cannot be read: set --kubeconfig, or --prometheus-url to a Prometheus that has "
            "kube-state-metrics"
        )
    try:
        view = await read_view(prometheus, configure)
        asked = key is None or any(pod.key == key for pod in view.waiting or ())
        advice = await _advice(prometheus, key) if asked else None
        return await read_waiting(prometheus, view, advice, key)
    finally:
        if prometheus is not None:
            await prometheus.close()


async def _advice(prometheus: Prometheus | None, key: PodKey | None) -> ClusterAdvice | None:
    """Return the advice, of the namespace of one pod if there is one; None if there is none."""
    if prometheus is None:
        return None
    try:
        return await read_advice(prometheus, key.namespace if key else "")
    except (PrometheusError, MissingSeriesError, UnknownNameError):
        return None
