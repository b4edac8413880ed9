"""``doctor --prometheus-url``: the rules of a server, and what becomes of each at the upgrade."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from exporter.fleet.rules import Rule, decode_rules
from tests.core.commands.program import nothing_here, run
from tests.fleet.prometheus.servers import always, serving

HOT = 'DCGM_FI_DEV_GPU_TEMP{Hostname!=""} > 85'
OLD = {"DCGM_FI_DEV_GPU_TEMP": 8, "DCGM_FI_DEV_GPU_UTIL": 8, "DCGM_FI_PROF_SM_ACTIVE": 8}
NEW = {"DCGM_FI_DEV_GPU_TEMP_CELSIUS": 8, "DCGM_FI_DEV_GPU_UTIL_RATIO": 8}
Groups = list[dict[str, Any]]


def _rule(name: str, query: str, kind: str = "alerting", **more: object) -> dict[str, Any]:
    return {"name": name, "query": query, "type": kind, "health": "ok", "alerts": [], **more}


def _groups(*rules: Mapping[str, Any], file: str = "/etc/rules/gpu.yaml") -> Groups:
    return [{"name": "gpus", "file": file, "rules": [*rules]}]


def _prometheus(groups: Groups, series: Mapping[str, int], labels: Mapping[str, int]) -> Any:
    """Return a handler that answers as a Prometheus with these rules and numbers of series."""

    async def handle(request: web.Request) -> web.Response:
        if request.path.endswith("/api/v1/rules"):
            return web.json_response({"status": "success", "data": {"groups": groups}})
        query = (await request.post())["query"]
        if query.startswith("count by (__name__)"):
            names = query.partition('"')[2].rpartition('"')[0].split("|")
            result = [_sample({"__name__": name}, series[name]) for name in names if series.get(name)]
        else:
            result = [
                _sample({}, count) for label, count in labels.items() if f" {label}!=" in query and count
            ]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    return handle


def _sample(labels: Mapping[str, str], value: int) -> dict[str, Any]:
    return {"metric": labels, "value": [1.0, str(value)]}


def _doctor(handler: Any, *arguments: object, path: str = "") -> tuple[int, dict[str, Any], list[str]]:
    """Return the exit code, the report of the doctor, and the paths that it asked for."""

    async def ask() -> tuple[Any, list[str]]:
        async with serving(handler) as server:
            words = ("doctor", "--json", "--prometheus-url", f"{server.url}{path}", *arguments)
            return await asyncio.to_thread(run, *words), server.paths

    done, paths = asyncio.run(ask())
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["exit_code"] == done.returncode
    return done.returncode, report, paths


def _states(groups: Groups, series: Mapping[str, int], labels: Mapping[str, int]) -> dict[str, str]:
    _, report, _ = _doctor(_prometheus(groups, series, labels))
    return {each["name"]: each["state"] for each in report["silent"]}


def test_before_the_upgrade_a_rule_on_an_old_name_will_go_silent() -> None:
    groups = _groups(_rule("Hot", HOT), _rule("Up", "up == 0"))
    code, report, _ = _doctor(_prometheus(groups, OLD, {"Hostname": 24}))

    assert code == 1
    assert report["silent"] == [
        {
            "state": "will be silent",
            "kind": "alert",
            "name": "Hot",
            "file": "/etc/rules/gpu.yaml",
            "group": "gpus",
            "line": None,
            "series": {"DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS"},
            "labels": {"Hostname": "hostname"},
            "through": [],
            "translatable": True,
            "reason": "",
        }
    ]
    assert report["series"] == OLD
    assert report["labels"] == {
        "Hostname": 24,
        "hostname": 0,
        "DCGM_FI_DRIVER_VERSION": 0,
        "DCGM_FI_SYSTEM_DRIVER_VERSION": 0,
    }
    assert [check["name"] for check in report["checks"]] == ["rules", "series now", "alert Hot"]


def test_after_the_upgrade_it_is_silent_already() -> None:
    code, report, _ = _doctor(_prometheus(_groups(_rule("Hot", HOT)), NEW, {"hostname": 16}))

    assert (code, report["silent"][0]["state"]) == (3, "silent")


@pytest.mark.parametrize(
    ("series", "labels", "state"),
    [
        ({**OLD, **NEW}, {"Hostname": 24, "hostname": 16}, "both"),
        ({}, {}, "no data"),
        # One name of two is enough.
        ({**OLD, "DCGM_FI_DEV_GPU_TEMP": 0, **NEW}, {"Hostname": 24}, "silent"),
        # The label was renamed before the names were.
        (OLD, {"hostname": 24}, "silent"),
    ],
)
def test_the_series_of_both_dialects_decide(
    series: Mapping[str, int], labels: Mapping[str, int], state: str
) -> None:
    assert _states(_groups(_rule("Hot", HOT)), series, labels) == {"Hot": state}


def test_a_rule_that_is_ready_for_both_names_is_not_listed() -> None:
    ready = "DCGM_FI_DEV_GPU_TEMP > 85 or DCGM_FI_DEV_GPU_TEMP_CELSIUS > 85"
    custom = "DCGM_FI_PROF_SM_ACTIVE < 0.1"
    code, report, _ = _doctor(_prometheus(_groups(_rule("A", ready), _rule("B", custom)), OLD, {}))

    assert (code, report["silent"]) == (0, [])


def test_what_reads_a_record_goes_silent_with_it() -> None:
    """Through any number of records, whatever their order; a record under an old name keeps it alive."""
    groups = _groups(
        _rule("Busy", "b:c > 90"),
        _rule("b:c", "a:b * 1", "recording"),
        _rule("a:b", "avg(DCGM_FI_DEV_GPU_UTIL)", "recording"),
        _rule("Fine", "x:y > 1"),
        _rule("x:y", "avg(up)", "recording"),
        _rule("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "recording"),
        _rule("Kept", "DCGM_FI_DEV_GPU_TEMP > 85"),
    )
    _, report, _ = _doctor(_prometheus(groups, {**OLD, **NEW, "DCGM_FI_DEV_GPU_UTIL_RATIO": 0}, {}))

    found = {each["name"]: (each["state"], each["through"]) for each in report["silent"]}
    assert found == {
        "Busy": ("will be silent", ["b:c"]),
        "b:c": ("will be silent", ["a:b"]),
        "a:b": ("will be silent", []),
    }


def test_what_cannot_be_translated_has_the_reason() -> None:
    rule = _rule("Odd", "changes(DCGM_FI_DEV_FB_USED[5m]) > 5")
    _, report, _ = _doctor(_prometheus(_groups(rule), {"DCGM_FI_DEV_FB_USED": 8}, {}))

    (odd,) = report["silent"]
    assert (odd["translatable"], odd["state"]) == (False, "will be silent")
    assert odd["reason"] == "changes() counts other steps in the new unit"
    assert odd["series"] == {"DCGM_FI_DEV_FB_USED": "DCGM_FI_DEV_FB_USED_BYTES"}


def test_names_of_ours_that_do_not_exist_are_found() -> None:
    """By the series that are there, else by the table; one of a larger set says which."""
    typo, fan, core = "gpuslice_gpu_memory_used_byte", "gpuslice_gpu_fan_ratio", "gpuslice_gpu_up"
    rules = [_rule("Typo", f"{typo} > 1"), _rule("Fan", f"{fan} > 1"), _rule("Up", f"{core} == 0")]
    code, report, _ = _doctor(_prometheus(_groups(*rules), {}, {}))

    assert code == 1
    checks = {check["name"]: check for check in report["checks"] if check["status"] != "OK"}
    assert checks.keys() == {typo, fan}
    assert "gpuslice_gpu_memory_used_bytes" in checks[typo]["found"]
    assert "alert Typo (/etc/rules/gpu.yaml, group gpus)" in checks[typo]["found"]
    assert "--metric-set standard" in checks[fan]["remedy"]
    assert _doctor(_prometheus(_groups(*rules), {typo: 1, fan: 1}, {}))[0] == 0


def test_without_rules_nothing_is_called_well() -> None:
    """Another server may evaluate them, such as vmalert next to VictoriaMetrics."""
    code, report, _ = _doctor(_prometheus([], OLD, {}))

    assert code == 1
    assert report["checks"][0]["code"] == "no-rules"


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        (always("<html>", 404), "HTTP status 404"),
        (always('{"status":"success","data":[]}'), "has no rules as Prometheus has"),
        (always('{"status":"success"}'), "does not answer as Prometheus does"),
        (always('{"status":"error","error":"no org id"}', 401), "denies access"),
    ],
)
def test_a_server_without_the_api_is_missing(handler: Any, found: str) -> None:
    code, report, _ = _doctor(handler)

    rules = report["checks"][0]
    assert (code, rules["status"], rules["code"]) == (3, "missing", "rules-unreadable")
    assert found in rules["found"]


def test_rules_are_listed_if_the_series_cannot_be_counted() -> None:
    """As at a vmalert, or beyond a limit on queries."""

    async def vmalert(request: web.Request) -> web.Response:
        if request.path == "/api/v1/rules":
            return web.json_response({"status": "success", "data": {"groups": _groups(_rule("Hot", HOT))}})
        return web.json_response({"status": "error", "error": "unsupported path"}, status=404)

    code, report, _ = _doctor(vmalert)

    assert code == 1
    assert report["series"] is None
    assert [check["code"] for check in report["checks"]] == ["", "series-unreadable", "will-be-silent"]


def test_a_prefix_and_no_secrets() -> None:
    """Mimir has its API below a prefix; a password in the URL is not printed."""
    handler = _prometheus(_groups(_rule("Hot", HOT), file="team-a"), OLD, {"Hostname": 1})
    code, report, paths = _doctor(handler, path="/prometheus/?tenant=a")

    assert code == 1
    assert paths[0] == "/prometheus/api/v1/rules?tenant=a&exclude_alerts=true"
    assert {path.partition("?")[0] for path in paths[1:]} == {"/prometheus/api/v1/query"}
    assert report["silent"][0]["file"] == "team-a"

    done = run("doctor", "--prometheus-url", "http://me:secret@127.0.0.1:1/x?token=secret")
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith("Prometheus http://127.0.0.1:1/x\n")
    assert "secret" not in done.stdout


def test_no_node_is_looked_at(tmp_path: Any) -> None:
    """A machine without a GPU and a kubelet has no finding; a fake node is refused."""
    handler = _prometheus(_groups(_rule("Up", "up == 0")), OLD, {})
    code, report, _ = _doctor(handler, *nothing_here(tmp_path))
    assert (code, [check["name"] for check in report["checks"]]) == (0, ["rules", "series now"])

    done = run("doctor", "--scenario", "a10-mps", "--prometheus-url", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--scenario" in done.stderr


# Documents of the servers with the fields that differ: rulespb of Thanos, rule/web.go of vmalert,
# ruler/api.go of Mimir, web/api/v1 of Prometheus.
FORMATS: Mapping[str, Any] = {
    "prometheus": {
        "status": "success",
        "data": {"groups": _groups(_rule("Hot", HOT, state="inactive", duration=0, annotations={}))},
    },
    "thanos": {
        "status": "success",
        "data": {
            "groups": [
                {
                    **_groups(_rule("Hot", HOT, labels={"replica": replica}))[0],
                    "partialResponseStrategy": "ABORT",
                    "limit": "0",
                }
                for replica in "ab"
            ]
        },
        "warnings": ["receiving rules from thanos-rule-1: connection refused"],
    },
    "mimir": {
        "status": "success",
        "data": {"groups": [{**_groups(_rule("Hot", HOT))[0], "sourceTenants": ["a"]}]},
        "errorType": "",
        "error": "",
    },
    "vmalert": {
        "status": "success",
        "data": {
            "groups": [
                {
                    **_groups(
                        _rule("Hot", HOT, datasourceType="prometheus", id="1", group_id="2"),
                        _rule("Logs", "_time:5m error | stats count()", datasourceType="vlogs"),
                        _rule("Old", "movingAverage(x, 5)", datasourceType="graphite"),
                    )[0],
                    "type": "prometheus",
                    "concurrency": 1,
                }
            ]
        },
    },
}


@pytest.mark.parametrize("server", FORMATS)
def test_the_formats_of_other_servers_are_read(server: str) -> None:
    """A rule of two replicas is one; rules in other languages are none."""
    rules = decode_rules(FORMATS[server])

    assert [*rules.rules] == [Rule("/etc/rules/gpu.yaml", "gpus", "alert", "Hot", HOT)]
    assert [*rules.incomplete] == FORMATS[server].get("warnings", [])


@pytest.mark.parametrize("groups", [None, [], [{"name": "a", "rules": None}]])
def test_groups_may_be_empty(groups: Any) -> None:
    assert [*decode_rules({"data": {"groups": groups}}).rules] == []


def test_pages_of_groups_are_incomplete() -> None:
    assert decode_rules({"data": {"groups": [], "groupNextToken": "x"}}).incomplete
