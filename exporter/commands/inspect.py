"""``inspect``: the cluster in a terminal, as a Prometheus knows it."""

import json
import sys
from collections.abc import Sequence

from exporter.commands.hub import prometheus_of
from exporter.commands.node_and_output import say
from exporter.config.settings import Settings
from exporter.fleet.inspection import UnknownNodeError, inspect, inspection_json, inspection_text
from exporter.fleet.read import NoExporterError
from exporter.prometheus import PrometheusError

FAILED = 1


async def inspect_cluster(settings: Settings, names: Sequence[str], *, output: str, details: bool) -> int:
    """Print these nodes, or all, and return the exit code: 1 where not all of that can be told.

    Raises SettingsError without a Prometheus.
    """
    prometheus = prometheus_of(settings)
    try:
        found = await inspect(prometheus, names, details=details, idle_after=settings.idle_after)
    except (PrometheusError, NoExporterError, UnknownNodeError) as error:
        sys.stderr.write(f"gpuslice-exporter: {error}\n")
        return FAILED
    finally:
        await prometheus.close()
    if output == "json":
        say(json.dumps(inspection_json(found, details=details), indent=2) + "\n")
    else:
        say(inspection_text(found, details=details))
    return FAILED if found.problems else 0
