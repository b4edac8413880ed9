"""HTTP: the listener, connections and their limits, responses, errors and static files."""
