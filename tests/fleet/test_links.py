"""URLs of the pages of nodes, and the links to them."""

from dataclasses import replace

import pytest

from exporter.advice import advise
from exporter.config import SettingsError
from exporter.fleet.cluster_advice import ClusterAdvice
from exporter.fleet.model import Node, NodeKey, Target
from exporter.fleet.pages.links import Links, NodeUrl
from exporter.fleet.pages.page import advice_table
from exporter.fleet.watch import AdviceRead
from tests.core.advice.simulated import Run, gib, window

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
def test_a_template_becomes_a_url_with_a_slash_at_the_end(template: str, url: str) -> None:
    assert NodeUrl(template).of(KEY, TARGET) == url


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
def test_a_template_with_another_scheme_or_an_unknown_name_is_refused(template: str) -> None:
    with pytest.raises(SettingsError):
        NodeUrl(template)


@pytest.mark.parametrize(
    "name", ["evil.example/x", "a@evil.example", "x?y#z", '"><script>', "a\nb", "\udc80"]
)
def test_a_hostile_name_does_not_end_the_host_or_path_segment(name: str) -> None:
    url = NodeUrl("http://{instance}/n/{node}/").of(NodeKey("", name), TARGET._replace(instance=name))
    host, _, rest = url.removeprefix("http://").partition("/")

    assert rest.startswith("n/")
    assert rest.count("/") == 2
    assert not set(host + rest) & set('@?#"<>\n')


def _links(places: Links, **nodes: str) -> list[str]:
    """Return the links of advice on a workload whose pods, of 1 GiB, 2 GiB, ..., run on these nodes."""
    runs = [Run(memory=[gib(size)], compute=[0.1], pod=pod) for size, pod in enumerate(nodes, 1)]
    one = window(*runs, cluster="west")
    uses = tuple(replace(use, node=nodes[use.holder.pod]) for use in one.uses)
    advices = (advise(replace(one, uses=uses)), advise(replace(one, uses=uses, workload="")))
    read = AdviceRead(found=ClusterAdvice(at=1.0, advices=advices))
    return [row.href for row in advice_table(read, places).rows]


@pytest.mark.parametrize("cluster", ["", "west"])
def test_advice_links_to_the_largest_holder_that_runs(cluster: str) -> None:
    """Or to the GPU of holders that share one; nodes have their cluster only if there are several."""
    nodes = [
        Node(key=NodeKey(key, name), target=Target(of, "gpus", f"{of}-{name}:1"), age=4.0)
        for key, of, name in ((cluster, "west", "n1"), (cluster and "east", cluster and "east", "n2"))
    ]
    places = Links(nodes, NodeUrl())

    assert _links(places, small="n1", large="n1", ended="") == [
        "http://west-n1:1/holder/ml/large/main",
        "http://west-n1:1/gpu/GPU-0",
    ]
    assert _links(places, ended="") == ["", ""]
    assert _links(places, elsewhere="n2" if cluster else "n3") == ["", ""]


def test_an_ipv6_address_keeps_brackets_and_colons() -> None:
    assert NodeUrl().of(KEY, TARGET._replace(instance="[fd00::7]:9836")) == "http://[fd00::7]:9836/"
