"""Why a pod waits, and what would help: the default scheduler's filters on the objects of a cluster.

Pure functions of plain records, made by ``exporter.kubernetes``. ``objects`` are the records; ``filters`` and
``devices`` decide node by node as the scheduler does, and say so if they cannot. ``guards`` are pods that
keep others out. ``alike`` asks the filters once for all nodes that are alike; ``verdict`` joins what they
find. ``answer`` is all that is said of a pod. ``ways`` are changes that would help it, by the objects and
``gpu_facts``, each tried by ``trial``.
"""
