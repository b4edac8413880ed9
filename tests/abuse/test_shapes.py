"""Requests of every shape: one answer or none to each, no word of it told back, and not a line in the log."""

import pytest

from tests.abuse.clients import connect, tell
from tests.abuse.shapes import ALL, CLOSED, GET, METHODS, SMUGGLED, TARGETS, VERSIONS
from tests.abuse.victim import victim


@pytest.fixture(scope="module")
def served():
    """Serve one node to all shapes."""
    with victim(scenario="a10-mps") as found:
        yield found


@pytest.mark.parametrize("name", ALL)
def test_a_request_of_any_shape_gets_one_answer(served, name):
    """It is the one that is due: a request that is read in two ways would get two, or none."""
    sent, due = ALL[name]
    # A request that cannot be parsed has no known end, so the connection must be closed.
    ends = due in (CLOSED, 400, 413, 417, 505)
    told = tell(served.port, sent, quiet=10 if ends else 0.1)
    # What is too large is refused by its first part, if that arrives alone.
    assert told.statuses in ([[], [400]] if due == CLOSED else [[due]])
    assert not (ends and told.is_open)


@pytest.mark.parametrize("name", [*SMUGGLED, "HTTP/0.9", "HTTP/2.0 in the words of HTTP/1"])
def test_nothing_is_answered_behind_what_was_not_read(served, name):
    """A request hidden behind one that is refused is not answered: no proxy's next client gets its answer."""
    sent, due = ALL[name]
    (status,) = tell(served.port, sent + GET + b"\r\n").statuses
    assert status in (due, 400)


@pytest.mark.parametrize("name", ["an upgrade to HTTP/2", "an upgrade to a websocket", "an expectation"])
def test_what_is_not_done_here_does_not_end_the_connection(served, name):
    """Who offers to speak something else, and is answered in HTTP/1.1, goes on in that."""
    with connect(served.port) as client:
        for sent in (VERSIONS[name][0], GET + b"\r\n"):
            client.sendall(sent)
            said = b""
            while not said.endswith(b"\r\n\r\nok\n"):
                said += client.recv(65536)
            assert b"HTTP/1.1 101" not in said


@pytest.mark.slow
def test_nothing_of_a_request_is_told_back(served):
    """Neither TRACE nor any refusal repeats what it was sent, and no answer has a header of a client's."""
    mark = b"Wxyzzy"
    for sent, _ in (*METHODS.values(), *TARGETS.values()):
        marked = sent.replace(b"Host: x\r\n", b"Host: x\r\nCookie: " + mark + b"\r\n").replace(b"etc", mark)
        said = tell(served.port, marked, quiet=0.05).said
        assert mark not in said
        assert b"Set-Cookie" not in said


@pytest.mark.slow
def test_no_shape_is_worth_a_line(served):
    """All of them leave the log as it was, and the process as it was: one line would be a flood."""
    served.scrape()
    before, told = served.vitals(), len(served.lines)
    for sent, _ in ALL.values():
        connect_and_leave(served.port, sent)
    served.scrape()
    assert served.lines[told:] == []
    served.settle(before)


def connect_and_leave(port: int, sent: bytes) -> None:
    """Send what the socket takes, and go without a look at the answer."""
    with connect(port) as client:
        client.setblocking(False)
        client.send(sent)
