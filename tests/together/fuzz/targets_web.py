"""What browsers, scrapers, Prometheus and a dcgm-exporter send: URLs, filters, headers, pages and answers."""

import gzip
from functools import cache
from typing import Any

from aiohttp import web
from yarl import URL

from exporter.dcgm_scrape import DcgmError, DcgmReading, with_dcgm
from exporter.dcgm_scrape.client import _text
from exporter.dcgm_scrape.page import read_page
from exporter.exposition.negotiation import accepts_gzip, choose_format, media_quality
from exporter.fleet.prometheus import PrometheusError, Response, Sample, read_vector
from exporter.metrics import IDENTITY_LABELS
from exporter.model import (
    ContainerRef,
    ContainerRow,
    DeviceKey,
    GpuIdentity,
    GpuReading,
    GpuRow,
    NodeRow,
    Snapshot,
)
from exporter.web.kit.auth.gate import _credentials
from exporter.web.node.pages.holder_cells import HolderLine, line_of
from exporter.web.node.pages.holder_filters import choices, chosen, words_of
from exporter.web.node.pages.scene import Scene
from exporter.web.node.parameters import LONGEST, BadValueError, asked_query, read_ask
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.seeds import encoded, parts_of
from tests.together.fuzz.target import Target

GPU = "GPU-1898731f-20a7-571c-aaa8-66b961b48f75"
READINGS = (GpuReading(identity=GpuIdentity(uuid=GPU, index=0), mig=()),)
# Filters of 200 characters name no more than this.
MOST_WORDS = LONGEST


@cache
def _lines() -> list[HolderLine]:
    """Return two rows of a table, one of a GPU that no driver lists."""
    gpu = GpuRow(identity=READINGS[0].identity, reading=READINGS[0])
    rows = tuple(
        ContainerRow(
            holder=ContainerRef("ml", name, "main"),
            device=DeviceKey(uuid),
            resource="nvidia.com/gpu",
            slices=1,
        )
        for name, uuid in (("anna", GPU), ("old 0", "GPU-gone"))
    )
    scene = Scene(
        Snapshot(timestamp=0.0, sequence=1, node=NodeRow(name="n"), gpus=(gpu,), containers=rows),
        now=1.0,
        root="",
    )
    return [line_of(scene, row) for row in rows]


def _query(content: bytes) -> Any:
    """Read a query, write it as a link, and ask a table for it."""
    query = asked_query(URL.build(path="/", query_string=content.decode("utf-8", "replace")).query)
    words = words_of(query.text)
    if len(words) > MOST_WORDS:
        raise BrokenPromiseError(f"a filter of {len(words)} words")
    shown = chosen(_lines(), query)
    offered = [
        (choice.name, [option.value for option in choice.options]) for choice in choices(_lines(), query)
    ]
    again = asked_query(URL(f"/{query.url}").query)
    # A link has no more columns than are read of one parameter; there are not as many.
    if query.url != again.url and len(",".join(query.columns)) <= LONGEST:
        raise BrokenPromiseError(f"the link {query.url!r} asks for {again.url!r}")
    return query, words, len(shown), offered


def _ask(content: bytes) -> Any:
    return read_ask(URL.build(path="/", query_string=content.decode("utf-8", "replace")).query)


def _headers(content: bytes) -> Any:
    accept, encoding, login = parts_of(content, 3)
    # So aiohttp hands out headers that are no UTF-8.
    told, wanted, said = (part.decode("utf-8", "surrogateescape") for part in (accept, encoding, login))
    quality = media_quality(told, "text/html")
    if not 0 <= quality <= 1:
        raise BrokenPromiseError(f"a quality of {quality}")
    return choose_format(told).content_type, quality, accepts_gzip(wanted), _credentials(said)


def _dcgm(content: bytes) -> Any:
    """Read a page, compressed where it begins so, and take it for what the driver did not say."""
    reading = read_page(_text(content, content[:2] == b"\x1f\x8b"), 100.0)
    return reading, with_dcgm(READINGS, reading)


