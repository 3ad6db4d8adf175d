/* A stand-in for NVIDIA's management library: see README.md. Its numbers are those of the driver beside it. */
#define _GNU_SOURCE
#include "shared.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };

static struct stand_in_state *state(void) {
    static struct stand_in_state *found, none;
    void *driver = found ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
    if (driver) found = dlsym(driver, "stand_in_state");
    return found ? found : &none;
}
static int number(void *device) { return (int)(uintptr_t)device - 1; }
static uint64_t own(int device) { return state()->used[device] + state()->context_bytes[device]; }

EXPORT int nvmlInit_v2(void) { return SUCCESS; }
EXPORT int nvmlInitWithFlags(unsigned flags) { return (void)flags, SUCCESS; }
EXPORT int nvmlShutdown(void) { return SUCCESS; }
EXPORT const char *nvmlErrorString(int code) { return (void)code, "an error of the stand-in"; }
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = state()->version, SUCCESS; }
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned room) {
    int cuda = state()->version;
    const char *given = getenv("STAND_IN_DRIVER_NAME");
    if (given) return snprintf(text, room, "%s", given), SUCCESS;
    snprintf(text, room, "%d.0", cuda >= 13000 ? 580 : cuda >= 12080 ? 570 : cuda >= 12040 ? 550 : 535);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) { return *count = state()->devices, SUCCESS; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= (unsigned)state()->devices) return INVALID_ARGUMENT;
    if (state()->lost) return GPU_IS_LOST;
    return *device = (void *)(uintptr_t)(index + 1), SUCCESS;
}
EXPORT int nvmlDeviceGetName(void *device, char *text, unsigned room) {
    int of = state()->capability;
    const char *given = getenv("STAND_IN_NAME");
    if (given) return snprintf(text, room, "%s", given), SUCCESS;
    snprintf(text, room, "Stand-in %d.%d number %d", of / 10, of % 10, number(device));
    return SUCCESS;
}
EXPORT int nvmlDeviceGetUUID(void *device, char *text, unsigned room) {
    snprintf(text, room, "GPU-%08x-0000-0000-0000-0000000057ad", number(device) + 1);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetIndex(void *device, unsigned *index) { return *index = number(device), SUCCESS; }

struct memory {
    uint64_t total, free, used;
};
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    if (state()->lost) return GPU_IS_LOST;
    memory->total = state()->memory;
    memory->used = own(number(device)) + state()->others;
    memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
    return SUCCESS;
}
struct memory_2 {
    unsigned version;
    uint64_t total, reserved, free, used;
};
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_2 *memory) {
    struct memory plain;
    int code = nvmlDeviceGetMemoryInfo(device, &plain);
    if (code) return code;
    *memory = (struct memory_2){memory->version, plain.total, 0, plain.free, plain.used};
    return SUCCESS;
}

struct utilisation {
    unsigned gpu, memory;
};
EXPORT int nvmlDeviceGetUtilizationRates(void *device, struct utilisation *rates) {
    (void)device;
    if (state()->lost) return GPU_IS_LOST;
    return *rates = (struct utilisation){50, 10}, SUCCESS;
}
EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    (void)device;
    if (state()->lost) return GPU_IS_LOST;
    return *milliwatts = 123000, SUCCESS;
}

struct process {
    unsigned pid;
    uint64_t used;
    unsigned instance, compute_instance;
};
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    if (state()->lost) return GPU_IS_LOST;
    unsigned room = *count, there = own(number(device)) && !setting("STAND_IN_HIDE_PROCESSES", 0);
    *count = there;
    if (there > room || (there && !processes)) return INSUFFICIENT_SIZE;
    if (there) processes[0] = (struct process){(unsigned)getpid(), own(number(device)), ~0u, ~0u};
    return SUCCESS;
}
