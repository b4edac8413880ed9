"""The files that sharing systems keep on the node: what they look like, and how they are read."""
