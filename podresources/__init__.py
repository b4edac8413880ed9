"""gRPC clients of the kubelet's pod-resources and Pods APIs."""
