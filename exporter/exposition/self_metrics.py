"""Metrics about the exporter itself: its process, its build, and the render time of a page."""

import platform

from prometheus_client import CollectorRegistry, Gauge, Info, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from exporter import __version__

_EOF = b"# EOF\n"


class SelfMetrics:
    """The exporter's own instruments; other modules may add theirs to ``registry``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        build = Info("gpuslice_build", "Version of the exporter and of Python.", registry=self.registry)
        build.info({"version": __version__, "python": platform.python_version()})
        self._render = Gauge(
            "gpuslice_render_duration_seconds",
            "Time to render the samples of this page, in seconds.",
            registry=self.registry,
        )

    def rendered(self, seconds: float) -> None:
        """Set the render time of the current page, in seconds."""
        self._render.set(seconds)

    def body(self, *, openmetrics: bool) -> bytes:
        """Return the registry as a part of a page: in OpenMetrics without the closing ``# EOF``."""
        if openmetrics:
            page: bytes = generate_openmetrics(self.registry)  # type: ignore[no-untyped-call]
            return page.removesuffix(_EOF)
        return generate_latest(self.registry)
