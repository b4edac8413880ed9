"""Functions of the driver whose errors have a meaning of their own."""

SLOT = "nvmlDeviceGetMigDeviceHandleByIndex"
# Their argument picks one of many things; some drivers call an argument invalid that this board has not.
PICKING = frozenset(
    {
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetApplicationsClock",
        "nvmlDeviceGetTemperatureThreshold",
        "nvmlDeviceGetMemoryErrorCounter",
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemoteDeviceType",
        "nvmlDeviceGetNvLinkRemotePciInfo",
    }
)
# What finds devices is asked at every sweep: the answer for one place says nothing of the next.
FINDING = frozenset(
    {
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMaxMigDeviceCount",
        SLOT,
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
    }
)
