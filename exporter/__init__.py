"""Who holds which slice of which GPU, what it is entitled to, and what it really uses."""

__version__ = "0.1.0"
