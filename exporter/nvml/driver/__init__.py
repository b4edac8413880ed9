"""The driver's library: opening it, calling it, and the meaning of its errors."""
