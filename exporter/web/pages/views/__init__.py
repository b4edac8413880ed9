"""The content of the pages, made from a snapshot by pure functions: records that templates only render."""
