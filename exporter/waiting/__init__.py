"""Why a pod waits: the filters of the scheduler on the objects of a cluster, and what would help.

Pure functions of plain records. ``objects`` are the records; ``filters`` decides node by node as the default
scheduler does, and says so if it cannot; ``ways`` finds what is nearest to help.
"""
