"""A whole GPU node in software: only the driver, the kubelet's socket and the node's files are not real.

A scenario (``scenario``; the JSON files are in ``scenarios``) describes the node. ``present`` returns it at a
time, with the faults that are active then; ``machine`` turns the load of its processes into memory, power and
counters. These show it: ``nvml`` (driver), ``fake_kubelet``, ``tree`` and ``amd_tree`` (/proc and sysfs), and
``sharing_files``. ``node`` runs all of them by one clock.

* A new answer of the driver is a row of the table ``FUNCTIONS`` of its module in ``nvml``, or of ``FIELDS``.
* A new file of a sharing system is a function and its row in ``WRITERS`` of ``sharing_files``, and a second
  one in ``KEEPERS`` if recordings have it.
* A new field of a scenario is a field of its record in ``scenario``. Shorthands are expanded in ``expand``,
  impossible values refused in ``catalog`` and, of NVIDIA GPUs, in ``check_gpus``.
"""
