"""gRPC clients of the kubelet's pod-resources and Pods APIs.

``client.py`` and ``pods.py`` call one API each, ``fold.py`` decodes the responses, ``offers.py`` keeps
allocatable devices over gaps, ``channel.py`` has the connection and its errors.
"""
