"""HTTP and HTML: the kit that every server of ours is made with, and the pages of a node."""
