"""Requests of every shape: one answer or none to each, nothing of it repeated, and no line in the log."""

import pytest

from tests.page.abuse.clients import answer_to, connect, statuses
from tests.page.abuse.shapes import ALL, GET, METHODS, TARGETS
from tests.page.abuse.victim import victim

LAST = GET + b"Connection: close\r\n\r\n"
# A request that cannot be parsed has no known end: with these the connection is closed.
REFUSED = (400, 413, 414, 417, 431, 505)


@pytest.fixture(scope="module")
def served():
    """Serve one node to all shapes."""
    with victim(scenario="a10-mps") as found:
        yield found


@pytest.mark.parametrize("name", ALL)
def test_a_request_of_any_shape_gets_one_answer(served, name):
    """A request that is read in two ways would get two. Without a known end it also closes the connection."""
    sent, due = ALL[name]
    if due in REFUSED or name == "CONNECT":
        assert statuses(answer_to(served.port, sent)) == [due]
    else:
        # Also if it offers an upgrade, the connection goes on in HTTP/1.1.
        assert statuses(answer_to(served.port, sent, LAST)) == [due, 200]


@pytest.mark.parametrize("name", [name for name, (_, due) in ALL.items() if due in REFUSED])
def test_nothing_is_answered_behind_a_refused_request(served, name):
    """No request is hidden behind it, whose answer the next client of a proxy would get."""
    sent, due = ALL[name]
    (status,) = statuses(answer_to(served.port, sent + LAST))
    assert status in (due, 400)


def test_nothing_of_a_request_is_repeated(served):
    """Neither TRACE nor any refusal repeats what it was sent, and no answer has a header of a client's."""
    mark = b"Wxyzzy"
    for sent, _ in (*METHODS.values(), *TARGETS.values()):
        marked = sent.replace(b"Host: x\r\n", b"Host: x\r\nCookie: " + mark + b"\r\n").replace(b"etc", mark)
        answer = answer_to(served.port, marked, LAST)
        assert mark not in answer
        assert b"Set-Cookie" not in answer


def test_no_shape_is_logged(served):
    """All of them leave the log and the process as they were: one line would be a flood."""
    served.scrape()
    before, lines = served.vitals(), len(served.lines)
    for sent, _ in ALL.values():
        with connect(served.port) as client:
            client.setblocking(False)
            client.send(sent)
    served.scrape()
    assert served.lines[lines:] == []
    served.settle(before)
