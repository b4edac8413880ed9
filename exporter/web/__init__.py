"""HTTP and HTML: the kit that all servers are made with, the pages of a node, and the look of all pages."""
