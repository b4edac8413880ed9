"""A scenario: everything about a node, in one JSON document."""
