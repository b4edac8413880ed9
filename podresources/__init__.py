"""gRPC clients of the kubelet's pod-resources and Pods APIs.

``client.py`` and ``pods.py`` call one API each, ``messages.py`` decodes the responses, ``dialer.py`` keeps
the connection, ``channel.py`` has its calls and errors.
"""
