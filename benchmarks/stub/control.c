/*
 * A driver's library for benchmarks, which answers at once, as that of a node of H100s.
 *
 * STUB_CONTROL names a file of `struct Control`, which it shares with the benchmark. Each program under test has
 * a file of its own.
 */
#include "nvml.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

static struct Control nothing;
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

/* Sleep: a slow driver takes no CPU time of the program. */
void pass(u64 times) {
    u64 micros = (u64)control->delay * times;
    struct timespec wait = {(time_t)(micros / 1000000), (long)(micros % 1000000) * 1000};
    if (micros > 0) nanosleep(&wait, NULL);
}

void called(void) {
    __atomic_add_fetch(&control->calls, 1, __ATOMIC_RELAXED);
    pass(1);
}

int text(char *buffer, u32 length, const char *value) {
    return (u32)snprintf(buffer, length, "%s", value) < length ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlInitWithFlags(u32 flags) { (void)flags; return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *version, u32 length) { called(); return text(version, length, "550.90.07"); }
int nvmlSystemGetNVMLVersion(char *version, u32 length) { called(); return text(version, length, "12.550.90.07"); }
int nvmlSystemGetCudaDriverVersion(int *version) { called(); *version = 12040; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { called(); *version = 12040; return SUCCESS; }
int nvmlDeviceGetCount_v2(u32 *count) { called(); *count = control->gpus; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(u32 index, Device **device) {
    if (index >= control->gpus) return INVALID_ARGUMENT;
    called();
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
    usleep(milliseconds * 1000);
    return TIMEOUT;
}
