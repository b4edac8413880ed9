"""The picture of a GPU: what is drawn where, for parts of it and for pools."""
