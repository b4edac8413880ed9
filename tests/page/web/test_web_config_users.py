"""Passwords: who is let in, what a check costs, and what guessing clients can do; the rate of requests."""

import asyncio
import threading
from types import SimpleNamespace

import bcrypt
import pytest
from aiohttp import web

from exporter.web.kit.application import build_app
from exporter.web.kit.auth import gate
from exporter.web.kit.auth.gate import MOST_KNOWN, MOST_WAITING, Passwords, TokenBucket, TooManyChecksError
from exporter.web.kit.http.responses import security_headers
from tests.page.web.access import RIGHT, says, serving, until
from tests.page.web.certificates import CHEAP, PASSWORD
from tests.waiting import LIMIT_SECONDS, wait_until_async

USERS = f"basic_auth_users:\n  ann: {CHEAP}\n"
KNOWN = {b"ann": CHEAP.encode()}


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a configuration."""

    def write(text):
        (tmp_path / "new").write_text(text)
        return (tmp_path / "new").rename(tmp_path / "web-config.yml")

    return write


@pytest.fixture
async def checker():
    """Yield a checker of passwords."""
    made = Passwords()
    yield made
    made.close()


@pytest.fixture
def computed(monkeypatch):
    """Return the passwords that bcrypt was called with, and the hashes."""
    calls = []
    verify = bcrypt.checkpw

    def checkpw(password, hashed):
        calls.append((password, hashed))
        return verify(password, hashed)

    monkeypatch.setattr(gate.bcrypt, "checkpw", checkpw)
    return calls


class Slow:
    """Checks of passwords that wait for ``release``."""

    def __init__(self, monkeypatch) -> None:
        self.release = threading.Event()
        self.begun: list[bytes] = []
        self._verify = bcrypt.checkpw
        monkeypatch.setattr(gate.bcrypt, "checkpw", self._checkpw)

    def _checkpw(self, password: bytes, hashed: bytes) -> bool:
        self.begun.append(password)
        self.release.wait(LIMIT_SECONDS)
        return self._verify(password, hashed)


@pytest.mark.parametrize("path", ["/", "/metrics", "/live/", "/static/x/app.css", "/endless", "/nowhere"])
async def test_everything_needs_the_password(config, path):
    """Also streams, files and unknown paths."""
    async with serving(config(USERS)) as site:
        status, headers, _ = await site.get(path)
        assert status == 401
        assert headers["WWW-Authenticate"].startswith('Basic realm="')
        for name, value in security_headers().items():
            assert headers[name] == value
        if path not in ("/endless", "/nowhere"):
            assert (await site.get(path, headers=RIGHT))[0] == 200


@pytest.mark.parametrize("path", ["/-/healthy", "/-/ready"])
async def test_probes_need_no_password(config, path):
    """Paths that only look like theirs do."""
    async with serving(config(USERS)) as site:
        assert (await site.get(path))[0] == 200
        assert (await site.get(f"/static/x{path}"))[0] == 401
        assert (await site.get(f"/metrics?{path}"))[0] == 401


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic !!!!",
        "Basic YW5u",
        "Bearer abc",
        "Basic " + "A" * 5000,
        says("ann", "wrong")["Authorization"],
        says("ann", "")["Authorization"],
        says("ANN", PASSWORD)["Authorization"],
        says("bob", PASSWORD)["Authorization"],
        says("ann", f"{PASSWORD}x")["Authorization"],
        says("ann", "a\0b")["Authorization"],
        says("ann", "x" * 100)["Authorization"],
        says("", "")["Authorization"],
    ],
)
async def test_wrong_credentials_are_refused(config, header):
    async with serving(config(USERS)) as site:
        assert (await site.get(headers={"Authorization": header}))[0] == 401
        assert (await site.get(headers=RIGHT))[0] == 200


@pytest.mark.parametrize(("user", "password"), [("jörg", "zoë"), ("a b", "x:y"), ("long", "z" * 100)])
async def test_any_name_and_password_works(config, user, password):
    """Bcrypt ignores what is beyond 72 bytes."""
    hashed = bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(4, prefix=b"2a")).decode()
    for prefix in ("$2a$", "$2b$", "$2y$"):
        text = f"basic_auth_users:\n  '{user}': {prefix}{hashed[4:]}\n"
        async with serving(config(text)) as site:
            assert (await site.get(headers=says(user, password)))[0] == 200
            assert (await site.get(headers=says(user, password[:-40] + "?")))[0] == 401


async def test_users_change_while_it_serves(config):
    """Connections of a removed user are closed."""
    bob = bcrypt.hashpw(b"bob's", bcrypt.gensalt(4)).decode()
    async with serving(config(USERS)) as site:
        authorization = RIGHT["Authorization"]
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n\r\n".encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        config(f"basic_auth_users:\n  bob: {bob}\n")
        await asyncio.wait_for(reader.read(), LIMIT_SECONDS)
        assert (await site.get(headers=RIGHT))[0] == 401
        assert (await site.get(headers=says("bob", "bob's")))[0] == 200
        writer.close()


async def test_headers_are_set_and_changed(config):
    """Also those of refusals and malformed requests."""
    text = "http_server_config:\n  headers:\n    Strict-Transport-Security: max-age=60\n    X-Frame-Options: "
    async with serving(config(f"{text}sameorigin\n{USERS}")) as site:
        for headers in ({}, RIGHT):
            _, said, _ = await site.get(headers=headers)
            assert said["Strict-Transport-Security"] == "max-age=60"
            assert said["X-Frame-Options"] == "sameorigin"
            assert said["Content-Security-Policy"] == security_headers()["Content-Security-Policy"]
        assert b"Strict-Transport-Security: max-age=60" in await site.raw(b"nonsense\r\n\r\n")
        config(f"{text}deny\n{USERS}")

        async def changed():
            return (await site.get())[1]["X-Frame-Options"] == "deny"

        await until(changed)


async def test_there_is_no_hsts_by_default(config):
    async with serving(config(USERS)) as site:
        assert "Strict-Transport-Security" not in (await site.get())[1]


async def test_the_rate_of_requests_is_limited(config):
    """Not that of health checks."""
    async with serving(config("rate_limit:\n  interval: 1h\n  burst: 3\n")) as site:
        assert [(await site.get())[0] for _ in range(5)] == [200, 200, 200, 429, 429]
        _, headers, _ = await site.get()
        assert 3000 < int(headers["Retry-After"]) <= 3600
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert (await site.get("/-/healthy"))[0] == 200


async def test_refused_requests_do_not_count(config):
    async with serving(config(f"{USERS}rate_limit:\n  interval: 1h\n  burst: 1\n")) as site:
        refused = [await site.get(headers=said) for said in ({}, says("ann", "wrong"), {})]
        assert [status for status, *_ in refused] == [401, 401, 401]
        assert [(await site.get(headers=RIGHT))[0] for _ in range(2)] == [200, 429]


async def test_guesses_are_logged_once(checker, caplog):
    for number in range(3):
        assert await checker.are_right(KNOWN, b"ann", b"%d" % number, f"10.0.0.{number}") is False
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "wrong user name or password from 10.0.0.0;" in caplog.text


async def test_a_right_password_is_computed_once(checker, computed):
    """Also if many requests with it arrive at once."""
    found = [checker.are_right(KNOWN, b"ann", PASSWORD.encode(), "10.0.0.1") for _ in range(MOST_WAITING)]
    assert await asyncio.gather(*found) == [True] * MOST_WAITING
    assert await checker.are_right(KNOWN, b"ann", PASSWORD.encode(), "10.0.0.2") is True
    assert len(computed) == 1


async def test_the_number_of_remembered_passwords_is_limited(checker, monkeypatch):
    monkeypatch.setattr(gate.bcrypt, "checkpw", lambda *_: True)
    for number in range(MOST_KNOWN + 10):
        assert await checker.are_right(KNOWN, b"ann", b"%d" % number, "a")
    assert len(checker._right) == MOST_KNOWN


async def test_a_changed_password_is_checked_again(checker):
    changed = {b"ann": bcrypt.hashpw(b"new", bcrypt.gensalt(4))}
    old = PASSWORD.encode()
    assert await checker.are_right(KNOWN, b"ann", old, "a") is True
    assert await checker.are_right(KNOWN, b"ann", b"new", "a") is False
    assert await checker.are_right(changed, b"ann", old, "a") is False
    assert await checker.are_right(changed, b"ann", b"new", "a") is True


async def test_unknown_users_cost_as_much(checker, computed):
    """They are checked against the most expensive hash."""
    dear = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(5))
    users = KNOWN | {b"dear": dear}
    assert await checker.are_right(users, b"nobody", PASSWORD.encode(), "a") is False
    assert computed == [(PASSWORD.encode(), dear)]


async def test_a_removed_user_is_not_let_in_by_the_hash_of_another(checker):
    both = KNOWN | {b"bob": KNOWN[b"ann"]}
    assert await checker.are_right(both, b"bob", PASSWORD.encode(), "a") is True
    assert await checker.are_right(KNOWN, b"bob", PASSWORD.encode(), "a") is False


async def test_few_checks_wait_and_one_runs(checker, monkeypatch):
    """A client that has left no longer waits, and its check, once begun, still keeps the others waiting."""
    slow = Slow(monkeypatch)
    guesses = [
        asyncio.create_task(checker.are_right(KNOWN, b"ann", b"%d" % number, "a"))
        for number in range(MOST_WAITING)
    ]
    await wait_until_async(lambda: slow.begun)
    with pytest.raises(TooManyChecksError):
        await checker.are_right(KNOWN, b"ann", PASSWORD.encode(), "b")
    for guess in guesses:
        guess.cancel()
    await asyncio.gather(*guesses, return_exceptions=True)
    right = asyncio.create_task(checker.are_right(KNOWN, b"ann", PASSWORD.encode(), "b"))
    await asyncio.sleep(0.05)
    assert slow.begun == [b"0"]
    slow.release.set()
    assert await right is True
    assert slow.begun == [b"0", PASSWORD.encode()]


async def test_a_check_does_not_hold_up_other_requests(config, monkeypatch):
    """Those with a known password are answered; too many others get 429."""
    async with serving(config(USERS)) as site:
        assert (await site.get(headers=RIGHT))[0] == 200
        slow = Slow(monkeypatch)
        checking = [
            asyncio.create_task(site.get(headers=says("ann", f"{number}")))
            for number in range(MOST_WAITING + 1)
        ]
        await asyncio.wait(checking, return_when=asyncio.FIRST_COMPLETED)
        assert (await site.get(headers=RIGHT))[0] == 200
        (refused,) = [each for each in checking if each.done()]
        status, headers, _ = await refused
        assert status == 429
        assert int(headers["Retry-After"]) > 0
        slow.release.set()
        assert {(await each)[0] for each in checking if each is not refused} == {401}


def test_buckets_fill_up_again(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(gate, "time", SimpleNamespace(monotonic=lambda: now[0]))
    bucket = TokenBucket(2, 3)
    assert [bucket.take() for _ in range(5)] == [0, 0, 0, 2, 2]
    now[0] = 1.5
    assert bucket.take() == 0.5
    now[0] = 4
    assert [bucket.take() for _ in range(3)] == [0, 0, 2]
    now[0] = 100
    assert [bucket.take() for _ in range(4)] == [0, 0, 0, 2]


async def test_health_checks_below_a_prefix_need_no_password(config):
    async def page(_request):
        return web.Response(text="page")

    app = build_app([web.get("/-/healthy", page), web.get("/", page)], prefix="/nodes")
    async with serving(config(USERS), app) as site:
        assert (await site.get("/nodes/-/healthy"))[0] == 200
        assert (await site.get("/nodes/"))[0] == 401
