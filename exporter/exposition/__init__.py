"""The page of metrics: from a snapshot to bytes, once for each form that a client accepts."""
