/* Profiling metrics. Like the first drivers with them, this one refuses later metrics. */
#include "nvml.h"

enum { LAST = 97 };
typedef struct { u32 version, supported; } Support;
typedef struct { u32 id; int code; double value; const char *names[3]; } Metric;
typedef struct { u32 version, count; void *samples[2]; Metric metrics[]; } Metrics;
_Static_assert(sizeof(Metric) == 40 && sizeof(Metrics) == 24, "NVML's layout");

int nvmlGpmSampleAlloc(void **sample) { called(); *sample = control; return SUCCESS; }
int nvmlGpmSampleFree(void *sample) { (void)sample; called(); return SUCCESS; }

int nvmlGpmQueryDeviceSupport(Device *device, Support *support) {
    ASK_GPU(device);
    support->supported = 1;
    return SUCCESS;
}

int nvmlGpmSampleGet(Device *device, void *sample) { (void)sample; ASK_GPU(device); return SUCCESS; }

int nvmlGpmMigSampleGet(Device *device, u32 instance, void *sample) {
    (void)instance, (void)sample;
    ASK_GPU(device);
    return SUCCESS;
}

int nvmlGpmMetricsGet(Metrics *request) {
    called();
    for (u32 place = 0; place < request->count; place++)
        if (request->metrics[place].id > LAST) return INVALID_ARGUMENT;
    for (u32 place = 0; place < request->count; place++)
        request->metrics[place].code = SUCCESS, request->metrics[place].value = 10 + place;
    return SUCCESS;
}
