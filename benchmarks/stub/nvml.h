/* What the files of the stub share: codes of NVML, the node, and what each call does first. */

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { TIMEOUT = 10, ARGUMENT_VERSION_MISMATCH = 25 };
enum { GPUS = 16, PARTS = 10, LINKS = 18, SLICES = 7, FIRST_INSTANCE = 7, XID = 8 };
#define KIB 1024ULL
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

typedef unsigned int u32;
typedef unsigned long long u64;

/*
 * Counted: calls without waits for events, field values in them, readings of the first GPU's memory.
 * Set by the benchmark: microseconds that each call and each field value takes; whether GPUs are in MIG mode; how
 * many there are, parts of each, and the process on each part.
 */
struct Control {
    u64 calls, fields, cycles;
    int delay, mig;
    u32 gpus, parts, pids[GPUS][PARTS];
};
_Static_assert(sizeof(struct Control) == 40 + 4 * GPUS * PARTS, "the layout that the benchmark writes");

/* A whole GPU is the last of its own parts. */
typedef struct { int gpu, part; } Device;

extern struct Control *control;
extern Device devices[GPUS][PARTS + 1];

static inline int is_mig(const Device *device) { return device->part < PARTS; }

void called(void);
void pass(u64 times);
int text(char *buffer, u32 length, const char *value);

/* Count a call that whole GPUs answer, and MIG devices do not. */
#define ASK_GPU(device) do { called(); if (is_mig(device)) return NOT_SUPPORTED; } while (0)
