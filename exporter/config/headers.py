"""Headers of HTTP requests that users add, as NAME: VALUE. Values may be secret: no error or repr has one.

Syntax: https://www.rfc-editor.org/rfc/rfc9110#section-5
"""

import re
from dataclasses import dataclass, field

EXAMPLE = "a header such as X-Scope-OrgID: team-a"
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Those that frame the body of a request, or that the client sets to read the response.
_RESERVED = frozenset(
    (
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type"),
        *("expect", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "user-agent"),
    )
)


@dataclass(frozen=True, slots=True)
class Header:
    """A header."""

    name: str
    value: str = field(repr=False)


def parse_header(text: str) -> Header:
    """Return the header of a text; raises ValueError with the reason, which does not have the value."""
    name, colon, value = text.partition(":")
    value = value.strip(" \t")
    if not colon:
        raise ValueError("it has no colon after the name")
    if not _NAME.fullmatch(name):
        raise ValueError("a name has one character or more, of letters, digits, - and _, and no spaces")
    if name.lower() in _RESERVED:
        raise ValueError(f"{name} is set by this program: leave it out")
    if not value:
        raise ValueError(f"{name} has no value")
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"the value of {name} has a line break, or a character outside of printable ASCII")
    return Header(name, value)
