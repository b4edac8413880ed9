"""``python -m exporter`` is ``gpuslice-exporter``."""

import sys

from exporter.cli import main

sys.exit(main())
