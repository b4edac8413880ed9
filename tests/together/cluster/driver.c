/*
 * The stub of the driver's library as a node of a cluster has it: two whole GPUs, whose processes are in a file.
 *
 * The file `processes` beside the library has a line for each process, "GPU PID MIB PERCENT", and is read at each call.
 */
#define _GNU_SOURCE
#define nvmlDeviceGetMigMode stub_mig_mode
#define nvmlDeviceGetMaxMigDeviceCount stub_mig_count
#define nvmlDeviceGetMemoryInfo_v2 stub_memory
#define nvmlDeviceGetComputeRunningProcesses_v3 stub_processes
#define nvmlDeviceGetUtilizationRates stub_utilization
#define nvmlDeviceGetComputeMode stub_compute_mode
#define nvmlDeviceGetProcessUtilization stub_process_utilization
#include "../../core/hardware/stub_nvml.c"
#undef nvmlDeviceGetMigMode
#undef nvmlDeviceGetMaxMigDeviceCount
#undef nvmlDeviceGetMemoryInfo_v2
#undef nvmlDeviceGetComputeRunningProcesses_v3
#undef nvmlDeviceGetUtilizationRates
#undef nvmlDeviceGetComputeMode
#undef nvmlDeviceGetProcessUtilization

#include <dlfcn.h>
#include <libgen.h>
#include <stdio.h>
#include <time.h>

enum { MOST = 64 };
typedef struct { ProcessInfo info; u32 percent; } Process;

static const char *const uuids[] = {WHOLE, SHARED};

__attribute__((constructor)) static void name_gpus(void) {
    for (int place = 0; place < 2; place++) gpus[place].uuid = uuids[place];
}

/* The processes of a GPU; returns how many. */
static u32 running(Device *device, Process *found) {
    Dl_info self;
    char library[4096], path[4200];
    dladdr((void *)running, &self);
    snprintf(library, sizeof library, "%s", self.dli_fname);
    snprintf(path, sizeof path, "%s/processes", dirname(library));
    FILE *file = fopen(path, "r");
    u32 count = 0, gpu, pid, percent;
    u64 mib;
    while (file && count < MOST && fscanf(file, "%u %u %llu %u", &gpu, &pid, &mib, &percent) == 4) {
        if (&gpus[gpu] == device) found[count++] = (Process){{pid, mib << 20, ~0u, ~0u}, percent};
    }
    if (file) fclose(file);
    return count;
}

int nvmlDeviceGetMigMode(Device *device, u32 *current, u32 *pending) {
    (void)device, (void)current, (void)pending;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, u32 *count) { (void)device; return number(count, 0); }

/* Any process may use a GPU: replicas are time-sliced. A mode of one process at a time would mean MPS. */
int nvmlDeviceGetComputeMode(Device *device, u32 *mode) { (void)device; return number(mode, 0); }

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory_v2 *memory) {
    Process found[MOST];
    u64 used = 0;
    for (u32 count = running(device, found); count > 0; count--) used += found[count - 1].info.usedGpuMemory;
    int code = stub_memory(device, memory);
    memory->reserved = 1 * GIB;
    memory->used = used;
    memory->free = memory->total - memory->reserved - used;
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, u32 *count, ProcessInfo *infos) {
    Process found[MOST];
    u32 room = infos == NULL ? 0 : *count;
    *count = running(device, found);
    if (room < *count) return INSUFFICIENT_SIZE;
    for (u32 place = 0; place < *count; place++) infos[place] = found[place].info;
    return SUCCESS;
}

/* The time with a kernel running: kernels of different processes do not overlap. */
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
    Process found[MOST];
    *rates = (Utilization){0, 0};
    for (u32 count = running(device, found); count > 0; count--) rates->gpu += found[count - 1].percent;
    return SUCCESS;
}

/* Each process has one sample, which is a moment old whenever it is asked for. */
int nvmlDeviceGetProcessUtilization(Device *device, UtilizationSample *samples, u32 *count, u64 since) {
    Process found[MOST];
    struct timespec now;
    u32 room = samples == NULL ? 0 : *count;
    clock_gettime(CLOCK_REALTIME, &now);
    u64 stamp = (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000 - 1000;
    *count = running(device, found);
    if (*count == 0 || stamp <= since) return NOT_FOUND;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (u32 place = 0; place < *count; place++)
        samples[place] = (UtilizationSample){found[place].info.pid, stamp, found[place].percent, 0, 0, 0};
    return SUCCESS;
}
