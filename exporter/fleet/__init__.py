"""The cluster as a Prometheus knows it: every node, what is held and used there, and by whom."""
