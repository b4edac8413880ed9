"""A small cluster in software: nodes that are scenarios, pods that wait, and the Kubernetes API with both.

``cluster.json`` has what a scenario of a node does not: labels and taints of the nodes, and the pods that
wait, with specs as in Kubernetes. ``cluster_objects`` makes the objects of the API of both, as they are at a
time, so that they agree with what the kubelets of the nodes report. ``api`` serves them, and ``python -m
exporter.demo.cluster`` runs it; ``make stack SCENARIO=cluster`` runs all of it.
"""
