"""A device plugin: offers ids of a resource to the kubelet, and can mark them unhealthy.

Messages: kubernetes/kubelet ``pkg/apis/deviceplugin/v1beta1/api.proto``
(https://github.com/kubernetes/kubelet/blob/master/pkg/apis/deviceplugin/v1beta1/api.proto).
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from podresources.messages import classes

# The variable with the allocated ids in containerd's record of a container, as NVIDIA's plugin sets it.
VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_MESSAGES: dict[str, Any] = classes(
    "deviceplugin",
    {
        "RegisterRequest": (
            ("version", 1, "string"),
            ("endpoint", 2, "string"),
            ("resource_name", 3, "string"),
        ),
        "NUMANode": (("ID", 1, "int64"),),
        "TopologyInfo": (("nodes", 1, "NUMANode*"),),
        "Device": (("ID", 1, "string"), ("health", 2, "string"), ("topology", 3, "TopologyInfo")),
        "ListAndWatchResponse": (("devices", 1, "Device*"),),
        "ContainerAllocateRequest": (("devices_ids", 1, "string*"),),
        "AllocateRequest": (("container_requests", 1, "ContainerAllocateRequest*"),),
        "Entry": (("key", 1, "string"), ("value", 2, "string")),
        "ContainerAllocateResponse": (("envs", 1, "Entry*"),),
        "AllocateResponse": (("container_responses", 1, "ContainerAllocateResponse*"),),
    },
)


class Plugin:
    """Registers ``ids`` of ``resource`` with the kubelet whose root is ``root``, at each of its starts.

    ``nodes`` are the NUMA nodes of every device. It serves until it is closed.
    """

    def __init__(self, root: Path, resource: str, ids: Sequence[str], nodes: Sequence[int]) -> None:
        self._kubelet = root / "device-plugins/kubelet.sock"
        self._socket = self._kubelet.with_name(f"{resource.replace('/', '-')}.sock")
        self._resource, self._ids, self._nodes = resource, ids, nodes
        self._unhealthy: frozenset[str] = frozenset()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve_each_kubelet, name=f"plugin {resource}")
        self._thread.start()

    def mark_unhealthy(self, *ids: str) -> None:
        """Report these ids as unhealthy, and all others as healthy."""
        with self._changed:
            self._unhealthy = frozenset(ids)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop serving."""
        self._closed.set()
        self._thread.join()

    def _serve_each_kubelet(self) -> None:
        """Serve and register after each start of the kubelet, which removes the sockets of plugins."""
        server = None
        while not self._closed.wait(0.1):
            if self._kubelet.exists() and not self._socket.exists():
                if server is not None:
                    server.stop(None).wait()
                server = self._serve()
                try:
                    self._register()
                except grpc.RpcError:
                    # The kubelet is starting, or has stopped: try again.
                    self._socket.unlink(missing_ok=True)
        if server is not None:
            server.stop(None).wait()

    def _serve(self) -> grpc.Server:
        server = grpc.server(ThreadPoolExecutor(8))
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "GetDevicePluginOptions": unary(lambda _request, _context: b""),
            "PreStartContainer": unary(lambda _request, _context: b""),
            "ListAndWatch": stream(self._list_and_watch),
            "Allocate": unary(self._allocate),
        }
        handler = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix:{self._socket}")
        server.start()
        return server

    def _register(self) -> None:
        request = _MESSAGES["RegisterRequest"](
            version="v1beta1", endpoint=self._socket.name, resource_name=self._resource
        )
        # Otherwise gRPC would wait longer after each failure.
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"unix:{self._kubelet}", options) as channel:
            channel.unary_unary("/v1beta1.Registration/Register")(request.SerializeToString(), timeout=60)

    def _list_and_watch(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        reported = None
        while context.is_active():
            with self._changed:
                if reported == self._unhealthy:
                    self._changed.wait(1)
                    continue
                reported = self._unhealthy
            yield self._devices(reported)

    def _devices(self, unhealthy: frozenset[str]) -> bytes:
        topology = {"nodes": [{"ID": node} for node in self._nodes]}
        devices = [
            {"ID": each, "health": "Unhealthy" if each in unhealthy else "Healthy", "topology": topology}
            for each in self._ids
        ]
        return bytes(_MESSAGES["ListAndWatchResponse"](devices=devices).SerializeToString())

    def _allocate(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        requests = _MESSAGES["AllocateRequest"].FromString(request).container_requests
        responses = [{"envs": [{"key": VARIABLE, "value": ",".join(each.devices_ids)}]} for each in requests]
        return bytes(_MESSAGES["AllocateResponse"](container_responses=responses).SerializeToString())
