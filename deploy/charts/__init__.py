"""Generated parts of the Helm chart, written by ``python -m deploy.charts``."""
