"""Where the view of the cluster comes from: the Kubernetes API on request, else kube-state-metrics.

The hub asks the API only if an option says so: it needs rights on the whole cluster. A command of a user
takes the user's own kubeconfig, as kubectl does.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from exporter.config import Settings
from exporter.fleet.cluster_view import ClusterView
from exporter.fleet.kube_state import read_kube_state
from exporter.fleet.prometheus import Prometheus, PrometheusError
from exporter.fleet.targets import read_clock
from exporter.kubernetes.access import Configure, access
from exporter.kubernetes.whole_cluster import WatchedCluster, WholeCluster, read_once

log = logging.getLogger(__name__)
# Queries on all pods are dear for Prometheus.
INTERVAL: Final = 60.0
_REST: Final = 3.0
_STALE_INTERVALS: Final = 10
NOTHING: Final = (
    "neither the Kubernetes API nor a Prometheus can be asked: set --kubernetes-api on, --kubeconfig or"
    " --prometheus-url"
)
_NOT_YET: Final = "kube-state-metrics: it is read for the first time"


def api_of_hub(settings: Settings) -> Configure | None:
    """Return the configuration of the API server for the hub, None unless an option asks for it."""
    asked = settings.kubernetes_api == "on" or settings.kubeconfig is not None
    return access(settings.kubernetes_api, settings.kubeconfig) if asked else None


def api_of_command(settings: Settings, environ: Mapping[str, str] = os.environ) -> Configure | None:
    """Return the configuration of the API server for a command, None if it is not used.

    Without --kubeconfig that of kubectl is used, if there is one: the first file of KUBECONFIG that exists,
    or that in the home directory. In a pod it is the service account.
    """
    kubeconfig = settings.kubeconfig
    if kubeconfig is None:
        home = environ.get("HOME", "")
        usual = [f"{home}/.kube/config"] if home else []
        places = [each for each in environ.get("KUBECONFIG", "").split(os.pathsep) if each] or usual
        kubeconfig = next((Path(each) for each in places if Path(each).is_file()), None)
    return access(settings.kubernetes_api, kubeconfig, environ=environ)


async def read_view(prometheus: Prometheus | None, configure: Configure | None) -> ClusterView:
    """Return the cluster as it is now; what cannot be read is among its failures.

    From the API, and from kube-state-metrics if that does not have its objects.
    """
    view = None
    if configure is not None:
        view = of_api(await read_once(configure), time.time())
    if prometheus is None or (view is not None and view.objects is not None):
        return view or ClusterView(source="the Kubernetes API", at=time.time(), failures=(NOTHING,))
    return better(view, await _kube_state(prometheus))


def of_api(watched: WatchedCluster, at: float) -> ClusterView:
    """Return the view of what the API server reports."""
    return ClusterView(
        source="the Kubernetes API",
        at=at,
        objects=watched.objects,
        waiting=watched.waiting,
        ages=watched.ages,
        failures=watched.failures,
        unseen=watched.unseen,
    )


def better(api: ClusterView | None, state: ClusterView) -> ClusterView:
    """Return the view that more can be judged by, with the failures of both."""
    if api is None:
        return state
    failures = (*api.failures, *state.failures)
    judged = api.objects is not None or state.objects is None
    if judged and (api.waiting is not None or state.waiting is None):
        return replace(api, failures=failures)
    return replace(state, failures=failures)


class ClusterWatch:
    """Keeps the view of the cluster for the hub."""

    def __init__(
        self,
        prometheus: Prometheus,
        configure: Configure | None,
        *,
        interval: float = INTERVAL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._prometheus = prometheus
        self._cluster = None if configure is None else WholeCluster(configure)
        self._interval = interval
        self._clock = clock
        self._state: ClusterView | None = None
        self._read_at = 0.0

    @property
    def view(self) -> ClusterView:
        """The cluster as it is known now."""
        now = self._clock()
        api = None if self._cluster is None else of_api(self._cluster.state(), now)
        if api is not None and api.objects is not None:
            return api
        return better(api, self._kube_state_at(now))

    async def run(self) -> None:
        """Read until cancelled."""
        if self._cluster is not None:
            await self._cluster.start()
        try:
            while True:
                pause = await self.refresh()
                await asyncio.sleep(pause)
        finally:
            if self._cluster is not None:
                await self._cluster.close()

    async def refresh(self) -> float:
        """Read kube-state-metrics if it is needed, and return the seconds until the next time."""
        started = time.monotonic()
        try:
            if await self._api_answers():
                self._state = None
                return self._interval
            started = time.monotonic()
            self._state = await _kube_state(self._prometheus, whole=False)
        except Exception as error:
            # An answer that fails in an unforeseen way must not end the hub.
            log.exception("cannot read kube-state-metrics")
            self._state = ClusterView(
                source="kube-state-metrics", at=self._clock(), failures=(f"kube-state-metrics: {error!r}",)
            )
        self._read_at = self._clock()
        return max(self._interval, _REST * (time.monotonic() - started))

    async def _api_answers(self) -> bool:
        """Return whether the API server has reported pods and nodes, after each kind was tried."""
        if self._cluster is None:
            return False
        await self._cluster.tried(self._interval)
        return self._cluster.state().objects is not None

    def _kube_state_at(self, now: float) -> ClusterView:
        state, passed = self._state, now - self._read_at
        if state is None:
            return ClusterView(source="kube-state-metrics", at=now, failures=(_NOT_YET,))
        if passed > _STALE_INTERVALS * self._interval:
            return ClusterView(source="kube-state-metrics", at=now, failures=state.failures)
        return replace(state, at=now, ages={kind: age + passed for kind, age in state.ages.items()})


async def _kube_state(prometheus: Prometheus, *, whole: bool = True) -> ClusterView:
    try:
        return await read_kube_state(prometheus, await read_clock(prometheus), whole=whole)
    except PrometheusError as error:
        return ClusterView(source="kube-state-metrics", at=time.time(), failures=(str(error),))
