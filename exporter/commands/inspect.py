"""``inspect``: print the GPUs of the cluster, with data from a Prometheus."""

import json
import sys
from collections.abc import Sequence

from exporter.commands.hub import prometheus_of
from exporter.commands.node_and_output import print_text
from exporter.config.settings import Settings
from exporter.fleet.inspection import UnknownNodeError, inspect, inspection_json, inspection_text
from exporter.fleet.read import NoExporterError
from exporter.prometheus import PrometheusError

FAILED = 1


async def inspect_cluster(settings: Settings, names: Sequence[str], *, output: str, details: bool) -> int:
    """Print the named nodes, or all, and return the exit code: 1 if something could not be read.

    Raises SettingsError without a Prometheus.
    """
    prometheus = prometheus_of(settings)
    try:
        inspection = await inspect(prometheus, names, details=details, idle_after=settings.idle_after)
    except (PrometheusError, NoExporterError, UnknownNodeError) as error:
        sys.stderr.write(f"gpuslice-exporter: {error}\n")
        return FAILED
    finally:
        await prometheus.close()
    if output == "json":
        print_text(json.dumps(inspection_json(inspection, details=details), indent=2) + "\n")
    else:
        print_text(inspection_text(inspection, details=details))
    return FAILED if inspection.problems else 0
