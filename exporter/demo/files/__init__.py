"""The files of a fake node: processes, control groups, and what sharing systems keep."""
