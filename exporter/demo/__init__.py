"""A whole GPU node in software: only the driver, the kubelet's socket and the node's files are not real."""
