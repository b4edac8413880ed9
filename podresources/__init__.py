"""gRPC clients of the kubelet's pod-resources and Pods APIs.

``client.py`` and ``pods.py`` call one API each, ``messages.py`` decodes the responses, ``channel.py`` keeps
the connection and has its calls and errors.
"""
