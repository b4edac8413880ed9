"""HTTP: the listener, connections and their limits, responses and static files."""
