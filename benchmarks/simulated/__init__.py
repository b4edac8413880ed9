"""What benchmarks measure against where the real thing is too large for one machine."""
