/* Answers of whole GPUs, also in MIG mode. */
#include "nvml.h"

typedef struct { u32 version; int sensorType, temperature; } Temperature;
typedef struct { u32 version; int celsius; } Margin;
typedef struct { char busIdLegacy[16]; u32 domain, bus, device, id, subsystem; char busId[32]; } Pci;
typedef struct { u32 version, domain, bus, device, id, subsystem, class, subclass; char busId[32]; } PciExt;
typedef struct {
    u32 id, scope;
    long long timestamp, latency;
    int type, code;
    union { double d; u32 ui; u64 ull; int si; } value;
} Field;
_Static_assert(sizeof(Pci) == 68 && sizeof(PciExt) == 64 && sizeof(Field) == 40, "NVML's layout");
enum { UINT = 1, ULL = 3, INT = 5 };

/* A number; one that depends on an argument; two; a text; zeros, which the caller has put there; nothing. */
#define NUMBER(name, kind, number) \
    int nvml##name(Device *device, kind *value) { \
        ASK_GPU(device); \
        *value = (number); \
        return SUCCESS; \
    }
#define PICKED(name, most, number) \
    int nvml##name(Device *device, int pick, u32 *value) { \
        ASK_GPU(device); \
        if (pick < 0 || pick > (most)) return INVALID_ARGUMENT; \
        *value = (number); \
        return SUCCESS; \
    }
#define PAIR(name, first, second) \
    int nvml##name(Device *device, u32 *one, u32 *two) { \
        ASK_GPU(device); \
        *one = (first), *two = (second); \
        return SUCCESS; \
    }
#define WORDS(name, value) \
    int nvml##name(Device *device, char *buffer, u32 length) { \
        ASK_GPU(device); \
        return text(buffer, length, value); \
    }
#define ZEROS(name) int nvml##name(Device *device) { ASK_GPU(device); return SUCCESS; }
#define LACKING(name) int nvml##name(Device *device) { (void)device; called(); return NOT_SUPPORTED; }

NUMBER(DeviceGetPowerUsage, u32, 150000)
NUMBER(DeviceGetTotalEnergyConsumption, u64, (u64)time(NULL) * 150000)
NUMBER(DeviceGetPowerManagementLimit, u32, 700000)
NUMBER(DeviceGetPowerManagementDefaultLimit, u32, 700000)
NUMBER(DeviceGetEnforcedPowerLimit, u32, 700000)
NUMBER(DeviceGetCurrPcieLinkGeneration, u32, 5)
NUMBER(DeviceGetMaxPcieLinkGeneration, u32, 5)
NUMBER(DeviceGetGpuMaxPcieLinkGeneration, u32, 5)
NUMBER(DeviceGetCurrPcieLinkWidth, u32, 16)
NUMBER(DeviceGetMaxPcieLinkWidth, u32, 16)
NUMBER(DeviceGetPcieReplayCounter, u32, 3)
NUMBER(DeviceGetPerformanceState, u32, 0)
NUMBER(DeviceGetPersistenceMode, u32, 1)
NUMBER(DeviceGetAccountingMode, u32, 0)
NUMBER(DeviceGetAccountingBufferSize, u32, 4000)
NUMBER(DeviceGetDisplayActive, u32, 0)
NUMBER(DeviceGetDisplayMode, u32, 0)
NUMBER(DeviceGetComputeMode, u32, 0)
NUMBER(DeviceGetVirtualizationMode, u32, 0)
NUMBER(DeviceGetArchitecture, u32, 9)
NUMBER(DeviceGetMinorNumber, u32, (u32)device->gpu)
NUMBER(DeviceGetIndex, u32, (u32)device->gpu)
NUMBER(DeviceGetCurrentClocksEventReasons, u64, 4)
NUMBER(DeviceGetSupportedClocksEventReasons, u64, 0x1FF)
NUMBER(DeviceGetSupportedEventTypes, u64, XID)
NUMBER(DeviceGetMaxMigDeviceCount, u32, SLICES)
PICKED(DeviceGetClockInfo, 3, 1000 + (u32)pick)
PICKED(DeviceGetMaxClockInfo, 3, 1980 + (u32)pick)
PICKED(DeviceGetApplicationsClock, 3, 1100 + (u32)pick)
PICKED(DeviceGetTemperature, 0, 58)
PICKED(DeviceGetTemperatureThreshold, 3, 85 + (u32)pick)
PICKED(DeviceGetPcieThroughput, 1, 4000 + (u32)pick)
PICKED(DeviceGetNvLinkState, LINKS - 1, 1)
PICKED(DeviceGetNvLinkRemoteDeviceType, LINKS - 1, 2)
PAIR(DeviceGetEncoderUtilization, 0, 167000)
PAIR(DeviceGetDecoderUtilization, 0, 167000)
PAIR(DeviceGetJpgUtilization, 0, 167000)
PAIR(DeviceGetOfaUtilization, 0, 167000)
PAIR(DeviceGetEccMode, 1, 1)
PAIR(DeviceGetPowerManagementLimitConstraints, 200000, 700000)
PAIR(DeviceGetCudaComputeCapability, 9, 0)
PAIR(DeviceGetGspFirmwareMode, 1, 1)
PAIR(DeviceGetMigMode, (u32)control->mig, (u32)control->mig)
WORDS(DeviceGetSerial, "1320000000000")
WORDS(DeviceGetVbiosVersion, "96.00.74.00.01")
WORDS(DeviceGetBoardPartNumber, "692-2G520-0200-000")
WORDS(DeviceGetInforomImageVersion, "G520.0200.00.05")
WORDS(DeviceGetGspFirmwareVersion, "550.90.07")
ZEROS(DeviceGetAddressingMode)
ZEROS(DeviceGetRemappedRows)
ZEROS(DeviceGetSramEccErrorStatus)
ZEROS(DeviceGetTotalEccErrors)
ZEROS(DeviceValidateInforom)
LACKING(DeviceGetC2cModeInfoV)
LACKING(DeviceGetConfComputeProtectedMemoryUsage)
LACKING(DeviceGetDriverModel_v2)
LACKING(DeviceGetFanSpeed)
LACKING(DeviceGetGpuFabricInfoV)
LACKING(DeviceGetGpuOperationMode)
LACKING(DeviceGetNvLinkRemotePciInfo_v2)
LACKING(DeviceGetRetiredPages)
LACKING(DeviceGetRetiredPagesPendingStatus)

