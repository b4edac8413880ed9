"""Requests of unusual shapes, and the status of the answer to each."""

from collections.abc import Mapping

GET = b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n"
Shapes = Mapping[str, tuple[bytes, int]]


def _with(headers: bytes, body: bytes = b"") -> bytes:
    return GET + headers + b"\r\n\r\n" + body


def _target(target: bytes, method: bytes = b"GET") -> bytes:
    return method + b" " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n"


HUGE: Shapes = {
    "a header of 1 MB": (_with(b"A: " + b"x" * 1_000_000), 431),
    "a header of 40 kB": (_with(b"A: " + b"x" * 40_000), 431),
    "a header of 30 kB": (_with(b"A: " + b"x" * 30_000), 200),
    "10,000 headers": (_with(b"\r\n".join(b"A%d: b" % number for number in range(10_000))), 431),
    "200 headers": (_with(b"\r\n".join(b"A%d: b" % number for number in range(200))), 200),
    "a URL of 100 kB": (_target(b"/" + b"a" * 100_000), 414),
    "a query of 30 kB": (_target(b"/-/healthy?" + b"a=b&" * 7500), 200),
    "a method of 100 kB": (_target(b"/", b"G" * 100_000), 400),
}

SMUGGLED: Shapes = {
    "two lengths": (_with(b"Content-Length: 0\r\nContent-Length: 5", b"hello"), 400),
    "one length twice": (_with(b"Content-Length: 0\r\nContent-Length: 0"), 400),
    "a list of lengths": (_with(b"Content-Length: 5, 5", b"hello"), 400),
    "a length with a sign": (_with(b"Content-Length: +5", b"hello"), 400),
    "a negative length": (_with(b"Content-Length: -5", b"hello"), 400),
    "a hexadecimal length": (_with(b"Content-Length: 0x5", b"hello"), 400),
    "a length beyond 64 bits": (_with(b"Content-Length: 99999999999999999999", b"hello"), 400),
    "a length and chunks": (_with(b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"), 400),
    "an unknown coding": (_with(b"Transfer-Encoding: xchunked", b"0\r\n\r\n"), 400),
    "two codings": (_with(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"0\r\n\r\n"), 400),
    "a blank before the colon": (_with(b"Transfer-Encoding : chunked", b"0\r\n\r\n"), 400),
    "a folded line": (_with(b"A: b\r\n c"), 400),
    "a first line that is folded": (b"GET /-/healthy HTTP/1.1\r\n Host: x\r\n\r\n", 400),
    "bare line feeds": (b"GET /-/healthy HTTP/1.1\nHost: x\n\n", 400),
    "bare carriage returns": (b"GET /-/healthy HTTP/1.1\rHost: x\r\r", 400),
    "a carriage return in a value": (_with(b"A: b\rc"), 400),
    "a zero byte in a value": (_with(b"A: b\0c"), 400),
    "chunks": (_with(b"Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n"), 413),
    "a chunk with an extension": (_with(b"Transfer-Encoding: chunked", b"5;a=b\r\nhello\r\n0\r\n\r\n"), 413),
    "an extension with a line feed": (
        _with(b"Transfer-Encoding: chunked", b"5;a\nhello\r\n0\r\n\r\n"),
        400,
    ),
    "a chunk of no number": (_with(b"Transfer-Encoding: chunked", b"zz\r\nhello\r\n0\r\n\r\n"), 400),
    "a chunk beyond 64 bits": (_with(b"Transfer-Encoding: chunked", b"f" * 18 + b"\r\nhello\r\n"), 400),
    "two hosts": (_with(b"Host: y"), 400),
    "no host": (b"GET /-/healthy HTTP/1.1\r\n\r\n", 400),
}
"""Requests that proxies and servers are known to read in different ways."""

VERSIONS: Shapes = {
    "HTTP/0.9": (b"GET /-/healthy\r\n\r\n", 505),
    "HTTP/2.0 in the words of HTTP/1": (b"GET /-/healthy HTTP/2.0\r\nHost: x\r\n\r\n", 505),
    "HTTP/9.9": (b"GET /-/healthy HTTP/9.9\r\nHost: x\r\n\r\n", 400),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40) + b"\r\n\r\n", 400),
    "an upgrade to HTTP/2": (_with(b"Connection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk"), 200),
    "an upgrade to a websocket": (_with(b"Connection: Upgrade\r\nUpgrade: websocket"), 200),
    "an expectation": (_with(b"Expect: 100-continue"), 200),
    "an expectation of something else": (_with(b"Expect: more"), 417),
}

TARGETS: Shapes = {
    target.decode("latin-1"): (_target(target), status)
    for target, status in (
        (b"/../../etc/passwd", 404),
        (b"/%2e%2e/%2e%2e/etc/passwd", 404),
        (b"///etc/passwd", 404),
        (b"//-/healthy", 404),
        (b"/a/../-/healthy", 404),
        (b"/-/./healthy", 404),
        (b"/-%2fhealthy", 404),
        (b"/-/healthy%00", 404),
        (b"/%00", 404),
        (b"/%zz", 404),
        (b"/%ff", 404),
        (b"/%0d%0aSet-Cookie:%20a=b", 404),
        (b"/\\..\\..\\etc", 404),
        (b"/static/x/../../../../etc/passwd", 404),
        (b"/static/x/%2e%2e%2f%2e%2e%2fserver.py", 404),
        (b"/static/x/..%5c..%5cserver.py", 404),
        (b"/static/x//etc/passwd", 404),
        (b"/static/x/%2fetc%2fpasswd", 404),
        (b"http://other/-/healthy", 200),
        (b"http://user@other/-/healthy", 200),
        (b"http://[", 400),
        (b"http://other:99999999/", 400),
        (b"other:80", 400),
        (b"*", 400),
        (b"", 400),
        (b"/\x01", 400),
        (b"/\xe9", 400),
    )
}

METHODS: Shapes = {
    name.decode(): (_target(b"/-/healthy", name), status)
    for name, status in (
        *(
            (method, 405)
            for method in (b"TRACE", b"OPTIONS", b"PUT", b"DELETE", b"POST", b"PATCH", b"CONNECT")
        ),
        *((method, 400) for method in (b"get", b"<b>", b"G\0T")),
    )
}

ALL: Shapes = HUGE | SMUGGLED | VERSIONS | TARGETS | METHODS
