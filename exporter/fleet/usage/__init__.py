"""Who held and used how many GPU-hours in a month, and where the rest went: from the records of Prometheus.

``period``: the time, in full hours. ``servers``: replicas and shards. ``queries``: PromQL. ``reading``: the
answers as ``model``. ``text`` and ``documents``: the formats.
"""
