"""Passwords: who is let in, what a check costs, and what guessing clients can do."""

import asyncio
import threading
import time
from types import SimpleNamespace

import bcrypt
import pytest
from aiohttp import web

from exporter.web.kit.application import build_app
from exporter.web.kit.auth import passwords
from exporter.web.kit.auth.passwords import (
    MOST_SHARING,
    MOST_WAITING,
    Passwords,
    TokenBucket,
    TooManyGuessesError,
    token_buckets,
)
from exporter.web.kit.http.responses import security_headers
from tests.page.web.access import RIGHT, says, serving, until
from tests.page.web.certificates import CHEAP, PASSWORD
from tests.waiting import LIMIT_SECONDS

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
def now(monkeypatch):
    """Return the time of all checks in a list, which a test may move."""
    moments = [0.0]
    clock = SimpleNamespace(monotonic=lambda: moments[0], thread_time=time.thread_time)
    monkeypatch.setattr(passwords, "time", clock)
    return moments


@pytest.fixture
async def checker(now):
    """Yield a checker of passwords, for which no time passes."""
    assert now == [0.0]
    made = Passwords()
    yield made
    made.close()


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


async def test_few_wait_for_one_check(checker):
    """A client that repeats a guess and leaves takes neither memory nor connections."""
    slow = {b"ann": bcrypt.hashpw(b"x", bcrypt.gensalt(9))}
    asked = [checker.are_right(slow, b"ann", b"guess", f"{number}") for number in range(MOST_SHARING + 5)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers.count(False) == MOST_SHARING
    assert sum(isinstance(each, TooManyGuessesError) for each in answers) == 5


async def test_guesses_are_logged_once(checker, caplog):
    for number in range(3):
        assert await checker.are_right(KNOWN, b"ann", b"%d" % number, f"10.0.0.{number}") is False
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "wrong user name or password from 10.0.0.0;" in caplog.text


async def test_a_password_is_computed_once(checker, monkeypatch):
    computed = []
    verify = bcrypt.checkpw
    monkeypatch.setattr(passwords.bcrypt, "checkpw", lambda *said: computed.append(said) or verify(*said))
    for password, right in ((PASSWORD.encode(), True), (b"wrong", False)):
        computed.clear()
        found = [checker.are_right(KNOWN, b"ann", password, "10.0.0.1") for _ in range(30)]
        assert set(await asyncio.gather(*found)) == {right}
        assert await checker.are_right(KNOWN, b"ann", password, "10.0.0.2") is right
        assert len(computed) == 1


async def test_a_changed_password_is_checked_again(checker):
    changed = {b"ann": bcrypt.hashpw(b"new", bcrypt.gensalt(4))}
    old = PASSWORD.encode()
    assert await checker.are_right(KNOWN, b"ann", old, "a") is True
    assert await checker.are_right(KNOWN, b"ann", b"new", "a") is False
    assert await checker.are_right(changed, b"ann", old, "a") is False
    assert await checker.are_right(changed, b"ann", b"new", "a") is True


async def test_unknown_users_cost_as_much(checker, monkeypatch):
    """They are checked against the most expensive hash."""
    against = []
    verify = bcrypt.checkpw
    monkeypatch.setattr(
        passwords.bcrypt, "checkpw", lambda said, hashed: against.append(hashed) or verify(said, hashed)
    )
    dear = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(5))
    users = KNOWN | {b"dear": dear}
    assert await checker.are_right(users, b"nobody", PASSWORD.encode(), "a") is False
    assert against == [dear]


async def test_a_guessing_client_is_stopped_and_others_are_not(checker):
    for number in range(5):
        assert await checker.are_right(KNOWN, b"ann", b"%d" % number, "guesser") is False
    with pytest.raises(TooManyGuessesError) as error:
        await checker.are_right(KNOWN, b"ann", PASSWORD.encode(), "guesser")
    assert 0 < error.value.retry <= 10
    assert await checker.are_right(KNOWN, b"ann", PASSWORD.encode(), "other") is True
    # Now it is known to be right, wherever it comes from.
    assert await checker.are_right(KNOWN, b"ann", PASSWORD.encode(), "guesser") is True