int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) {
    ASK_GPU(device);
    *pci = (Pci){.bus = 7 + (u32)device->gpu, .id = 0x233010DE, .subsystem = 0x16C110DE};
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

int nvmlDeviceGetPciInfoExt(Device *device, PciExt *pci) {
    ASK_GPU(device);
    *pci = (PciExt){pci->version, 0, 7 + (u32)device->gpu, 0, 0x233010DE, 0x16C110DE, 3, 2, ""};
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

int nvmlDeviceGetInforomVersion(Device *device, int object, char *version, u32 length) {
    (void)object;
    ASK_GPU(device);
    return text(version, length, "2.1");
}

int nvmlDeviceGetMarginTemperature(Device *device, Margin *answer) {
    ASK_GPU(device);
    answer->celsius = 29;
    return SUCCESS;
}

int nvmlDeviceGetTemperatureV(Device *device, Temperature *answer) {
    ASK_GPU(device);
    answer->temperature = 58;
    return SUCCESS;
}

int nvmlDeviceGetMemoryErrorCounter(Device *device, int severity, int scope, int location, u64 *count) {
    (void)severity, (void)scope;
    ASK_GPU(device);
    *count = 0;
    return location == 2 || location == 7 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetEncoderStats(Device *device, u32 *sessions, u32 *fps, u32 *latency) {
    ASK_GPU(device);
    *sessions = *fps = *latency = 0;
    return SUCCESS;
}

int nvmlDeviceGetRowRemapperHistogram(Device *device, u32 *banks) {
    ASK_GPU(device);
    memcpy(banks, (u32[]){640, 0, 0, 0, 0}, 5 * sizeof *banks);
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(Device *one, Device *other, int *level) {
    (void)other;
    ASK_GPU(one);
    *level = 40;
    return SUCCESS;
}

static int mask(Device *device, u32 words, unsigned long *bits) {
    ASK_GPU(device);
    memset(bits, 0, words * sizeof *bits);
    bits[0] = 1UL << (device->gpu / 8);
    return SUCCESS;
}

int nvmlDeviceGetCpuAffinity(Device *device, u32 words, unsigned long *bits) { return mask(device, words, bits); }

int nvmlDeviceGetMemoryAffinity(Device *device, u32 words, unsigned long *bits, u32 scope) {
    (void)scope;
    return mask(device, words, bits);
}

static int answer(Field *field) {
    /* Only the power of the GPU as a whole is reported, not that of its memory. */
    if (field->scope != 0 && (field->id == 185 || field->id == 186)) return NOT_SUPPORTED;
    field->type = ULL;
    field->value.ull = 0;
    switch (field->id) {
    case 82: field->type = UINT, field->value.ui = 61; return SUCCESS;
    case 91: field->type = UINT, field->value.ui = LINKS; return SUCCESS;
    case 165: field->type = UINT, field->value.ui = 1; return SUCCESS;
    case 185: case 186: field->type = UINT, field->value.ui = 150000; return SUCCESS;
    case 193: case 194: case 195: case 196: field->type = INT, field->value.si = -5; return SUCCESS;
    case 90: case 138: case 139: field->value.ull = (u64)time(NULL) * 1000; return SUCCESS;
    case 3: case 4: case 5: case 6: case 29: case 30: case 31: case 142: case 143: case 144: case 145:
    case 38: case 45: case 52: case 59: case 74: case 75: case 76: case 77: case 78: case 79: case 80: case 81:
    case 197: case 198: return SUCCESS;
    default: return NOT_SUPPORTED;
    }
}

int nvmlDeviceGetFieldValues(Device *device, int count, Field *fields) {
    struct timespec now;
    ASK_GPU(device);
    clock_gettime(CLOCK_REALTIME, &now);
    __atomic_add_fetch(&control->fields, (u64)count, __ATOMIC_RELAXED);
    pass((u64)count);
    for (int place = 0; place < count; place++) {
        fields[place].code = answer(&fields[place]);
        fields[place].timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
        fields[place].latency = control->delay;
    }
    return SUCCESS;
}
