"""What made a page, so that one from before an upgrade is noticed."""

from exporter import __version__
from exporter.web.serving.assets import bundle


def version() -> str:
    """Name the version of the program, with the hash of its static files."""
    return f"{__version__} {bundle().hash}"
