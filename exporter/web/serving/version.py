"""What made a page, so that one from before an upgrade is noticed."""

from exporter import __version__
from exporter.web.serving.assets import bundle

VERSION = f"{__version__} {bundle().hash}"
"""The version of the program and the hash of its static files."""
