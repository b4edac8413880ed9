"""Collects the root file system of the image in the stage that builds it: what runs, and nothing else."""
