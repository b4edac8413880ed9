"""Heads of requests of every size, on a node and on the hub: each gets an answer, and none is reset."""

import asyncio
import ssl
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.web.kit.http.connection import MAX_DISCARDED
from exporter.web.kit.http.refusals import MAX_HEAD, MAX_HEADERS
from tests.core.commands.program import serving
from tests.page.abuse.clients import connect, statuses
from tests.page.abuse.victim import victim
from tests.page.web.access import serving as serving_site
from tests.page.web.certificates import Authority

LINE, REST = b"GET /-/healthy HTTP/1.1\r\n", b"Host: x\r\nConnection: close\r\n"
LEAST = 200
FAIR = 40  # bytes of a small header
SIZES = [
    LEAST,
    *(edge + more for edge in (8190, 16 * 1024, MAX_HEAD, 64 * 1024, 256 * 1024) for more in (-1, 0, 1)),
    8300,
    9000,
    40_000,
    1_000_000,
    MAX_DISCARDED - 200_000,
]


def one_header(size: int, name: bytes = b"Authorization: Negotiate ") -> bytes:
    """Return a head of ``size`` bytes, most of them in one header."""
    rest = size - len(LINE + REST + name) - 4
    return LINE + REST + name + b"a" * rest + b"\r\n\r\n"


def cookie(size: int) -> bytes:
    """Return a head with one large cookie before the other headers."""
    rest = size - len(LINE + REST) - len(b"Cookie: \r\n\r\n")
    return LINE + b"Cookie: " + b"c" * rest + b"\r\n" + REST + b"\r\n"


def many_headers(size: int) -> bytes:
    """Return a head of headers of FAIR bytes; the last one may be larger."""
    rest = size - len(LINE + REST) - 2
    number = max(rest // FAIR - 1, 0)
    headers = b"".join(b"X-%06d: " % place + b"h" * (FAIR - 12) + b"\r\n" for place in range(number))
    return LINE + REST + headers + b"Last: " + b"l" * (rest - len(headers) - 8) + b"\r\n\r\n"


def long_url(size: int) -> bytes:
    """Return a head with a long query."""
    rest = size - len(LINE + REST) - 3
    return LINE.replace(b"healthy", b"healthy?" + b"q" * rest) + REST + b"\r\n"


SHAPES = {"one header": one_header, "a cookie": cookie, "many headers": many_headers, "a URL": long_url}


def due(shape: str, size: int) -> int:
    """Return the status of the answer to a head."""
    return 200 if size <= MAX_HEAD else 414 if shape == "a URL" else 431


def exchange(port: int, sent: bytes, piece: int = 1 << 30, tls: ssl.SSLContext | None = None) -> bytes:
    """Send all in pieces before reading the answer to its end; a reset is an error."""
    answer = b""
    plain = connect(port)
    with tls.wrap_socket(plain, server_hostname="127.0.0.1") if tls else plain as client:
        for start in range(0, len(sent), piece):
            client.sendall(sent[start : start + piece])
        while part := client.recv(65536):
            answer += part
    return answer


@contextmanager
def hub():
    """Serve the page of a cluster; its Prometheus does not answer."""
    with serving("hub", "--prometheus-url", "http://127.0.0.1:1") as served:
        yield int(served.url.rstrip("/").rpartition(":")[2])


@pytest.fixture(scope="module", params=["node", "hub"])
def port(request):
    """Serve a node, then the hub."""
    if request.param == "hub":
        with hub() as found:
            yield found
    else:
        with victim(scenario="a10-mps") as served:
            yield served.port


def test_the_shapes_have_their_sizes():
    for size in (LEAST, MAX_HEAD, 1_000_000):
        assert {len(make(size)) for make in SHAPES.values()} == {size}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_a_head_of_each_size_gets_its_answer(port, shape, size):
    """Up to 32 KiB it is served; beyond that the answer has the limit and the remedy."""
    answer = exchange(port, SHAPES[shape](size))
    assert statuses(answer) == [due(shape, size)]
    if size > MAX_HEAD:
        remedy = b"Shorten the URL" if shape == "a URL" else b"Delete the cookies of this host"
        assert b"32 KiB in all" in answer
        assert remedy in answer
        assert b"Content-Security-Policy: " in answer
        assert b"Content-Type: text/plain" in answer


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("piece", [997, 4096])
def test_a_head_in_pieces_gets_the_same_answer(port, shape, piece):
    """However it is cut, also within its last bytes, and if the client goes on after its answer has come."""
    for size in (MAX_HEAD - 1, MAX_HEAD, MAX_HEAD + 1, 3 * MAX_HEAD):
        assert statuses(exchange(port, SHAPES[shape](size), piece)) == [due(shape, size)]


def test_the_last_bytes_may_come_one_by_one(port):
    for size in (MAX_HEAD, MAX_HEAD + 1):
        sent = many_headers(size)
        answer = b""
        with connect(port) as client:
            client.sendall(sent[:-5])
            for place in range(len(sent) - 5, len(sent)):
                client.sendall(sent[place : place + 1])
            while part := client.recv(65536):
                answer += part
        assert statuses(answer) == [due("", size)]


@settings(deadline=None, max_examples=60)
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    size=st.integers(LEAST, 3 * MAX_HEAD) | st.integers(MAX_HEAD - 9, MAX_HEAD + 9),
    piece=st.integers(500, 100_000),
)
def test_any_size_is_answered(port, shape, size, piece):
    """With 200, 431 or 414, never with 400, and never by a reset."""
    assert statuses(exchange(port, SHAPES[shape](size), piece)) == [due(shape, size)]


