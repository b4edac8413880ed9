"""The picture of a GPU: the layout of its MIG devices, partitions and pools."""
