"""The metrics page: renders a snapshot to bytes, once for each form that a client accepts."""
