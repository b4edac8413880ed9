"""What the exporter costs: measured by ``python -m benchmarks``, told in docs/performance.md."""
