"""What a client gets for the headers that it sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.exposition import Format, accepts_gzip, choose_format

TEXT, OPENMETRICS, OLD = Format.TEXT, Format.OPENMETRICS, Format.OPENMETRICS_0_0_1
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_2 = "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "fmt"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain", TEXT),
        (BROWSER, TEXT),
        (PROMETHEUS_3, OPENMETRICS),
        (PROMETHEUS_2, OLD),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=1.0.0", OPENMETRICS),
        ('Application/OpenMetrics-Text; Version="1.0.0"; Q=0.5', OPENMETRICS),
        ("application/openmetrics-text; version=0.0.1", OLD),
        ("application/openmetrics-text; version=2.0.0", TEXT),
        (
            "application/openmetrics-text; version=2.0.0, application/openmetrics-text; version=1.0.0",
            OPENMETRICS,
        ),
        ("application/openmetrics-text; version=0.0.1; q=0.9, application/openmetrics-text; q=0.8", OLD),
        ("application/openmetrics-text;q=0.5,text/plain;q=0.9", TEXT),
        ("text/plain;q=0.5,application/openmetrics-text;q=0.9", OPENMETRICS),
        ("application/openmetrics-text,text/plain", TEXT),
        ("application/openmetrics-text;q=0.5,text/*;q=0.9", TEXT),
        ("application/openmetrics-text;q=0.9,text/*;q=0.5", OPENMETRICS),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=0,*/*", TEXT),
        ("application/openmetrics-text;q=0.3,text/plain;q=0,*/*;q=0.9", OPENMETRICS),
        ("application/openmetrics-text;q=abc", TEXT),
        ("application/openmetrics-text;q=nan", TEXT),
        ("application/openmetrics-text;q=7", TEXT),
        ("application/openmetrics-text;q=-1", TEXT),
        ("application/*", TEXT),
        (";;;,,,=;q", TEXT),
    ],
)
def test_the_format_is_what_the_client_prefers(accept, fmt) -> None:
    """OpenMetrics is for clients that prefer it to any plain text; all others get text 0.0.4."""
    assert fmt is choose_format(accept)


def test_each_format_has_the_content_type_of_prometheus() -> None:
    assert TEXT.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert OPENMETRICS.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert OLD.content_type == "application/openmetrics-text; version=0.0.1; charset=utf-8"


@pytest.mark.parametrize(
    ("accept_encoding", "accepted"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("gzip, deflate, br", True),
        ("deflate;q=1, gzip;q=0.1", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, *", False),
        ("*", True),
        ("*;q=0", False),
        ("identity", False),
        ("br", False),
        ("gzip;q=nonsense", False),
        ("gzipped", False),
    ],
)
def test_gzip_is_sent_only_to_clients_that_accept_it(accept_encoding, accepted) -> None:
    """An encoding is accepted unless its quality is 0; no header means no encoding."""
    assert accepted is accepts_gzip(accept_encoding)


@given(header=st.text(max_size=200) | st.text("*/,;=q01.tex plain", max_size=60))
def test_no_header_is_an_error(header) -> None:
    assert choose_format(header) in Format
    assert accepts_gzip(header) in {True, False}
