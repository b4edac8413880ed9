"""What the exporter costs: ``python -m benchmarks`` measures it and writes docs/performance.md."""
