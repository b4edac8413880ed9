"""Settings: one table of options, read from flags, the environment and a YAML file."""
