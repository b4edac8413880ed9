"""What the pages show, made of a snapshot by pure functions: records that templates only write."""
