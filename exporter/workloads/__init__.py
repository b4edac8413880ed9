"""Processes of the node: from a pid to its pod and container, and from a pod's uid to its name.

``processes.py`` reads a pid's cgroup, ``cgroups.py`` parses it, ``places.py`` corrects the place by the
pods' container ids and by pid lists of sharing systems. ``pid_namespace.py`` proves that pids mean the same
to the driver.
"""
