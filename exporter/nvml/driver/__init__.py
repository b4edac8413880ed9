"""The driver's library: opening it, calling it, and what its errors mean."""
