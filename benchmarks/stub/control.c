/*
 * A driver's library for benchmarks: answers at once as a node of A100s does, to every program that loads it.
 *
 * STUB_CONTROL names a file of `struct Control`, which the benchmark has open too. Each program under test has
 * a file of its own.
 */
#include "nvml.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

static struct Control nothing = {.lost = -1, .hanging = -1};
struct Control *control = &nothing;
Device devices[GPUS][PARTS + 1];

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("STUB_CONTROL");
    int file = path == NULL ? -1 : open(path, O_RDWR);
    if (file >= 0) {
        void *shared = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (shared != MAP_FAILED) control = shared;
    }
    for (int gpu = 0; gpu < GPUS; gpu++)
        for (int part = 0; part <= PARTS; part++) devices[gpu][part] = (Device){gpu, part};
}

/* Sleep: what a driver takes is no time of the program's own. */
void pass(u64 times) {
    u64 micros = (u64)control->delay * times;
    struct timespec wait = {(time_t)(micros / 1000000), (long)(micros % 1000000) * 1000};
    if (micros > 0) nanosleep(&wait, NULL);
}

int asked(int gpu) {
    __atomic_add_fetch(&control->calls, 1, __ATOMIC_RELAXED);
    pass(1);
    while (gpu >= 0 && gpu == *(volatile int *)&control->hanging) usleep(10000);
    return gpu >= 0 && gpu == *(volatile int *)&control->lost ? GPU_IS_LOST : SUCCESS;
}

int text(char *buffer, u32 length, const char *value) {
    return (u32)snprintf(buffer, length, "%s", value) < length ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlInitWithFlags(u32 flags) { (void)flags; return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *version, u32 length) { ASK(-1); return text(version, length, "550.90.07"); }
int nvmlSystemGetNVMLVersion(char *version, u32 length) { ASK(-1); return text(version, length, "12.550.90.07"); }
int nvmlSystemGetCudaDriverVersion(int *version) { ASK(-1); *version = 12040; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { ASK(-1); *version = 12040; return SUCCESS; }
int nvmlDeviceGetCount_v2(u32 *count) { ASK(-1); *count = control->gpus; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(u32 index, Device **device) {
    if (index >= control->gpus) return INVALID_ARGUMENT;
    ASK((int)index);
    *device = &devices[index][PARTS];
    return SUCCESS;
}

int nvmlEventSetCreate(void **set) { *set = &nothing; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }

int nvmlDeviceRegisterEvents(Device *device, u64 types, void *set) {
    (void)types, (void)set;
    ASK_GPU(device);
    return SUCCESS;
}

int nvmlEventSetWait_v2(void *set, void *event, u32 milliseconds) {
    (void)set, (void)event;
    __atomic_add_fetch(&control->waits, 1, __ATOMIC_RELAXED);
    usleep(milliseconds * 1000);
    return TIMEOUT;
}
