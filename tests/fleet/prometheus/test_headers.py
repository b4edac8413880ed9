"""Headers that users add to the requests: what is sent, what is refused, and that no message has a value."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config.headers import Header, parse_header
from exporter.fleet.prometheus import Prometheus, PrometheusError, Response, read_vector
from exporter.fleet.request_headers import HeaderError
from tests.core.commands.program import run
from tests.fleet.answering import answering, nothing
from tests.fleet.prometheus.servers import always, serving
from tests.fleet.prometheus.test_client import ask, connected

ECHOED = "hunter22-hunter22"
TENANT = Header("X-Scope-OrgID", "team-a|team-b")


async def test_headers_are_sent_with_each_query() -> None:
    """In the case in which they were given, and besides those of our own."""
    async with (
        serving(always()) as server,
        connected(server.url, headers=[TENANT, Header("x-roles", "a, b: c")]) as prometheus,
    ):
        for _ in range(2):
            await prometheus.query("up")
    for headers in server.headers:
        assert headers["X-Scope-OrgID"] == "team-a|team-b"
        assert headers["x-roles"] == "a, b: c"
        assert headers["Content-Type"] == "application/x-www-form-urlencoded"
        assert headers["User-Agent"].startswith("gpuslice-exporter/")
        assert "Authorization" not in headers
    assert server.forms == [{"query": "up"}] * 2


async def test_headers_of_a_file_follow_its_changes(tmp_path) -> None:
    """They come with those of the options and with the token."""
    file, token = tmp_path / "headers", tmp_path / "token"
    token.write_text("t")
    async with (
        serving(always()) as server,
        connected(server.url, headers=[TENANT], header_file=file, token_file=token) as prometheus,
    ):
        for text in (f"X-Key: {ECHOED}", "\ufeff# of Monday\r\n\r\nX-Key:new\r\nX-More: 1\n"):
            file.write_bytes(text.encode())
            await prometheus.query("up")
    first, second = server.headers
    assert (first["X-Key"], first["Authorization"], first["X-Scope-OrgID"]) == (
        ECHOED,
        "Bearer t",
        "team-a|team-b",
    )
    assert (second["X-Key"], second["X-More"], second["X-Scope-OrgID"]) == ("new", "1", "team-a|team-b")


async def test_a_scheme_of_its_own_needs_no_token_file(tmp_path) -> None:
    file = tmp_path / "headers"
    file.write_text(f"Authorization: ApiKey {ECHOED}\n")
    async with serving(always()) as server:
        await ask(server.url, header_file=file)
    assert server.headers[0]["Authorization"] == f"ApiKey {ECHOED}"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot read '{file}': No such file or directory"),
        (b"", "'{file}' has no header in it"),
        (b"\n# X-Key: a\n", "'{file}' has no header in it"),
        (b"\xff\xfe", "cannot read '{file}': it is not text"),
        (b"X: 1\nhunter22-hunter22\n", "line 2 of '{file}' is not a header such as X-Scope-OrgID: team-a ("),
        (b"X-Key: hunter22-hunter22\n more\n", "line 2 of '{file}' is not"),
        (b"X-Key: hunter22-hunter22\rY: 1\n", "the value of X-Key has a line break, or a character outside"),
        ("X-Key: hunter22-hunter22\u2028Y: 1".encode(), "the value of X-Key has"),
        (b"Content-Length: 7\n", "Content-Length is set by this program: leave it out"),
        (b"X-Key: hunter22-hunter22\nx-key: 1\n", "x-key is set twice by --prometheus-header-file"),
        (
            b"x-scope-orgid: 1\n",
            "x-scope-orgid is set by --prometheus-header and by --prometheus-header-file",
        ),
        (
            b"authorization: x\n",
            "authorization is set by --prometheus-token-file and by --prometheus-header-file",
        ),
    ],
)
async def test_nothing_is_sent_without_usable_headers(tmp_path, content, why) -> None:
    """The message names the file and its line, and has no value."""
    file, token = tmp_path / "headers", tmp_path / "token"
    token.write_text("t")
    if content is not None:
        file.write_bytes(content)
    async with serving(always()) as server:
        with pytest.raises(PrometheusError) as caught:
            await ask(server.url, headers=[TENANT], header_file=file, token_file=token)
    message = str(caught.value)
    assert why.format(file=file) in message
    assert "--prometheus-header-file" in message
    assert "hunter22" not in message
    assert "\n" not in message
    assert server.paths == []


@pytest.mark.parametrize(
    ("options", "url", "message"),
    [
        ({"token_file": "/t"}, "http://p", "by --prometheus-header and by --prometheus-token-file"),
        ({}, "http://me:secret@p", "by --prometheus-header and by the name in --prometheus-url"),
        (
            {"headers": [TENANT, Header("X-SCOPE-ORGID", "b")]},
            "http://p",
            "is set twice by --prometheus-header",
        ),
    ],
)
async def test_two_values_of_one_header_are_refused_at_the_start(options, url, message) -> None:
    with pytest.raises(HeaderError, match=message):
        Prometheus(url, **{"headers": [Header("authorization", ECHOED)], **options})


async def test_a_server_that_repeats_a_secret_does_not_bring_it_into_a_message(tmp_path) -> None:
    """Neither whole nor shortened; also in the target of a redirect."""
    file = tmp_path / "headers"
    file.write_text(f"X-Key: Key {ECHOED}\n")
    error = json.dumps({"status": "error", "error": f"{'x' * 190} Key {ECHOED} is not a key"})
    for handler in (always(error, 400), always("", 302, Location=f"https://login/{ECHOED}")):
        async with serving(handler) as server:
            with pytest.raises(PrometheusError) as caught:
                await ask(server.url, header_file=file)
        assert "hunter" not in str(caught.value)
    assert ECHOED not in repr(Response(200, b"", secrets=(ECHOED,)))


async def test_a_short_word_of_a_header_is_no_secret() -> None:
    """Else a tenant called 1 would spoil every message."""
    response = Response(400, b'{"status":"error","error":"1:1: parse error"}')
    with pytest.raises(PrometheusError, match="1:1: parse error"):
        read_vector(response)
    async with serving(always(response.body.decode(), 400)) as server:
        with pytest.raises(PrometheusError, match="1:1: parse error"):
            await ask(server.url, headers=[Header("X-Scope-OrgID", "1")])


async def test_nothing_is_logged_of_a_header(caplog) -> None:
    with caplog.at_level(logging.DEBUG):
        async with serving(always("no", 500)) as server:
            with pytest.raises(PrometheusError):
                await ask(server.url, headers=[Header("X-Key", ECHOED)])
    assert ECHOED not in caplog.text


@given(st.text(max_size=30))
def test_any_text_is_a_header_that_http_can_carry_or_a_reason(text) -> None:
    """A header is one line of ASCII without spaces around it; a reason has no line break."""
    try:
        header = parse_header(text)
    except ValueError as error:
        reason = str(error)
    else:
        reason = ""
        _check_that_http_can_carry(header)
    assert reason.isprintable()


def _check_that_http_can_carry(header: Header) -> None:
    assert header.name
    assert not set(header.name) & set(' :\t()<>@,;\\"/[]?={}')
    assert (header.name + header.value).isascii()
    assert header.value == header.value.strip() != ""
    assert header.value.isprintable()


@pytest.mark.parametrize("command", ["inspect", "advise", "hub"])
def test_a_wrong_header_is_an_error_of_usage(command) -> None:
    for header, token in (
        (f"Host: {ECHOED}", ()),
        (f"Authorization: {ECHOED}", ("--prometheus-token-file", "/t")),
    ):
        done = run(command, "--prometheus-url", "http://localhost:1", "--prometheus-header", header, *token)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert "leave" in done.stderr
        assert ECHOED not in done.stderr


def test_commands_send_the_headers() -> None:
    """From the environment too."""
    seen: list[dict[str, str]] = []
    with answering(nothing, seen) as url:
        run("inspect", "--prometheus-url", url, "--prometheus-header", "X-Scope-OrgID: team-a")
        run("advise", "--prometheus-url", url, GPUSLICE_PROMETHEUS_HEADER="X-Scope-OrgID: b, c\nX-Key: k")
    assert {headers.get("X-Scope-OrgID") for headers in seen} == {"team-a", "b, c"}
    assert seen[-1]["X-Key"] == "k"
