/*
 * A small libnvidia-ml, so that the binding's structs meet those of a C compiler and its calls a real library.
 *
 * GPU 0 is whole; GPU 1 is in MIG mode, with MIG devices in its slots 0 and 4. Every figure is another one,
 * so that a field read at the wrong offset shows. Layouts and sizes are those of NVML's documentation.
 */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    ARGUMENT_VERSION_MISMATCH = 25,
};
enum { TYPE_DOUBLE, TYPE_UINT, TYPE_ULONG, TYPE_ULL, TYPE_SLL, TYPE_INT, TYPE_USHORT };
enum { ALL_LINKS = ~0, LINKS = 2 };
#define GIB (1ULL << 30)
#define VERSION(type, number) ((unsigned)(sizeof(type) | (number) << 24))

typedef unsigned int u32;
typedef unsigned long long u64;

typedef struct { u32 version; u64 total, reserved, free, used; } Memory_v2;
typedef struct { u32 gpu, memory; } Utilization;
typedef struct { u32 version; int sensorType; int temperature; } Temperature_v1;
typedef struct { u32 pid; u64 usedGpuMemory; u32 gpuInstanceId, computeInstanceId; } ProcessInfo;
typedef struct { u32 pid; u64 timeStamp; u32 smUtil, memUtil, encUtil, decUtil; } UtilizationSample;
typedef struct { u64 bar1Total, bar1Free, bar1Used; } Bar1Memory;
typedef struct { u32 version; int marginTemperature; } MarginTemperature_v1;
typedef struct { u32 max, high, partial, low, none; } RowRemapperHistogram;
typedef struct {
    char busIdLegacy[16];
    u32 domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} PciInfo;
typedef struct {
    u32 multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    u32 sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    u64 memorySizeMB;
} Attributes;
typedef struct {
    u32 fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType, nvmlReturn;
    union { double d; u32 ui; unsigned long ul; u64 ull; long long sll; int si; unsigned short us; } value;
} FieldValue;

_Static_assert(sizeof(Memory_v2) == 40, "memory, version 2");
_Static_assert(sizeof(Temperature_v1) == 12, "temperature");
_Static_assert(sizeof(ProcessInfo) == 24, "process info, version 2 and 3");
_Static_assert(sizeof(UtilizationSample) == 32, "process utilization");
_Static_assert(sizeof(PciInfo) == 68, "PCI info");
_Static_assert(sizeof(Attributes) == 40, "attributes");
_Static_assert(sizeof(FieldValue) == 40, "field value");
_Static_assert(sizeof(Bar1Memory) == 24, "BAR1");
_Static_assert(sizeof(MarginTemperature_v1) == 8, "margin temperature");
_Static_assert(sizeof(RowRemapperHistogram) == 20, "row remapper histogram");

typedef struct {
    u32 version;
    unsigned char clusterUuid[16];
    int status;
    u32 cliqueId;
    unsigned char state;
    u32 healthMask;
} FabricInfo_v2;
typedef struct { u32 version, bChannelRepairPending, bTpcRepairPending; } RepairStatus_v1;
typedef struct { u32 isC2cEnabled; } C2cModeInfo_v1;
typedef struct { u64 total, free, used; } Memory_v1;
typedef struct { u32 version, environment, ccFeature, devToolsMode, multiGpuMode; } ConfComputeSettings_v1;
_Static_assert(sizeof(FabricInfo_v2) == 36, "fabric info, version 2");
_Static_assert(sizeof(RepairStatus_v1) == 12, "repair status");
_Static_assert(sizeof(ConfComputeSettings_v1) == 20, "settings of confidential computing");

struct Device;
typedef struct { struct Device *device; u32 id, profileId, start, size; } GpuInstanceInfo;
_Static_assert(sizeof(GpuInstanceInfo) == 24, "GPU instance info");

typedef struct {
    u32 version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount;
    u32 copyEngineCount, decoderCount, encoderCount, jpegCount, ofaCount;
    u64 memorySizeMB;
    char name[96];
} ProfileInfo_v2;
_Static_assert(sizeof(ProfileInfo_v2) == 152, "GPU instance profile info");

