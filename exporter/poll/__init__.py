"""The poll: each source is read under a deadline, and the parts become one snapshot."""
