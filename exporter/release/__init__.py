"""When the driver is to be given up for a while: a file, a signal or a label of the node asks for it."""

from exporter.release.release import Release

__all__ = ["Release"]
