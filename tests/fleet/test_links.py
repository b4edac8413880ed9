"""Where the page of a node is."""

import pytest

from exporter.fleet.cluster_model import NodeKey, Target
from exporter.fleet.targets import NodeLinks, TemplateError

KEY, TARGET = NodeKey("", "gpu-1"), Target("", "gpus", "10.0.0.7:9836")


@pytest.mark.parametrize(
    ("template", "url"),
    [
        ("http://{instance}/", "http://10.0.0.7:9836/"),
        ("http://{instance}", "http://10.0.0.7:9836/"),
        ("https://gpus.example/{node}/", "https://gpus.example/gpu-1/"),
        ("https://gpus.example/{job}/{cluster}x/{node}", "https://gpus.example/gpus/x/gpu-1/"),
    ],
)
def test_a_template_is_filled_in(template: str, url: str) -> None:
    """Names stand where their braces are, with a slash at the end."""
    assert NodeLinks(template).of(KEY, TARGET) == url


@pytest.mark.parametrize(
    "template",
    [
        "javascript:alert(1)//{node}",
        "{instance}",
        "/nodes/{node}",
        "ftp://{node}/",
        "http://{pod}/",
        "http://{0}/",
        "http://{",
    ],
)
def test_a_template_that_makes_no_url_is_refused(template: str) -> None:
    """Only http and https, and only names that are known."""
    with pytest.raises(TemplateError):
        NodeLinks(template)


@pytest.mark.parametrize(
    "name", ["evil.example/x", "a@evil.example", "x?y#z", '"><script>', "a\nb", "\udc80"]
)
def test_a_name_stays_in_its_place(name: str) -> None:
    """Nothing in a name ends the host or the path that it stands in."""
    url = NodeLinks("http://{instance}/n/{node}/").of(NodeKey("", name), TARGET._replace(instance=name))
    host, _, rest = url.removeprefix("http://").partition("/")

    assert rest.startswith("n/")
    assert rest.count("/") == 2
    assert not set(host + rest) & set('@?#"<>\n')


def test_an_address_of_version_6_is_a_host() -> None:
    """Brackets and colons of an address stay."""
    assert NodeLinks().of(KEY, TARGET._replace(instance="[fd00::7]:9836")) == "http://[fd00::7]:9836/"
