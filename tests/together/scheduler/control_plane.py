"""A scheduler with its API server and etcd, without any kubelet: nodes are objects only."""

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from random import SystemRandom
from tempfile import mkdtemp
from typing import Any

from tests.scratch import DISK
from tests.waiting import wait_until

Json = dict[str, Any]
TOKEN = "secret"  # noqa: S105 - of a server that is gone after the test
# Nodes get a taint for their conditions, which they do not have; overhead needs no class of its own.
_ADMISSION = "ServiceAccount,TaintNodesByCondition,RuntimeClass,LimitRanger,ResourceQuota"
_DAY = 86_400
_RANDOM = SystemRandom()
_RESOURCE = "/apis/resource.k8s.io/v1"
PATHS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Namespace": "/api/v1/namespaces",
    "ResourceClaim": f"{_RESOURCE}/namespaces/{{}}/resourceclaims",
    "ResourceSlice": f"{_RESOURCE}/resourceslices",
    "DeviceClass": f"{_RESOURCE}/deviceclasses",
}


def path_of(thing: Json) -> str:
    """Return the path of an object of the API."""
    metadata = thing["metadata"]
    return f"{PATHS[thing['kind']].format(metadata.get('namespace'))}/{metadata['name']}"


class Api:
    """A client of the API server: one connection for each thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(8)
        self._connections: list[HTTPSConnection] = []
        self._context = ssl._create_unverified_context()  # noqa: S323 - a server of our own

    def connection(self, seconds: float = 120) -> HTTPSConnection:
        """Return a new connection, which is closed with the client."""
        made = HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=seconds)
        self._connections.append(made)
        return made

    def close(self) -> None:
        """Close all connections."""
        self._pool.shutdown()
        for each in self._connections:
            each.close()

    def ask(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        """Return the answer to a request; an error of the server fails."""
        if not hasattr(self._local, "connection"):
            self._local.connection = self.connection()
        connection: HTTPSConnection = self._local.connection
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300 and (answer.status, method) != (404, "PATCH"):
            raise AssertionError(f"{method} {path}: {answer.status} {text[:2000]!r} of {body}")
        return dict(json.loads(text)) if text.startswith(b"{") else {}

    def create(self, thing: Json) -> Json:
        """Create an object and return it as the server has it, with its status if it has one."""
        path = PATHS[thing["kind"]].format(thing["metadata"].get("namespace"))
        made = self.ask("POST", path, thing)
        if "status" in thing and thing["kind"] != "Node":
            made["status"] = thing["status"]
            made = self.ask("PUT", f"{path}/{thing['metadata']['name']}/status", made)
        return made

    def create_all(self, things: Iterable[Json]) -> None:
        """Create objects, several at a time."""
        list(self._pool.map(self.create, things))

    def items(self, kind: str) -> list[Json]:
        """Return all objects of a kind."""
        return list(self.ask("GET", PATHS[kind].replace("/namespaces/{}", ""))["items"])

    def delete_all(self, kind: str, namespaces: Iterable[str] = ("",)) -> None:
        """Delete all objects of a kind at once."""
        if kind == "ResourceClaim":
            list(self._pool.map(self._free, self.items(kind)))
        for namespace in namespaces:
            query = "?gracePeriodSeconds=0&propagationPolicy=Background"
            self.ask("DELETE", f"{PATHS[kind].format(namespace)}{query}")

    def delete(self, thing: Json, seconds: int = 0) -> None:
        """Delete an object, at once unless a pod is given time to end."""
        self.ask("DELETE", f"{path_of(thing)}?gracePeriodSeconds={seconds}")

    def patch(self, thing: Json, change: Json, part: str = "") -> None:
        """Merge a change into an object, or into its status."""
        self.ask("PATCH", f"{path_of(thing)}{part}", change, "application/merge-patch+json")

    def release(self, claim: Json) -> None:
        """Do to a claim without users what the controller of claims does, which does not run here.

        It takes the devices away, and then the finalizer that keeps it from being deleted; a claim that was
        generated for a pod is deleted with that.
        """
        self.patch(claim, {"status": {"reservedFor": None, "allocation": None}}, "/status")
        self._free(claim)
        if claim["metadata"].get("ownerReferences"):
            self.delete(claim)

    def _free(self, claim: Json) -> None:
        """Remove the finalizer of a claim, which only the controllers of the cluster would remove.

        A claim that the scheduler has made for extended resources of a pod may be gone.
        """
        if claim["metadata"].get("finalizers"):
            self.patch({"kind": "ResourceClaim", **claim}, {"metadata": {"finalizers": None}})

    def answers(self) -> bool:
        """Return whether the server is ready."""
        connection = HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=120)
        with closing(connection), suppress(OSError, HTTPException):
            connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            return connection.getresponse().status == 200
        return False


class Outcomes:
    """The first outcome of each pod: the node that it is bound to, or the scheduler's message."""

    def __init__(self, api: Api) -> None:
        self._connection, self._known = api.connection(_DAY), threading.Condition()
        self._found: dict[str, tuple[str, str]] = {}
        listed = api.ask("GET", "/api/v1/pods?limit=1")
        version = listed["metadata"]["resourceVersion"]
        path = f"/api/v1/pods?watch=1&resourceVersion={version}&timeoutSeconds={_DAY}"
        self._connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        self._answer = self._connection.getresponse()
        self._thread = threading.Thread(target=self._read, daemon=True, name="pods")
        self._thread.start()

    def of(self, uid: str) -> tuple[str, str]:
        """Wait for the outcome of a pod, and return its node and the message; one of them is empty."""
        with self._known:
            assert self._known.wait_for(lambda: uid in self._found, timeout=120), (
                "the scheduler has no answer"
            )
            return self._found[uid]

    def close(self) -> None:
        """End the watch."""
        if self._connection.sock is not None:
            with suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._answer.close()

    def _read(self) -> None:
        with suppress(OSError, ValueError, HTTPException):
            for line in self._answer:
                pod = json.loads(line)["object"]
                if (outcome := _outcome(pod)) is not None:
                    with self._known:
                        self._found.setdefault(pod["metadata"]["uid"], outcome)
                        self._known.notify_all()


