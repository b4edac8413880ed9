"""Why a pod waits: the filters of the default scheduler on the objects of a cluster.

Pure functions of plain records, made by ``exporter.kubernetes``. ``objects`` are the records; ``filters`` and
``devices`` decide node by node as the scheduler does, and say so if they cannot; ``verdict`` joins them.
"""