def _check_dcgm(told: tuple[DcgmReading, Any]) -> None:
    for profile in told[0].profiles.values():
        for share in (*profile.active.values(), *profile.engines.values()):
            if not 0 <= share <= 1:
                raise BrokenPromiseError(f"a share of {share}")
        for amount in (*profile.rates.values(), *profile.cycles.values(), *profile.bytes_total.values()):
            if not 0 <= amount < 1 << 63:
                raise BrokenPromiseError(f"a rate or count of {amount}")


def _prometheus(content: bytes) -> Any:
    """Read an answer as that of an instant query, or of one that redirects."""
    kind, place, body = parts_of(content, 3)
    answer = Response(200 if kind else 302, body, place.decode("utf-8", "surrogateescape"))
    return read_vector(answer)


def _check_prometheus(told: list[Sample]) -> None:
    """Read the labels as the tables do that an answer goes on into."""
    for each in told:
        each.texts(*IDENTITY_LABELS["container"])


def _page() -> list[bytes]:
    labels = f'{{gpu="0",UUID="{GPU}",device="nvidia0",GPU_I_ID="7"}}'
    text = (
        "# HELP DCGM_FI_PROF_SM_ACTIVE Ratio.\n# TYPE DCGM_FI_PROF_SM_ACTIVE gauge\n"
        f"DCGM_FI_PROF_SM_ACTIVE{labels} 0.25\n"
        f"DCGM_FI_PROF_NVDEC0_ACTIVE{labels} 1.000001 1700000000000\n"
        f"dcgm_fi_prof_pcie_tx_bytes{labels} 123456789\n"
        f"DCGM_FI_PROF_SM_CYCLES_ELAPSED_TOTAL{labels} 99\n"
    )
    return [text.encode(), text.replace(',GPU_I_ID="7"', "").encode(), gzip.compress(text.encode(), mtime=0)]


TARGETS = (
    Target(
        name="page-query",
        covers=("exporter.web.node.parameters", "exporter.web.node.pages.holder_filters"),
        seeds=encoded(
            "q=ns%3Aml+-anna+%22train+0%22&namespace=ml&gpu=0&state=idle&sort=-memory&columns=gpu,age&range=1h",
            "q=gpu:gpu-1898+colour:red+-&columns=state&columns=gpu&state=unheard",
        ),
        decode=_query,
        refuses=(web.HTTPBadRequest,),
        words=(b"%22", b"%ed%a0%80", b"ns:", b"gpu:", b"&columns="),
    ),
    Target(
        name="page-range",
        covers=("exporter.web.node.parameters",),
        seeds=encoded(
            "range=1h&end=1767225600&points=60&level=gpu&uuid=GPU-1&namespace=a&pod=b&container=c", "range=7d"
        ),
        decode=_ask,
        refuses=(BadValueError,),
        words=(b"nan", b"inf", b"1e999", b"%D9%A3", b"-1"),
    ),
    Target(
        name="request-headers",
        covers=("exporter.exposition.negotiation", "exporter.web.kit.auth.gate"),
        seeds=encoded(
            "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.5,*/*;q=0.1"
            "\x1egzip;q=1, *;q=0\x1eBasic YTpi"
        ),
        decode=_headers,
        words=(b"q=nan", b"q=1e-400", b";q=", b'"', b"Basic "),
    ),
    Target(
        name="dcgm-page",
        covers=(
            "exporter.dcgm_scrape.page",
            "exporter.dcgm_scrape.client",
            "exporter.dcgm_scrape.fields",
        ),
        seeds=_page,
        decode=_dcgm,
        refuses=(DcgmError,),
        check=_check_dcgm,
        words=(b"NaN", b"+Inf", b"9" * 40, b"1e400", b'\\"', b"140737488355328", b" # {} 1"),
    ),
    Target(
        name="prometheus-answer",
        covers=("exporter.fleet.prometheus",),
        seeds=encoded(
            'v\x1e\x1e{"status":"success","data":{"resultType":"vector","result":[{"metric":{"uuid":"GPU-1"},'
            '"value":[1700000000.1,"0.5"]}]}}',
            '\x1ehttp://a:b@[::1]/x\x1e{"status":"error","error":"bad"}',
        ),
        decode=_prometheus,
        refuses=(PrometheusError,),
        check=_check_prometheus,
        words=(b"null", b"1" + b"0" * 400, b"1e400", b"[]", b"{}", b"\\ud800", b'"metric":'),
    ),
)
