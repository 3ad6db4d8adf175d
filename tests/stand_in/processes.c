/* NVIDIA's management library with two GPUs, of which the first holds what a file says: lines of a process and its bytes. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, PROCESSES_MAX = 64 };
static const uint64_t TOTAL = UINT64_C(8) << 30;

struct process {
    unsigned pid;
    uint64_t used;
    unsigned instance, compute_instance;
};

static unsigned read_all(void *device, struct process *processes) {
    const char *path = getenv("STAND_IN_GPU_FILE");
    FILE *file = path && (uintptr_t)device == 1 ? fopen(path, "r") : NULL;
    unsigned count = 0;
    if (!file) return 0;
    while (count < PROCESSES_MAX && fscanf(file, "%u %" SCNu64, &processes[count].pid, &processes[count].used) == 2) {
        processes[count].instance = processes[count].compute_instance = ~0u;
        count++;
    }
    fclose(file);
    return count;
}

EXPORT int nvmlInit_v2(void) { return SUCCESS; }
EXPORT int nvmlInitWithFlags(unsigned flags) { return (void)flags, SUCCESS; }
EXPORT int nvmlShutdown(void) { return SUCCESS; }
EXPORT const char *nvmlErrorString(int code) { return (void)code, "an error of the stand-in"; }
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 2, SUCCESS; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= 2) return INVALID_ARGUMENT;
    return *device = (void *)(uintptr_t)(index + 1), SUCCESS;
}

struct memory {
    uint64_t total, free, used;
};
EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned room) {
    return (void)device, snprintf(name, room, "Stand-in"), SUCCESS;
}
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    struct process processes[PROCESSES_MAX];
    unsigned count = read_all(device, processes);
    *memory = (struct memory){TOTAL, TOTAL, 0};
    for (unsigned at = 0; at < count; at++) memory->used += processes[at].used, memory->free -= processes[at].used;
    return SUCCESS;
}
struct memory_2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_2 *memory) {
    struct memory plain;
    nvmlDeviceGetMemoryInfo(device, &plain);
    *memory = (struct memory_2){memory->version, plain.total, 0, plain.free, plain.used};
    return SUCCESS;
}

/* The first works at 80 percent and 250 W, the second rests at 20 W. */
struct utilisation {
    unsigned gpu, memory;
};
EXPORT int nvmlDeviceGetUtilizationRates(void *device, struct utilisation *rates) {
    return *rates = (struct utilisation){(uintptr_t)device == 1 ? 80 : 0, 0}, SUCCESS;
}
EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    return *milliwatts = (uintptr_t)device == 1 ? 250000 : 20000, SUCCESS;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *into) {
    struct process processes[PROCESSES_MAX];
    unsigned room = *count, there = read_all(device, processes);
    *count = there;
    if (there > room || (there && !into)) return INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < there; at++) into[at] = processes[at];
    return SUCCESS;
}
