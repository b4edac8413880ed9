"""The cluster, from Prometheus: every node, what is held and used there, and its holders."""