async def test_clients_without_wrong_guesses_come_first(monkeypatch, checker):
    order = []
    verify = bcrypt.checkpw
    monkeypatch.setattr(
        passwords.bcrypt, "checkpw", lambda said, hashed: order.append(said) or verify(said, hashed)
    )
    clients = [f"c{number}" for number in range(MOST_WAITING)]
    for client in clients:
        await checker.are_right(KNOWN, b"ann", client.encode(), client)
    order.clear()
    asked = [checker.are_right(KNOWN, b"ann", b"%s again" % client.encode(), client) for client in clients]
    guessing = [asyncio.create_task(each) for each in asked]
    await asyncio.sleep(0)
    with pytest.raises(TooManyGuessesError):
        await checker.are_right(KNOWN, b"ann", b"one more", "c0")
    assert await checker.are_right(KNOWN, b"ann", PASSWORD.encode(), "prometheus") is True
    assert order.index(PASSWORD.encode()) <= 1
    answers = await asyncio.gather(*guessing, return_exceptions=True)
    assert [type(each) for each in answers].count(TooManyGuessesError) == 1


@pytest.fixture
def computed(monkeypatch):
    """Return the passwords that bcrypt was called with."""
    called = []
    verify = bcrypt.checkpw
    monkeypatch.setattr(
        passwords.bcrypt,
        "checkpw",
        lambda password, hashed: called.append(password) or verify(password, hashed),
    )
    return called


@pytest.mark.usefixtures("now")
async def test_a_flood_of_guesses_does_not_burn_the_cpu(config, computed):
    async with serving(config(USERS)) as site:
        assert (await site.get(headers=RIGHT))[0] == 200
        computed.clear()
        for number in range(120):
            known = number % 30 == 0
            status, *_ = await site.get(headers=RIGHT if known else says("ann", f"guess {number}"))
            assert status in ({200} if known else {401, 429})
    assert len(computed) == passwords.GUESSES


async def test_guesses_from_everywhere_share_one_small_budget(now, monkeypatch):
    cost = 0.01

    async def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(passwords, "_verify", lambda _check: (False, cost))
    monkeypatch.setattr(passwords.asyncio, "sleep", sleep)
    checker = Passwords(share=0.1, at_once=0.02)
    guesses = [
        checker.are_right(KNOWN, b"ann", b"%d" % number, f"client {number}") for number in range(MOST_WAITING)
    ]
    assert await asyncio.gather(*guesses) == [False] * MOST_WAITING
    checker.close()
    # One check may begin while anything is left of the bucket.
    assert MOST_WAITING * cost <= 0.02 + 0.1 * now[0] + cost + 1e-9


async def test_a_check_does_not_hold_up_other_requests(config, monkeypatch):
    release, begun = threading.Event(), threading.Event()
    verify = bcrypt.checkpw

    def checkpw(password, hashed):
        if password == b"slow":
            begun.set()
            release.wait(LIMIT_SECONDS)
        return verify(password, hashed)

    async with serving(config(USERS)) as site:
        assert (await site.get(headers=RIGHT))[0] == 200
        monkeypatch.setattr(passwords.bcrypt, "checkpw", checkpw)
        checking = asyncio.create_task(site.get(headers=says("ann", "slow")))
        await asyncio.to_thread(begun.wait, LIMIT_SECONDS)
        for _ in range(3):
            assert (await site.get(headers=RIGHT))[0] == 200
        assert not checking.done()
        release.set()
        assert (await checking)[0] == 401


def test_buckets_fill_up_again():
    now = [0.0]
    bucket = TokenBucket(5, 0.5, lambda: now[0])
    bucket.take(7)
    assert (bucket.left, bucket.seconds_until(1), bucket.full) == (-2, 6, False)
    now[0] = 6
    assert (bucket.left, bucket.seconds_until(1)) == (1, 0)
    now[0] = 100
    assert (bucket.left, bucket.full) == (5, True)
    bucket_of = token_buckets(5, 0.5, lambda: now[0])
    bucket_of("a").take()
    assert (bucket_of("a").left, bucket_of("b").left) == (4, 5)


def test_the_number_of_remembered_clients_is_limited():
    bucket_of = token_buckets(5, 0.5, lambda: 0.0)
    bucket_of("first").take()
    for number in range(5000):
        bucket_of(f"{number}")
    assert bucket_of("first").full


async def test_health_checks_below_a_prefix_need_no_password(config):
    async def page(_request):
        return web.Response(text="page")

    app = build_app([web.get("/-/healthy", page), web.get("/", page)], prefix="/nodes")
    async with serving(config(USERS), app) as site:
        assert (await site.get("/nodes/-/healthy"))[0] == 200
        assert (await site.get("/nodes/"))[0] == 401
