"""A page without a reader is freed at once."""

import gc
import weakref

from exporter.exposition import Exposition, Format
from exporter.model import Snapshot


def test_a_page_goes_without_a_search_for_garbage(full: Snapshot) -> None:
    """A page is megabytes, and there is a new one every few seconds: none of them is part of a cycle."""
    exposition = Exposition()
    page = exposition.page(full)
    for fmt in Format:
        page.body(fmt)
        page.gzipped(fmt)
    gone = weakref.ref(page)
    gc.disable()
    try:
        del page
        assert gone() is None
    finally:
        gc.enable()
