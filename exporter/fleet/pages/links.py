"""URLs of the pages of nodes, and of their GPUs and holders."""

from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from exporter.config import SettingsError
from exporter.fleet.model import Node, NodeKey, Target
from exporter.model import ContainerRef
from exporter.web.kit.markup import holder_path

# Characters of a host and port that are not quoted.
_HOST_CHARACTERS = ":[]"


class NodeUrl:
    """The URL of a node's page: a template with {instance}, {node}, {cluster} and {job}.

    Raises SettingsError if that is not an http or https URL, or has other placeholders.
    """

    def __init__(self, template: str = "http://{instance}/") -> None:
        self._template = template if template.endswith("/") else f"{template}/"
        try:
            example = urlsplit(self.of(NodeKey("cluster", "node"), Target("cluster", "job", "host:1")))
        except (KeyError, IndexError, ValueError) as error:
            names = "{instance}, {node}, {cluster}, {job}"
            raise SettingsError(f"--node-url-template: {error} is not one of {names}") from None
        if example.scheme not in ("http", "https") or not example.netloc:
            raise SettingsError("--node-url-template: it must begin with http:// or https://")

    def of(self, key: NodeKey, target: Target) -> str:
        """Return the URL, with a slash at its end; values are quoted."""
        return self._template.format(
            instance=_quoted(target.instance, _HOST_CHARACTERS),
            node=_quoted(key.name),
            cluster=_quoted(target.cluster),
            job=_quoted(target.job),
        )


class Links:
    """The URLs of the pages of nodes, GPUs and holders; "" if the node is not known."""

    def __init__(self, nodes: Iterable[Node], node_url: NodeUrl) -> None:
        self._urls: dict[NodeKey, str] = {}
        for node in nodes:
            url = node_url.of(node.key, node.target)
            # Keys of nodes are without a cluster if there is one; advice always has it.
            self._urls[node.key] = url
            self._urls[node.key._replace(cluster=node.target.cluster)] = url

    def node(self, key: NodeKey) -> str:
        """Return the URL of a node's page."""
        return self._urls.get(key, "")

    def gpu(self, key: NodeKey, uuid: str) -> str:
        """Return the URL of a GPU's page."""
        return f"{self._urls[key]}gpu/{_quoted(uuid)}" if key in self._urls else ""

    def holder(self, key: NodeKey, holder: ContainerRef) -> str:
        """Return the URL of the page of a container on a node."""
        return f"{self._urls[key]}{holder_path(holder)}" if key in self._urls else ""


def _quoted(value: str, safe: str = "") -> str:
    return quote(value, safe=safe, errors="replace")
