"""What the operator writes: settings, the file of the web server's access, and scenarios."""

import json
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from exporter.config import load_settings
from exporter.config import parse as settings_parse
from exporter.config.parse import SettingsError
from exporter.demo.scenario import Scenario
from exporter.demo.scenario.catalog import dump, parse
from exporter.documents import DocumentError, Kind, choice, parse_text
from exporter.web.kit.auth.web_config import parse_web_config
from tests.together.fuzz.nodes import SCENARIOS
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.seeds import MARK, Scratch, encoded, parts_of
from tests.together.fuzz.target import Target

_scratch = Scratch()
KINDS = (
    *(kind for _, kind in sorted(vars(settings_parse).items()) if isinstance(kind, Kind)),
    settings_parse.duration("100ms", "1h"),
    choice("json", "text"),
)


def _settings(content: bytes) -> Any:
    """Load settings from a file, a variable and a flag."""
    file, variable, flag = parts_of(content, 3)
    path = _scratch.write("config.yaml", file)
    told, text = variable.decode("utf-8", "surrogateescape"), flag.decode("utf-8", "surrogateescape")
    found = load_settings(
        {"config": str(path), "poll_interval": text or None},
        {"GPUSLICE_LISTEN": told, "GPUSLICE_POD_LABELS": told},
    )
    return found.listen, found.poll_interval, found.stale_after, found.node_name


def _kinds(content: bytes) -> Any:
    """Parse one text as one kind of value, which the first byte chooses."""
    kind = KINDS[(content[:1] or b"\0")[0] % len(KINDS)]
    with warnings.catch_warnings():
        # Of patterns that a later Python may read otherwise; they are taken as this one reads them.
        warnings.simplefilter("ignore", FutureWarning)
        told = parse_text(kind, content[1:].decode("utf-8", "surrogateescape"), "--option")
    # The spelling of an address is one that is read as the same.
    if isinstance(told, settings_parse.ListenAddress) and settings_parse.ADDRESS.parse(str(told)) != told:
        raise BrokenPromiseError(f"{told!r} is spelled {told}")
    return repr(told)


def _web_config(content: bytes) -> Any:
    found = parse_web_config(content, Path("/etc/web"))
    return found, found.interval, found.burst


@cache
def _scenarios() -> Sequence[bytes]:
    small = sorted(SCENARIOS.glob("*.json"), key=lambda path: path.stat().st_size)[:6]
    return [
        b'{"name":"a","node":{"name":"n"},"gpus":[]}',
        *(json.dumps(json.loads(path.read_text())).encode() for path in small),
    ]


def _scenario(content: bytes) -> Scenario:
    return parse(content.decode("utf-8", "replace"))


def _check_scenario(told: Scenario) -> None:
    """Require that a scenario that is written loads again as the same."""
    if parse(dump(told)) != told:
        raise BrokenPromiseError("a scenario loads otherwise than it was written")


WEB = """tls_server_config: {cert_file: a.pem, key_file: b.pem, min_version: TLS13, client_allowed_sans: [x],
  client_ca_file: c.pem, client_auth_type: RequireAndVerifyClientCert}
http_server_config: {http2: true, headers: {X-Frame-Options: deny}}
basic_auth_users: {alice: $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi}
rate_limit: {interval: 1s, burst: 20}
"""
BLOCK = """basic_auth_users:
  bob: $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi
rate_limit:
  interval: 1h2m30.5s
  burst: 1
"""

TARGETS = (
    Target(
        name="settings",
        covers=("exporter.config", "exporter.config.parse"),
        seeds=encoded(
            "poll-interval: 2s\nlisten: ':1'\npod-labels: [a, b]\nlog-format: json\n\x1e[::1]:9836\x1e1m",
            "# nothing\n\x1e\x1e500ms",
        ),
        decode=_settings,
        cost=5,
        refuses=(SettingsError,),
        words=(b'"\\UFFFFFFFF"', b"&a", b"*a", b"<<: ", b"!!python/name:", b"- ", b"? ", b"\xff\xfe", b"'"),
    ),
    Target(
        name="setting-kinds",
        covers=("exporter.config.parse",),
        seeds=lambda: [
            bytes([place]) + text
            for place in range(len(KINDS))
            for text in (
                b"[::1]:9836",
                b"http://localhost:9400/metrics",
                b"/gpuslice",
                b"1m",
                b"a.*b",
                b"self",
            )
        ],
        decode=_kinds,
        refuses=(DocumentError,),
        words=(b"http://[", b"%25", b"9" * 400, b"(?P<", b"{99999}", b"::ffff:1.2.3.4"),
    ),
    Target(
        name="web-config",
        covers=("exporter.documents", "exporter.web.kit.auth.web_config"),
        seeds=encoded(WEB, BLOCK),
        decode=_web_config,
        cost=5,
        refuses=(DocumentError,),
        words=(
            b'"\\UFFFFFFFF"',
            b"&a",
            b"*a",
            b"<<: ",
            b"- ",
            b"? ",
            b"9" * 400,
            b"h",
            b"ns",
            b"\xff\xfe",
            b"~",
        ),
    ),
    Target(
        name="scenario",
        covers=("exporter.demo.scenario.catalog", "exporter.documents"),
        seeds=_scenarios,
        decode=_scenario,
        cost=2,
        refuses=(DocumentError,),
        check=_check_scenario,
        words=(b"null", b"1e400", b"-1", b"NaN", b"true", b'"40 GiB"', b"\\ud800", b'"count": ', MARK),
    ),
)
