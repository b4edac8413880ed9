/* Identity, memory and processes of GPUs and of their parts. */
#include "nvml.h"

typedef struct {
    u32 version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, engines[5];
    u64 memorySizeMB;
    char name[96];
} ProfileInfo;
typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 version; u64 total, reserved, free, used; } Memory_v2;
typedef struct { u32 gpu, memory; } Utilization;
typedef struct { u32 pid; u64 memory; u32 gi, ci; } Process;
typedef struct { u32 pid; u64 timestamp; u32 sm, memory, encoder, decoder; } Sample;
typedef struct { u32 sms, copy, decoder, encoder, jpeg, ofa, gi_slices, ci_slices; u64 mebibytes; } Attributes;
typedef struct { Device *gpu; u32 id, profile, start, size; } GpuInstance;
_Static_assert(sizeof(Memory_v2) == 40 && sizeof(Process) == 24 && sizeof(Sample) == 32, "NVML's layout");
_Static_assert(sizeof(Attributes) == 40 && sizeof(GpuInstance) == 24, "NVML's layout");

int nvmlDeviceGetUUID(Device *device, char *uuid, u32 length) {
    char own[64];
    called();
    const char *kind = is_mig(device) ? "MIG" : "GPU";
    snprintf(own, sizeof own, "%s-00000000-0000-4000-8000-%06d%06d", kind, device->gpu, device->part);
    return text(uuid, length, own);
}

int nvmlDeviceGetName(Device *device, char *name, u32 length) {
    called();
    return text(name, length, is_mig(device) ? "NVIDIA H100 80GB HBM3 MIG 1g.10gb" : "NVIDIA H100 80GB HBM3");
}

/* Memory of a process. That of the first one on the second GPU is not reported, if time is sliced. */
static u64 held(int gpu, u32 part) { return (part + 1) * (control->mig ? GIB : 256 * MIB) + (u64)gpu * MIB; }

static u64 reported(int gpu, u32 part) { return !control->mig && gpu == 1 && part == 0 ? ~0ULL : held(gpu, part); }

static Memory_v2 memory_of(const Device *device) {
    u64 total = 80 * GIB, reserved = 600 * MIB, used = 300 * MIB;
    if (is_mig(device)) {
        total = 9728 * MIB, reserved = 0, used = held(device->gpu, (u32)device->part) + 12 * MIB;
    } else {
        for (u32 part = 0; part < control->parts; part++) used += held(device->gpu, part);
    }
    if (device == &devices[0][PARTS]) __atomic_add_fetch(&control->cycles, 1, __ATOMIC_RELAXED);
    return (Memory_v2){sizeof(Memory_v2) | 2 << 24, total, reserved, total - reserved - used, used};
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    called();
    Memory_v2 newer = memory_of(device);
    *memory = (Memory){newer.total, newer.free, newer.used + newer.reserved};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory_v2 *memory) {
    called();
    if (memory->version != (sizeof *memory | 2 << 24)) return ARGUMENT_VERSION_MISMATCH;
    *memory = memory_of(device);
    return SUCCESS;
}

int nvmlDeviceGetBAR1MemoryInfo(Device *device, Memory *memory) {
    (void)device;
    called();
    *memory = (Memory){128 * GIB, 128 * GIB - MIB, MIB};
    return SUCCESS;
}

/* The utilization of a GPU in MIG mode is not reported, nor that of its parts. */
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
    (void)device;
    called();
    if (control->mig) return NOT_SUPPORTED;
    *rates = (Utilization){63, 21};
    return SUCCESS;
}

/* A GPU in MIG mode lists the processes of all its parts. */
int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, u32 *count, Process *processes) {
    called();
    u32 first = is_mig(device) ? (u32)device->part : 0, room = processes == NULL ? 0 : *count;
    *count = is_mig(device) ? 1 : control->parts;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (u32 place = 0; place < *count; place++) {
        u32 part = first + place;
        u32 gi = control->mig ? FIRST_INSTANCE + part : ~0u, ci = control->mig ? 0 : ~0u;
        processes[place] = (Process){control->pids[device->gpu][part], reported(device->gpu, part), gi, ci};
    }
    return SUCCESS;
}