typedef struct Device {
    const char *uuid, *name;
    int is_mig;
    u32 gi, ci;
    Memory_v2 memory;
    Attributes attributes;
    u32 process_count;
    ProcessInfo processes[2];
} Device;

static Device gpus[] = {
    {"GPU-0", "NVIDIA Stub", 0, ~0u, ~0u, {0, 16 * GIB, 1 * GIB, 12 * GIB, 3 * GIB}, {0}, 2,
     {{1001, 2 * GIB, ~0u, ~0u}, {1002, ~0ULL, ~0u, ~0u}}},
    {"GPU-1", "NVIDIA Stub", 0, ~0u, ~0u, {0, 40 * GIB, 2 * GIB, 33 * GIB, 5 * GIB}, {0}, 0, {{0}}},
};
static Device migs[] = {
    {"MIG-a", "NVIDIA Stub MIG 4g.20gb", 1, 1, 0, {0, 20 * GIB, 3, 20 * GIB - 10, 7},
     {56, 4, 2, 11, 12, 13, 4, 4, 20480}, 2, {{2001, 4 * GIB, 1, 0}, {2002, 1 * GIB, 2, 0}}},
    {"MIG-b", "NVIDIA Stub MIG 1c.3g.20gb", 1, 2, 3, {0, 20 * GIB, 5, 20 * GIB - 16, 11},
     {14, 3, 1, 21, 22, 23, 3, 1, 20480}, 0, {{0}}},
};

/* Set by the tests: how long each power call takes, and the GPU (its index) whose power call does not return. */
volatile int stub_blocked_gpu = -1;
volatile int stub_waiting = 0;
volatile int stub_opened = 0;

