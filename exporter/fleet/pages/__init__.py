"""The page of the cluster and its API, as the hub serves them."""