def _outcome(pod: Json) -> tuple[str, str] | None:
    if node := pod["spec"].get("nodeName"):
        return str(node), ""
    for each in pod.get("status", {}).get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return "", str(each["message"])
    return None


@contextmanager
def running(programs: Path) -> Iterator[Api]:
    """Run etcd, API server and scheduler of a folder, and return a client of the API server."""
    with ExitStack() as stack:
        folder = Path(mkdtemp(prefix="gpuslice-scheduler-", dir=DISK))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        store, peers, server = _free_ports(3)

        def start(program: str, *words: str) -> None:
            with (folder / f"{program}.log").open("ab") as log:
                process = subprocess.Popen(
                    [programs / program, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            stack.callback(process.wait)
            stack.callback(process.kill)

        start("etcd", *_etcd(folder, store, peers))
        _write(folder, server)
        start("kube-apiserver", *_api_server(folder, store, server))
        api = Api(server)
        stack.callback(api.close)
        wait_until(api.answers, "the API server answers")
        start("kube-scheduler", f"--config={folder}/scheduler.json", "--secure-port=0")
        yield api


def _free_ports(count: int) -> list[int]:
    """Return ports outside of the range from which clients get theirs."""
    ports: list[int] = []
    while len(ports) < count:
        port = _RANDOM.randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
    return ports


def _etcd(folder: Path, port: int, peers: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
    return [
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _write(folder: Path, port: int) -> None:
    """Write the key of tokens, the token, and the settings of the scheduler."""
    subprocess.run(["openssl", "genrsa", "-out", folder / "key", "2048"], check=True, capture_output=True)
    (folder / "tokens").write_text(f'{TOKEN},admin,1,"system:masters"\n')
    server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    config: Json = {
        "clusters": [{"name": "it", "cluster": server}],
        "users": [{"name": "it", "user": {"token": TOKEN}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    scheduler: Json = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": f"{folder}/kubeconfig", "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        # What ends in an error is not tried again.
        "podInitialBackoffSeconds": 3600,
        "podMaxBackoffSeconds": 3600,
    }
    (folder / "scheduler.json").write_text(json.dumps(scheduler))


def _api_server(folder: Path, store: int, port: int) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{store}",
        f"--cert-dir={folder}/api",
        f"--token-auth-file={folder}/tokens",
        "--authorization-mode=AlwaysAllow",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        "--service-cluster-ip-range=10.96.0.0/24",
        f"--disable-admission-plugins={_ADMISSION}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder}/key",
        f"--service-account-signing-key-file={folder}/key",
        "--endpoint-reconciler-type=none",
    ]
