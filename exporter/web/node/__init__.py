"""The pages and the API of a node, from its last snapshot; no request reads the node or changes anything."""
