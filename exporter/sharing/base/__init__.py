"""What all sharing systems have in common."""