@settings(deadline=None, max_examples=30)
@given(
    url=st.integers(0, 40_000),
    headers=st.lists(st.integers(0, 5000), max_size=30),
    small=st.integers(0, 2000),
)
def test_any_mixture_is_answered(port, url, headers, small):
    """A large URL and large headers, and up to more headers than are allowed."""
    sent = long_url(LEAST + url)[:-2]
    sent += b"".join(b"A: " + b"a" * size + b"\r\n" for size in headers) + b"a: b\r\n" * small + b"\r\n"
    (status,) = statuses(exchange(port, sent))
    fits = len(sent) <= MAX_HEAD and 2 + len(headers) + small <= MAX_HEADERS
    assert status == 200 if fits else status in (414, 431)


def test_the_number_of_headers_is_limited(port):
    """A thousand at least."""
    few, many = (b"a: b\r\n" * number for number in (MAX_HEADERS - 2, MAX_HEADERS - 1))
    assert statuses(exchange(port, LINE + REST + few + b"\r\n")) == [200]
    answer = exchange(port, LINE + REST + many + b"\r\n")
    assert statuses(answer) == [431]
    assert b"1,024 headers at most" in answer


def test_a_large_head_is_counted_for_itself(port):
    """Behind other requests of the same connection, each has its own 32 KiB."""
    kept = [
        many_headers(size).replace(b"Connection: close\r\n", b"") for size in (MAX_HEAD, 500, MAX_HEAD - 3)
    ]
    for last, status in ((many_headers(MAX_HEAD), 200), (many_headers(MAX_HEAD + 1), 431)):
        with connect(port) as client:
            for sent in (*kept, last):
                client.sendall(sent)
                answer = client.recv(65536)
                assert statuses(answer) == [status if sent is last else 200]


@pytest.mark.parametrize("size", [500, MAX_HEAD + 1, 100_000])
def test_answers_come_in_the_order_of_requests(port, size):
    """A head that is refused does not cost the answers before it."""
    small = LINE + b"Host: x\r\n\r\n"
    answer = exchange(port, small * 5 + one_header(size))
    assert statuses(answer) == [200] * 5 + [due("", size)]


def test_what_comes_after_a_refusal_does_not_reset_it(port):
    """The client reads its answer, and only then ends its request."""
    with connect(port) as client:
        client.sendall(one_header(MAX_HEAD + 5)[:-2])
        answer = client.recv(65536)
        for _ in range(10):
            client.sendall(b"x" * 100_000)
        while part := client.recv(65536):
            answer += part
    assert statuses(answer) == [431]


def test_a_large_body_is_refused_without_a_reset(port):
    """Also one of chunks whose trailer has no end."""
    body = LINE.replace(b"GET", b"POST") + REST
    for sent in (
        body + b"Content-Length: 1000000\r\n\r\n" + b"b" * 1_000_000,
        body + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: " + b"t" * 1_000_000,
    ):
        assert statuses(exchange(port, sent)) in ([405], [413])


async def test_the_answers_are_the_same_with_tls(tmp_path, monkeypatch):
    monkeypatch.setattr("exporter.web.kit.http.connection.LINGER_SECONDS", 0.05)
    authority = Authority(tmp_path, "ca")
    authority.certify("tls")
    (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n")
    async with serving_site(tmp_path / "web.yml") as site:
        for shape, make in SHAPES.items():
            for size in (MAX_HEAD, MAX_HEAD + 1, 300_000):
                answer = await asyncio.to_thread(exchange, site.port, make(size), tls=authority.trusted())
                assert statuses(answer) == [due(shape, size)]
