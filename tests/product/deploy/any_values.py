"""Makes values of the chart from its schema: right ones, and now and then null, or a number for a text."""

import copy
import json
from typing import Any

from hypothesis import strategies
from hypothesis.strategies import DrawFn, SearchStrategy

from tests.product.deploy.charts import EVERYTHING
from tests.product.deploy.render import CHART

Schema = dict[str, Any]

SCHEMA: Schema = json.loads((CHART / "values.schema.json").read_text())
# One of so many values is of any type.
RIGHT_TO_ODD = 15
MOST_OPTIONAL = 5
# Groups that are chosen more often than others: their values meet in the templates.
OFTEN = 4 * (
    "config",
    "extraEnv",
    "extraArgs",
    "extraVolumeMounts",
    "hub",
    "podMonitor",
    "webConfig",
    "sharing",
)
# Texts that YAML, Kubernetes or a template would read as something else.
TEXTS = (
    *("", "a", "1", "1e3", "on", "null", "~", "2001-01-01", "0x1f", "a,b", "a: b", "a #b", "- a", "{a", "[a"),
    *("*a", "&a", "%a", "@a", "`a", "'", '"', "\\", "\t", "a\nb", "a\n", " a ", "é", "{{ .Values }}"),
    *("$(X)", "$$(X)", "$(NODE_NAME)", "$(A).$(A)", "$(", "$", "GPUSLICE_LISTEN", "--listen=:1", "--a"),
    *("groups: []", "groups: [a]", "groups: [{name: a, rules: [1]}]", "x: ["),
    "groups: [{name: a, rules: [{alert: A, expr: b}, {record: B, expr: c}]}]",
)  # fmt: skip
# Without those that YAML does not hold.
_CHARACTERS = strategies.characters(exclude_categories=("Cc", "Cn", "Co", "Cs"))
_MONITORED = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
BASES: tuple[Schema, ...] = (
    {},
    EVERYTHING,
    {"monitoring": {"place": "google"}, **_MONITORED},
    {"monitoring": {"place": "victoria-metrics"}, **_MONITORED},
    {"serviceMonitor": {"enabled": True}, "networkPolicy": {"enabled": True}, "openshift": {"enabled": True}},
    {"adminClaim": {"enabled": True}, "sharing": {"hami": {"enabled": True}, "mps": {"enabled": True}}},
)  # fmt: skip

_NUMBERS = strategies.sampled_from((0, 1, -1, 1.5, 9836, 1_000_000, 2**31, 1e21))
_ODD = strategies.one_of(
    strategies.none(),
    strategies.booleans(),
    _NUMBERS,
    strategies.sampled_from(TEXTS),
    strategies.sampled_from(([], {}, [None], {"a": None}, [[]], [{}], {"name": 1})),
)


@strategies.composite
def values(draw: DrawFn) -> Schema:
    """Return values, some of them over those that turn features on."""
    known = SCHEMA["properties"]
    groups = strategies.sampled_from([*known, *OFTEN])
    chosen = draw(strategies.lists(groups, min_size=1, max_size=6, unique=True))
    base = copy.deepcopy(draw(strategies.sampled_from(BASES)))
    return _merged(base, {name: draw(_value(known[name])) for name in chosen})


@strategies.composite
def monitors(draw: DrawFn) -> Schema:
    """Return values of a monitor and of rules for the Prometheus Operator, without further fields."""
    kind = draw(strategies.sampled_from(("podMonitor", "serviceMonitor")))
    made: Schema = {"prometheusRule": draw(_mapping(SCHEMA["properties"]["prometheusRule"]))}
    made[kind] = draw(_mapping(SCHEMA["properties"][kind]))
    base = {kind: {"enabled": True}, "prometheusRule": {"enabled": True}}
    return _merged(base, {name: _without(of, ("endpoint", "spec", "enabled")) for name, of in made.items()})


@strategies.composite
def routes(draw: DrawFn) -> Schema:
    """Return values of the routes to a hub that runs, with its prefix, its scheme and its Service."""
    of_hub = SCHEMA["properties"]["hub"]["properties"]
    made: Schema = {name: draw(_mapping(of_hub[name])) for name in ("ingress", "httpRoute")}
    made["config"] = draw(strategies.sampled_from(({}, {"route-prefix": "/gpus"}, {"route-prefix": "/a/"})))
    made["webConfig"] = draw(strategies.sampled_from(({}, {"existingSecret": "hub", "scheme": "https"})))
    paths = strategies.sampled_from(("/", "/gpus", "/gpus/", "/a/../b", "/a//b", "/a b", "/x(.*)"))
    host, parent = strategies.just(["gpus.example.com"]), strategies.just([{"name": "gateway"}])
    for name, field, usual in (("ingress", "hosts", host), ("httpRoute", "parentRefs", parent)):
        made[name] |= {"enabled": draw(strategies.booleans())}
        made[name] |= draw(strategies.fixed_dictionaries({}, optional={field: usual, "path": paths}))
    return {"hub": {"enabled": True, "prometheusUrl": "http://p", **made}}


def _without(mapping: Schema, names: tuple[str, ...]) -> Schema:
    return {name: value for name, value in mapping.items() if name not in names}


def _merged(base: Schema, over: Schema) -> Schema:
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        base[key] = _merged(base[key], value) if both else value
    return base


@strategies.composite
def _value(draw: DrawFn, schema: Schema) -> Any:
    if draw(strategies.integers(0, RIGHT_TO_ODD)) == RIGHT_TO_ODD:
        return draw(_ODD)
    return draw(_right(schema))


def _right(schema: Schema) -> SearchStrategy[Any]:
    if "$ref" in schema:
        return _right(SCHEMA["definitions"][schema["$ref"].removeprefix("#/definitions/")])
    if "anyOf" in schema:
        return strategies.one_of([_right(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return strategies.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return strategies.one_of([_OF_TYPES[kind](schema) for kind in kinds])


def _text(schema: Schema) -> SearchStrategy[str]:
    if pattern := schema.get("pattern"):
        return strategies.from_regex(pattern, fullmatch=pattern.endswith("$"), alphabet=_CHARACTERS)
    return strategies.sampled_from(TEXTS) | strategies.text(_CHARACTERS, max_size=8)


def _integer(schema: Schema) -> SearchStrategy[int]:
    least, most = schema.get("minimum", 0), schema.get("maximum", 2**31)
    return strategies.sampled_from((least, most)) | strategies.integers(least, most)


def _list(schema: Schema) -> SearchStrategy[list[Any]]:
    return strategies.lists(_value(schema.get("items", {"type": "object"})), max_size=3)


@strategies.composite
def _mapping(draw: DrawFn, schema: Schema) -> Schema:
    known = schema.get("properties", {})
    names = [*schema.get("required", ())]
    optional = [name for name, child in known.items() if child is not False]
    if optional:
        names += draw(
            strategies.lists(strategies.sampled_from(optional), max_size=MOST_OPTIONAL, unique=True)
        )
    made = {name: draw(_value(known[name])) for name in names}
    if isinstance(more := schema.get("additionalProperties"), dict):
        made |= draw(strategies.dictionaries(strategies.sampled_from("abc"), _value(more), max_size=2))
    return made


_OF_TYPES = {
    "null": lambda _: strategies.none(),
    "boolean": lambda _: strategies.booleans(),
    "number": lambda schema: _NUMBERS.filter(lambda number: number >= schema.get("minimum", number)),
    "integer": _integer,
    "string": _text,
    "array": _list,
    "object": _mapping,
}
