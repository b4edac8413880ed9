"""The page of the cluster, which the hub serves."""