static int text(char *buffer, u32 length, const char *value) {
    if (strlen(value) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(buffer, value);
    return SUCCESS;
}

static int number(u32 *reference, u32 value) {
    *reference = value;
    return stub_opened > 0 ? SUCCESS : UNINITIALIZED;
}

int nvmlInitWithFlags(u32 flags) { (void)flags; stub_opened++; return SUCCESS; }
int nvmlShutdown(void) { stub_opened--; return SUCCESS; }
int nvmlSystemGetDriverVersion(char *version, u32 length) { return text(version, length, "580.65.06"); }
int nvmlSystemGetNVMLVersion(char *version, u32 length) { return text(version, length, "13.580.65.06"); }
int nvmlSystemGetCudaDriverVersion_v2(u32 *version) { return number(version, 13010); }
int nvmlDeviceGetCount_v2(u32 *count) { return number(count, 2); }

int nvmlDeviceGetHandleByIndex_v2(u32 index, Device **device) {
    if (index > 1) return INVALID_ARGUMENT;
    *device = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(Device *device, char *uuid, u32 length) { return text(uuid, length, device->uuid); }
int nvmlDeviceGetName(Device *device, char *name, u32 length) { return text(name, length, device->name); }

int nvmlDeviceGetMinorNumber(Device *device, u32 *minor) { return number(minor, device == gpus ? 4 : 5); }
int nvmlDeviceGetArchitecture(Device *device, u32 *kind) { (void)device; return number(kind, 9); }

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *pci) {
    static const PciInfo places[] = {
        {"0000:07:00.0", 0, 7, 0, 0x20B510DE, 0x153310DE, "00000000:07:00.0"},
        {"0000:0A:00.0", 0, 10, 0, 0x20B510DE, 0x153310DE, "00000000:0A:00.0"},
    };
    *pci = places[device - gpus];
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory_v2 *memory) {
    if (memory->version != VERSION(Memory_v2, 2)) return ARGUMENT_VERSION_MISMATCH;
    *memory = device->memory;
    memory->version = VERSION(Memory_v2, 2);
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
    if (device != gpus) return NOT_SUPPORTED;
    *rates = (Utilization){63, 21};
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(Device *device, u32 *milliwatts) {
    while (device - gpus == stub_blocked_gpu) {
        stub_waiting = 1;
        usleep(1000);
    }
    stub_waiting = 0;
    return number(milliwatts, device == gpus ? 111222 : 333444);
}

int nvmlDeviceGetTotalEnergyConsumption(Device *device, u64 *millijoules) {
    (void)device;
    *millijoules = 5000000000123ULL;
    return SUCCESS;
}

int nvmlDeviceGetTemperatureV(Device *device, Temperature_v1 *temperature) {
    (void)device;
    if (temperature->version != VERSION(Temperature_v1, 1)) return ARGUMENT_VERSION_MISMATCH;
    if (temperature->sensorType != 0) return INVALID_ARGUMENT;
    temperature->temperature = 58;
    return SUCCESS;
}

/* One field of each type; the memory's temperature says double, as one driver branch does, and is none. */
static int field(FieldValue *answer) {
    switch (answer->fieldId) {
    case 82: answer->valueType = TYPE_DOUBLE; answer->value.ui = 71; return SUCCESS;
    case 185: answer->valueType = TYPE_UINT; answer->value.ui = 110000 + answer->scopeId; return SUCCESS;
    case 193: answer->valueType = TYPE_INT; answer->value.si = -8; return SUCCESS;
    case 74: answer->valueType = TYPE_ULONG; answer->value.ul = 4000000000074UL; return SUCCESS;
    case 197: answer->valueType = TYPE_ULL; answer->value.ull = 5000000000197ULL; return SUCCESS;
    case 198: answer->valueType = TYPE_SLL; answer->value.sll = 5000000000198LL; return SUCCESS;
    case 142: answer->valueType = TYPE_USHORT; answer->value.us = 142; return SUCCESS;
    case 75: answer->valueType = TYPE_DOUBLE; answer->value.d = 75.0; return SUCCESS;
    case 3: answer->valueType = TYPE_DOUBLE; answer->value.ull = 6000000000003ULL; return SUCCESS;
    case 170: answer->valueType = TYPE_UINT; answer->value.ui = LINKS; return SUCCESS;
    case 171: answer->valueType = TYPE_UINT; answer->value.ui = answer->scopeId == 0;
        return answer->scopeId < LINKS ? SUCCESS : INVALID_ARGUMENT;
    case 172: answer->valueType = TYPE_UINT; answer->value.ui = 44712 + answer->scopeId; return SUCCESS;
    case 213: case 219: answer->valueType = TYPE_ULL; answer->value.ull = answer->fieldId;
        return answer->scopeId == (u32)ALL_LINKS ? SUCCESS : INVALID_ARGUMENT;
    case 222: answer->valueType = TYPE_ULL; answer->value.ull = 7 << 8 | 15; return SUCCESS;
    case 232: answer->valueType = TYPE_ULL; answer->value.ull = 232; return SUCCESS;
    case 91: answer->valueType = TYPE_UINT; answer->value.ui = LINKS; return SUCCESS;
    case 138: answer->valueType = TYPE_ULL; answer->value.ull = 7;
        return answer->scopeId == (u32)ALL_LINKS ? SUCCESS : INVALID_ARGUMENT;
    case 165: answer->valueType = TYPE_UINT; answer->value.ui = answer->scopeId == 1;
        return answer->scopeId < LINKS ? SUCCESS : INVALID_ARGUMENT;
    default: return NOT_SUPPORTED;
    }
}

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    (void)device;
    for (int place = 0; place < count; place++) {
        values[place].nvmlReturn = field(&values[place]);
        values[place].timestamp = 1700000000000000LL;
        values[place].latencyUsec = 9;
    }
    return SUCCESS;
}

int nvmlDeviceGetBAR1MemoryInfo(Device *device, Bar1Memory *memory) {
    u64 used = device->is_mig ? device->gi : 5;
    *memory = (Bar1Memory){256 << 20, (256 << 20) - used, used};
    return SUCCESS;
}

int nvmlDeviceGetEncoderStats(Device *device, u32 *sessions, u32 *fps, u32 *latency) {
    if (device != gpus) return NOT_SUPPORTED;
    number(sessions, 3);
    number(fps, 31);
    return number(latency, 903);
}

int nvmlDeviceGetMarginTemperature(Device *device, MarginTemperature_v1 *margin) {
    (void)device;
    if (margin->version != VERSION(MarginTemperature_v1, 1)) return ARGUMENT_VERSION_MISMATCH;
    margin->marginTemperature = -4;
    return SUCCESS;
}

int nvmlDeviceGetMemoryErrorCounter(Device *device, int severity, int scope, int location, u64 *count) {
    if (device != gpus || (location != 2 && location != 7)) return NOT_SUPPORTED;
    *count = 9000000000000ULL + 100 * (u64)severity + 10 * (u64)scope + (u64)location;
    return SUCCESS;
}

int nvmlDeviceGetRowRemapperHistogram(Device *device, RowRemapperHistogram *banks) {
    if (device != gpus) return NOT_SUPPORTED;
    *banks = (RowRemapperHistogram){640, 1, 2, 3, 4};
    return SUCCESS;
}

/* The padding behind the one byte of the state is not zero. Of its health the fabric reports that no route recovers,
 * and that the configuration is incorrect, for want of NVLinks. */
int nvmlDeviceGetGpuFabricInfoV(Device *device, FabricInfo_v2 *info) {
    static const unsigned char cluster[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    if (device != gpus) return NOT_SUPPORTED;
    if (info->version != VERSION(FabricInfo_v2, 2)) return ARGUMENT_VERSION_MISMATCH;
    memset(info, 0x55, sizeof *info);
    info->version = VERSION(FabricInfo_v2, 2);
    memcpy(info->clusterUuid, cluster, sizeof cluster);
    info->status = 0;
    info->cliqueId = 4711;
    info->state = 3;
    info->healthMask = 2 << 2 | 5 << 8;
    return SUCCESS;
}

int nvmlDeviceGetRepairStatus(Device *device, RepairStatus_v1 *status) {
    if (device != gpus) return NOT_SUPPORTED;
    if (status->version != VERSION(RepairStatus_v1, 1)) return ARGUMENT_VERSION_MISMATCH;
    status->bChannelRepairPending = 0;
    status->bTpcRepairPending = 0;
    return SUCCESS;
}

int nvmlDeviceGetC2cModeInfoV(Device *device, C2cModeInfo_v1 *mode) {
    mode->isC2cEnabled = 1;
    return device == gpus ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetConfComputeProtectedMemoryUsage(Device *device, Memory_v1 *memory) {
    if (device != gpus) return NOT_SUPPORTED;
    *memory = (Memory_v1){15 * GIB, 9 * GIB, 6 * GIB};
    return SUCCESS;
}

int nvmlSystemGetConfComputeSettings(ConfComputeSettings_v1 *settings) {
    if (settings->version != VERSION(ConfComputeSettings_v1, 1)) return ARGUMENT_VERSION_MISMATCH;
    *settings = (ConfComputeSettings_v1){settings->version, 2, 1, 1, 2};
    return SUCCESS;
}

int nvmlSystemGetConfComputeGpusReadyState(u32 *accepting) { return number(accepting, 0); }

int nvmlDeviceGetPowerManagementLimitConstraints(Device *device, u32 *low, u32 *high) {
    (void)device;
    number(low, 100000);
    return number(high, 320000);
}

int nvmlDeviceGetTopologyCommonAncestor(Device *one, Device *other, int *level) {
    if (one->is_mig || other->is_mig || one == other) return INVALID_ARGUMENT;
    *level = 20;
    return SUCCESS;
}

int nvmlDeviceGetCpuAffinity(Device *device, u32 words, unsigned long *mask) {
    if (words < 2) return INVALID_ARGUMENT;
    mask[0] = device == gpus ? 0xFUL : 0xF0UL;
    mask[1] = 1UL;
    return SUCCESS;
}

int nvmlDeviceGetMemoryAffinity(Device *device, u32 words, unsigned long *mask, u32 scope) {
    if (words < 1 || scope != 0) return INVALID_ARGUMENT;
    mask[0] = device == gpus ? 1UL : 2UL;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(Device *device, u32 link, int *kind) {
    (void)device;
    *kind = 0;
    return link == 1 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *device, u32 link, PciInfo *pci) {
    if (link != 1) return INVALID_ARGUMENT;
    return nvmlDeviceGetPciInfo_v3(device == gpus ? &gpus[1] : gpus, pci);
}

int nvmlDeviceGetClockInfo(Device *device, int kind, u32 *megahertz) {
    (void)device;
    return kind < 0 || kind > 3 ? INVALID_ARGUMENT : number(megahertz, 1000 + (u32)kind);
}

int nvmlDeviceGetPcieReplayCounter(Device *device, u32 *count) { (void)device; return number(count, 17); }
int nvmlDeviceGetComputeMode(Device *device, u32 *mode) { (void)device; return number(mode, 3); }

int nvmlDeviceGetMigMode(Device *device, u32 *current, u32 *pending) {
    number(pending, 0);
    return number(current, device == &gpus[1]);
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, u32 *count) { return number(count, device == gpus ? 0 : 7); }

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, u32 slot, Device **mig) {
    if (device != &gpus[1]) return NOT_SUPPORTED;
    if (slot != 0 && slot != 4) return slot < 7 ? NOT_FOUND : INVALID_ARGUMENT;
    *mig = &migs[slot / 4];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Device *device, u32 *id) {
    return device->is_mig ? number(id, device->gi) : INVALID_ARGUMENT;
}

int nvmlDeviceGetComputeInstanceId(Device *device, u32 *id) {
    return device->is_mig ? number(id, device->ci) : INVALID_ARGUMENT;
}

/* A GPU instance is another object than the MIG device in it. */
static u32 gpu_instances[2];

int nvmlDeviceGetGpuInstanceById(Device *device, u32 gi, u32 **instance) {
    if (device != &gpus[1]) return NOT_SUPPORTED;
    if (gi != 1 && gi != 2) return NOT_FOUND;
    *instance = &gpu_instances[gi - 1];
    return SUCCESS;
}

int nvmlGpuInstanceGetInfo(u32 *instance, GpuInstanceInfo *info) {
    static const GpuInstanceInfo infos[] = {{&gpus[1], 1, 5, 31, 41}, {&gpus[1], 2, 9, 32, 42}};
    *info = infos[instance - gpu_instances];
    return SUCCESS;
}

/* Of the 18 profiles that NVML numbers the board has two, also without MIG mode. */
int nvmlDeviceGetGpuInstanceProfileInfoV(Device *device, u32 profile, ProfileInfo_v2 *info) {
    if (device->is_mig || profile > 17) return INVALID_ARGUMENT;
    if (info->version != VERSION(ProfileInfo_v2, 2)) return ARGUMENT_VERSION_MISMATCH;
    if (profile == 3) {
        *info = (ProfileInfo_v2){info->version, 5, 1, 4, 2, 56, 41, 42, 43, 44, 45, 19968, "MIG 4g.20gb"};
    } else if (profile == 7) {
        *info = (ProfileInfo_v2){info->version, 20, 1, 1, 3, 14, 51, 52, 53, 54, 55, 4864, "MIG 1g.5gb+me"};
    } else {
        return NOT_SUPPORTED;
    }
    return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(Device *device, Attributes *attributes) {
    if (!device->is_mig) return NOT_SUPPORTED;
    *attributes = device->attributes;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, u32 *count, ProcessInfo *infos) {
    u32 room = infos == NULL ? 0 : *count;
    *count = device->process_count;
    if (room < device->process_count) return INSUFFICIENT_SIZE;
    if (device->process_count > 0) memcpy(infos, device->processes, *count * sizeof *infos);
    return SUCCESS;
}

int nvmlDeviceGetProcessUtilization(Device *device, UtilizationSample *samples, u32 *count, u64 since) {
    static const UtilizationSample seen[] = {{1001, 5000, 44, 31, 32, 33}, {1002, 6000, 12, 34, 35, 36}};
    if (device != gpus) return NOT_SUPPORTED;
    if (since >= 6000) return NOT_FOUND;
    u32 room = samples == NULL ? 0 : *count;
    *count = 2;
    if (room < 2) return INSUFFICIENT_SIZE;
    memcpy(samples, seen, sizeof seen);
    return SUCCESS;
}