static int no_processes(Device *device, u32 *count) {
    (void)device;
    called();
    *count = 0;
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, u32 *count, Process *processes) {
    (void)processes;
    return no_processes(device, count);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *device, u32 *count, Process *processes) {
    (void)processes;
    return no_processes(device, count);
}

/* The n-th process of a GPU uses n percent of it; inside MIG that is not reported. */
int nvmlDeviceGetProcessUtilization(Device *device, Sample *samples, u32 *count, u64 since) {
    called();
    if (control->mig) return NOT_SUPPORTED;
    u32 room = samples == NULL ? 0 : *count;
    u64 now = (u64)time(NULL) * 1000000;
    *count = control->parts;
    if (since >= now) return NOT_FOUND;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (u32 part = 0; part < *count; part++)
        samples[part] = (Sample){control->pids[device->gpu][part], now, part + 1, part, 0, 0};
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, u32 slot, Device **mig) {
    ASK_GPU(device);
    if (!control->mig || slot >= SLICES) return INVALID_ARGUMENT;
    if (slot >= control->parts) return NOT_FOUND;
    *mig = &devices[device->gpu][slot];
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(Device *device, u32 *whether) {
    called();
    *whether = (u32)is_mig(device);
    return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(Device *device, Attributes *attributes) {
    called();
    if (!is_mig(device)) return NOT_SUPPORTED;
    *attributes = (Attributes){16, 1, 0, 0, 0, 0, 1, 1, 9728};
    return SUCCESS;
}

/* The board has some of the profiles that NVML numbers, also without MIG mode. */
int nvmlDeviceGetGpuInstanceProfileInfoV(Device *device, u32 profile, ProfileInfo *info) {
    static const struct { u32 number, slices, instances, processors, mebibytes; const char *name; } profiles[] = {
        {0, 1, 7, 16, 9984, "MIG 1g.10gb"},    {1, 2, 3, 32, 20096, "MIG 2g.20gb"},
        {2, 3, 2, 60, 40448, "MIG 3g.40gb"},   {3, 4, 1, 64, 40448, "MIG 4g.40gb"},
        {4, 7, 1, 132, 81152, "MIG 7g.80gb"},  {7, 1, 1, 16, 9984, "MIG 1g.10gb+me"},
        {9, 1, 4, 26, 20096, "MIG 1g.20gb"},
    };
    ASK_GPU(device);
    if (info->version != (sizeof *info | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    for (u32 n = 0; n < sizeof profiles / sizeof *profiles; n++) {
        if (profiles[n].number != profile) continue;
        info->id = profile, info->sliceCount = profiles[n].slices, info->instanceCount = profiles[n].instances;
        info->multiprocessorCount = profiles[n].processors, info->memorySizeMB = profiles[n].mebibytes;
        return text(info->name, sizeof info->name, profiles[n].name);
    }
    return NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstanceId(Device *device, u32 *id) {
    called();
    *id = FIRST_INSTANCE + (u32)device->part;
    return is_mig(device) ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetComputeInstanceId(Device *device, u32 *id) {
    called();
    *id = 0;
    return is_mig(device) ? SUCCESS : INVALID_ARGUMENT;
}

/* The handle of a GPU instance is that of the MIG device in it; programs do not look into it. */
int nvmlDeviceGetGpuInstanceById(Device *device, u32 id, Device **instance) {
    ASK_GPU(device);
    if (id < FIRST_INSTANCE || id >= FIRST_INSTANCE + control->parts) return NOT_FOUND;
    *instance = &devices[device->gpu][id - FIRST_INSTANCE];
    return SUCCESS;
}

int nvmlGpuInstanceGetInfo(Device *instance, GpuInstance *info) {
    called();
    u32 part = (u32)instance->part;
    *info = (GpuInstance){&devices[instance->gpu][PARTS], FIRST_INSTANCE + part, 19, part, 1};
    return SUCCESS;
}
