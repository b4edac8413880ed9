"""AMD GPUs of a fake node: the files of sysfs and KFD."""
