"""The page of the cluster: totals and tables, made of what a Prometheus told."""
