"""Where the page of a node is."""

from urllib.parse import quote, urlsplit

from exporter.fleet.model import NodeKey, Target

DEFAULT = "http://{instance}/"
# What a host and its port are written with, and nothing that would end them.
_OF_HOSTS = ":[]"


class TemplateError(ValueError):
    """The template makes no URL; the text says why."""


class NodeLinks:
    """Makes the URL of a node's page: a template with {instance}, {node}, {cluster} and {job} in braces.

    Raises TemplateError where that is no http or https URL, or has other braces.
    """

    def __init__(self, template: str = DEFAULT) -> None:
        self._template = template if template.endswith("/") else f"{template}/"
        try:
            made = urlsplit(self.of(NodeKey("cluster", "node"), Target("cluster", "job", "host:1")))
        except (KeyError, IndexError, ValueError) as error:
            raise TemplateError(f"{error} is none of {{instance}}, {{node}}, {{cluster}}, {{job}}") from None
        if made.scheme not in ("http", "https") or not made.netloc:
            raise TemplateError("it must begin with http:// or https://")

    def of(self, key: NodeKey, target: Target) -> str:
        """Give the URL, with a slash at its end; whatever is in a name stays in its place."""
        names = {"node": key.name, "cluster": target.cluster, "job": target.job}
        return self._template.format(
            instance=quote(target.instance, safe=_OF_HOSTS, errors="replace"),
            **{name: quote(value, safe="", errors="replace") for name, value in names.items()},
        )
