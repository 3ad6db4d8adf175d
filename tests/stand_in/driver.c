/* A stand-in for the NVIDIA driver: see README.md. Has what cubecl-cuda 0.11 asks for through cudarc 0.19, and what xrun
 * asks for itself. A function that is missing makes cudarc panic with "Missing symbol NAME". */
#define _GNU_SOURCE
#include "shared.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    NOT_FOUND = 500,
};
/* What a context takes of a device. */
#define CONTEXT_BYTES (520 * MIB)

EXPORT struct stand_in_state stand_in_state;
#define S stand_in_state

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static FILE *events, *launches;
static bool launches_full;
static int visible[DEVICES_MAX], visible_count;
static int fault; /* every call gives it, once a kernel has failed */
static bool started;
static struct {
    unsigned long long allocations, frees, refused, pinned, pinned_bytes, pinned_peak, copies, modules, launches, replays, bad, peak;
} count;

static void event(const char *format, ...) {
    if (!events) return;
    va_list rest;
    va_start(rest, format);
    vfprintf(events, format, rest);
    va_end(rest);
    fputc('\n', events);
}

static void bad(const char *what, const char *name) {
    count.bad++;
    event("BAD %s %s", what, name);
}

static void summary(void) {
    const char *path = getenv("STAND_IN_SUMMARY");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file,
            "{\"allocations\": %llu, \"frees\": %llu, \"refused\": %llu, \"peak\": %llu, \"in_use\": %llu, \"pinned_bytes\": "
            "%llu, \"pinned_peak\": %llu, \"copies\": %llu, \"modules\": %llu, \"launches\": %llu, \"replays\": %llu, \"bad\": %llu}\n",
            count.allocations, count.frees, count.refused, count.peak, (unsigned long long)S.used[0], count.pinned_bytes,
            count.pinned_peak, count.copies, count.modules, count.launches, count.replays, count.bad);
    fclose(file);
}

/* Functions that a driver of an older version lacks: the loader, which looks names up in the table of symbols, finds them no more. */
struct event;
EXPORT int cuEventElapsedTime_v2(float *milliseconds, const struct event *from, const struct event *to);
EXPORT int cuTensorMapEncodeIm2colWide(void *map, ...);
static void hide_newer_functions(void) {
    const struct {
        void *function;
        int since;
    } newer[] = {{(void *)cuEventElapsedTime_v2, 12080}, {(void *)cuTensorMapEncodeIm2colWide, 12080}};
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
        Dl_info found;
        ElfW(Sym) *symbol = NULL;
        if (S.version >= newer[i].since || !dladdr1(newer[i].function, &found, (void **)&symbol, RTLD_DL_SYMENT) || !symbol) continue;
        uintptr_t page = (uintptr_t)symbol / 4096 * 4096, end = (uintptr_t)(symbol + 1);
        if (mprotect((void *)page, end - page, PROT_READ | PROT_WRITE) == 0) symbol->st_shndx = SHN_UNDEF, symbol->st_value = 0;
    }
}

static void uuid_of(int device, char text[41]) { snprintf(text, 41, "GPU-%08x-0000-0000-0000-0000000057ad", device + 1); }

/* As the manual says: numbers or beginnings of UUIDs, up to the first that is none of them. */
static void look_which_are_visible(void) {
    const char *names = getenv("CUDA_VISIBLE_DEVICES");
    if (!names) {
        for (int i = 0; i < S.devices; i++) visible[visible_count++] = i;
        return;
    }
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", names);
    char *rest = NULL;
    for (char *name = strtok_r(copy, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest)) {
        char *end;
        long number = strtol(name, &end, 10);
        int which = -1;
        if (*end == 0 && number >= 0 && number < S.devices) which = (int)number;
        for (int i = 0; *end && which < 0 && i < S.devices; i++) {
            char uuid[41];
            uuid_of(i, uuid);
            if (strncasecmp(uuid, name, strlen(name)) == 0) which = i;
        }
        if (which < 0 || visible_count == DEVICES_MAX) return;
        for (int i = 0; i < visible_count; i++)
            if (visible[i] == which) return;
        visible[visible_count++] = which;
    }
}

__attribute__((constructor)) static void settings(void) {
    S.capability = (int)(setting("STAND_IN_COMPUTE", 9.0) * 10 + 0.5);
    S.devices = (int)setting("STAND_IN_DEVICES", 1);
    if (S.devices > DEVICES_MAX) S.devices = DEVICES_MAX;
    S.version = (int)setting("STAND_IN_DRIVER", 13000);
    S.memory = (uint64_t)setting("STAND_IN_MEMORY_MIB", 81559) * MIB;
    S.others = (uint64_t)setting("STAND_IN_OTHERS_MIB", 0) * MIB;
    look_which_are_visible();
    const char *path = getenv("STAND_IN_LOG");
    events = path ? fopen(path, "a") : NULL;
    if (events) setvbuf(events, NULL, _IOLBF, BUFSIZ);
    path = getenv("STAND_IN_LAUNCHES");
    launches = path ? fopen(path, "w") : NULL;
    hide_newer_functions();
    atexit(summary);
}

/* ---- errors */

static const struct {
    int code;
    const char *name, *words;
} errors[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

EXPORT int cuGetErrorName(int code, const char **text) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return *text = errors[i].name, SUCCESS;
    return *text = NULL, INVALID_VALUE;
}
EXPORT int cuGetErrorString(int code, const char **text) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return *text = errors[i].words, SUCCESS;
    return *text = NULL, INVALID_VALUE;
}

/* ---- devices and contexts; a device's handle is its number among the visible ones */

EXPORT int cuDriverGetVersion(int *version) { return *version = S.version, SUCCESS; }
EXPORT int cuInit(unsigned flags) {
    int code = (int)setting("STAND_IN_INIT_CODE", 0);
    if (code || flags) return code ? code : INVALID_VALUE;
    started = true;
    return visible_count ? SUCCESS : NO_DEVICE;
}
EXPORT int cuDeviceGetCount(int *number) {
    if (!started) return NOT_INITIALIZED;
    return *number = visible_count, SUCCESS;
}
EXPORT int cuDeviceGet(int *device, int number) {
    if (!started) return NOT_INITIALIZED;
    if (number < 0 || number >= visible_count) return INVALID_DEVICE;
    return *device = number, SUCCESS;
}
EXPORT int cuDeviceGetName(char *name, int room, int device) {
    const char *given = getenv("STAND_IN_NAME");
    if (given) return snprintf(name, room, "%s", given), SUCCESS;
    snprintf(name, room, "Stand-in %d.%d number %d", S.capability / 10, S.capability % 10, visible[device]);
    return SUCCESS;
}
EXPORT int cuDeviceGetUuid_v2(char *bytes, int device) { return memset(bytes, visible[device] + 1, 16), SUCCESS; }
EXPORT int cuDeviceGetPCIBusId(char *bus, int room, int device) {
    snprintf(bus, room, "0000:%02X:00.0", visible[device] + 1);
    return SUCCESS;
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    return *bytes = S.memory, SUCCESS;
}

/* Shared memory that a block may ask for, by the table of the CUDA manual. */
static int shared_max(void) {
    if (S.capability >= 90 && S.capability < 120) return 227 * 1024;
    if (S.capability == 80 || S.capability == 87) return 163 * 1024;
    if (S.capability >= 86) return 99 * 1024;
    return S.capability == 75 ? 64 * 1024 : 48 * 1024;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
    case 1: case 2: case 3: return *value = 1024, SUCCESS;       /* threads of a block, along x, y */
    case 4: return *value = 64, SUCCESS;                         /* along z */
    case 5: return *value = 2147483647, SUCCESS;                 /* blocks along x */
    case 6: case 7: return *value = 65535, SUCCESS;              /* along y, z */
    case 8: return *value = 48 * 1024, SUCCESS;                  /* shared memory of a block */
    case 10: return *value = 32, SUCCESS;                        /* threads of a warp */
    case 16: return *value = 100, SUCCESS;                       /* multiprocessors */
    case 75: return *value = S.capability / 10, SUCCESS;
    case 76: return *value = S.capability % 10, SUCCESS;
    case 97: return *value = shared_max(), SUCCESS;
    case 115: return *value = 1, SUCCESS;                        /* memory pools of the driver */
    default: return *value = 0, SUCCESS;
    }
}

static int retained[DEVICES_MAX];
static _Thread_local int current = -1;

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (!started) return NOT_INITIALIZED;
    int code = (int)setting("STAND_IN_CONTEXT_CODE", 0);
    if (code) return code;
    int which = visible[device];
    if (S.used[which] + S.others + CONTEXT_BYTES > S.memory) return OUT_OF_MEMORY;
    retained[which]++;
    S.context_bytes[which] = CONTEXT_BYTES;
    *context = (void *)(uintptr_t)(which + 1);
    return SUCCESS;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    int which = visible[device];
    if (retained[which] == 0) return INVALID_CONTEXT;
    if (--retained[which] == 0) S.context_bytes[which] = 0;
    return SUCCESS;
}
EXPORT int cuCtxSetCurrent(void *context) {
    current = (int)(uintptr_t)context - 1;
    return context ? fault : INVALID_CONTEXT;
}
EXPORT int cuCtxGetCurrent(void **context) { return *context = (void *)(uintptr_t)(current + 1), SUCCESS; }
EXPORT int cuCtxSynchronize(void) { return fault; }
EXPORT int cuProfilerStart(void) { return SUCCESS; }
EXPORT int cuProfilerStop(void) { return SUCCESS; }

/* ---- graphs: one stream at a time records. Nothing of it is done before a replay. */

enum { KERNEL_NODE = 0, COPY_NODE = 1, ALLOCATION_NODE = 10, FREE_NODE = 11 };
enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_ISOLATION = 905 };
struct node {
    int type;
    void *function;
    int parameters;
    uint64_t values[PARAMETERS_MAX];
    uint64_t to, from;
    bool from_host, to_host;
    size_t bytes;
};
struct graph {
    struct node *nodes;
    size_t length, room, kernels, copies;
};
static struct {
    void *stream;
    struct graph *graph;
    bool broken;
} recording;

static bool records(void *stream) { return recording.graph && recording.stream == stream; }

/* What the manual forbids while any stream records in mode GLOBAL. */
static int forbidden(const char *what) {
    if (!recording.graph) return 0;
    recording.broken = true;
    event("capture broken by %s", what);
    return CAPTURE_UNSUPPORTED;
}

static struct node *record(int type) {
    struct graph *graph = recording.graph;
    if (graph->length == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 64;
        graph->nodes = realloc(graph->nodes, graph->room * sizeof *graph->nodes);
    }
    struct node *node = &graph->nodes[graph->length++];
    memset(node, 0, sizeof *node);
    node->type = type;
    return node;
}

/* ---- streams and events: everything is done at once */

EXPORT int cuStreamCreate(void **stream, unsigned flags) {
    static uintptr_t last = 0x1000;
    (void)flags;
    if (fault) return fault;
    *stream = (void *)__sync_add_and_fetch(&last, 1);
    return SUCCESS;
}
EXPORT int cuStreamDestroy_v2(void *stream) { return (void)stream, fault; }
EXPORT int cuStreamSynchronize(void *stream) {
    if (records(stream)) return forbidden("a wait for the stream");
    return fault;
}
/* The clock of events goes on by launches, so that tuning goes the same way each time. */
#define LAUNCH_MILLISECONDS 0.01f
static unsigned long long ticks;
struct event {
    unsigned long long at;
    struct graph *in;
};
EXPORT int cuStreamWaitEvent(void *stream, struct event *waited, unsigned flags) {
    (void)flags;
    if (records(stream) && waited->in != recording.graph) {
        event("capture broken by a wait for another stream");
        recording.broken = true;
        return CAPTURE_ISOLATION;
    }
    return fault;
}
EXPORT int cuEventCreate(struct event **made, unsigned flags) {
    (void)flags;
    if (fault) return fault;
    *made = calloc(1, sizeof **made);
    return *made ? SUCCESS : OUT_OF_MEMORY;
}
EXPORT int cuEventRecord(struct event *recorded, void *stream) {
    recorded->at = ticks;
    recorded->in = records(stream) ? recording.graph : NULL;
    return fault;
}
EXPORT int cuEventSynchronize(struct event *waited) {
    if (recording.graph && waited->in == recording.graph) return forbidden("a wait for an event of the stream");
    return fault;
}
EXPORT int cuEventQuery(void *asked) { return (void)asked, fault; }
EXPORT int cuEventElapsedTime(float *milliseconds, const struct event *from, const struct event *to) {
    *milliseconds = (float)(to->at - from->at) * LAUNCH_MILLISECONDS;
    return fault;
}
EXPORT int cuEventElapsedTime_v2(float *milliseconds, const struct event *from, const struct event *to) {
    return cuEventElapsedTime(milliseconds, from, to);
}
EXPORT int cuEventDestroy_v2(struct event *gone) { return free(gone), fault; }

/* ---- memory */

struct block {
    uint64_t at, bytes;
    int device;
    struct block *next;
};
static struct block *blocks;

static struct block *holder(uint64_t at, uint64_t bytes) {
    for (struct block *block = blocks; block; block = block->next)
        if (at >= block->at && bytes <= block->bytes && at - block->at <= block->bytes - bytes) return block;
    return NULL;
}

static int take(uint64_t *pointer, size_t bytes) {
    if (fault) return fault;
    if (!bytes) return INVALID_VALUE;
    int code = forbidden("an allocation");
    if (code) return code;
    pthread_mutex_lock(&guard);
    int device = current < 0 ? 0 : current, result = SUCCESS;
    uint64_t from = (uint64_t)setting("STAND_IN_FAIL_ALLOCATION", 0);
    uint64_t all = S.used[device] + S.context_bytes[device] + S.others;
    bool forced = from && count.allocations + 1 >= from;
    void *at = MAP_FAILED;
    if (!forced && all + bytes <= S.memory)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct block *block = at == MAP_FAILED ? NULL : malloc(sizeof *block);
    if (block) {
        *block = (struct block){(uint64_t)(uintptr_t)at, bytes, device, blocks};
        blocks = block;
        *pointer = block->at;
        S.used[device] += bytes;
        if (S.used[device] > count.peak) count.peak = S.used[device];
        count.allocations++;
        event("allocated %zu on %d, %llu in use", bytes, device, (unsigned long long)S.used[device]);
    } else {
        count.refused++;
        event("refused %zu on %d", bytes, device);
        result = OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&guard);
    return result;
}

static int give_back(uint64_t pointer) {
    if (fault) return fault;
    pthread_mutex_lock(&guard);
    struct block **place = &blocks;
    while (*place && (*place)->at != pointer) place = &(*place)->next;
    struct block *block = *place;
    if (block) {
        *place = block->next;
        munmap((void *)(uintptr_t)block->at, block->bytes);
        S.used[block->device] -= block->bytes;
        count.frees++;
        event("freed %llu on %d", (unsigned long long)block->bytes, block->device);
        free(block);
    } else {
        bad("free of", "a pointer that is no block");
    }
    pthread_mutex_unlock(&guard);
    return block ? SUCCESS : INVALID_VALUE;
}

EXPORT int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) { return take(pointer, bytes); }
EXPORT int cuMemAllocAsync(uint64_t *pointer, size_t bytes, void *stream) { return (void)stream, take(pointer, bytes); }
EXPORT int cuMemFree_v2(uint64_t pointer) { return give_back(pointer); }
EXPORT int cuMemFreeAsync(uint64_t pointer, void *stream) { return (void)stream, give_back(pointer); }
EXPORT int cuMemGetInfo_v2(size_t *available, size_t *all) {
    int device = current < 0 ? 0 : current;
    *all = S.memory;
    *available = S.memory - S.others - S.used[device] - S.context_bytes[device];
    return fault;
}

/* Locked host memory. Its size is kept in a page before it. */
enum { PAGE = 4096 };
EXPORT int cuMemAllocHost_v2(void **pointer, size_t bytes) {
    if (fault) return fault;
    int code = forbidden("an allocation of locked memory");
    if (code) return code;
    char *at = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return OUT_OF_MEMORY;
    *(size_t *)at = bytes;
    *pointer = at + PAGE;
    pthread_mutex_lock(&guard);
    count.pinned++;
    count.pinned_bytes += bytes;
    if (count.pinned_bytes > count.pinned_peak) count.pinned_peak = count.pinned_bytes;
    event("locked %zu of the host, %llu in all", bytes, count.pinned_bytes);
    pthread_mutex_unlock(&guard);
    return SUCCESS;
}
EXPORT int cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags) {
    return (void)flags, cuMemAllocHost_v2(pointer, bytes);
}
EXPORT int cuMemFreeHost(void *pointer) {
    char *at = (char *)pointer - PAGE;
    size_t bytes = *(size_t *)at;
    pthread_mutex_lock(&guard);
    count.pinned_bytes -= bytes;
    pthread_mutex_unlock(&guard);
    munmap(at, bytes + PAGE);
    return fault;
}

/* ---- copies, row by row */

static int copy(uint64_t device, char *host, size_t width, size_t rows, size_t device_pitch, size_t host_pitch, bool in) {
    if (fault || !width || !rows) return fault;
    pthread_mutex_lock(&guard);
    bool held = holder(device, (rows - 1) * device_pitch + width) != NULL;
    count.copies++;
    if (!held) bad(in ? "copy to" : "copy from", "what no live block holds");
    pthread_mutex_unlock(&guard);
    if (!held) return INVALID_VALUE;
    for (size_t row = 0; row < rows; row++) {
        char *there = (char *)(uintptr_t)device + row * device_pitch, *here = host + row * host_pitch;
        memcpy(in ? there : here, in ? here : there, width);
    }
    return SUCCESS;
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    if (records(stream)) {
        struct node *node = record(COPY_NODE);
        node->to = to, node->from = (uint64_t)(uintptr_t)from, node->from_host = true, node->bytes = bytes;
        recording.graph->copies++;
        return SUCCESS;
    }
    return (void)stream, copy(to, (char *)from, bytes, 1, bytes, bytes, true);
}
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    if (records(stream)) {
        struct node *node = record(COPY_NODE);
        node->to = (uint64_t)(uintptr_t)to, node->from = from, node->to_host = true, node->bytes = bytes;
        recording.graph->copies++;
        return SUCCESS;
    }
    return (void)stream, copy(from, to, bytes, 1, bytes, bytes, false);
}
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    return copy(to, (char *)from, bytes, 1, bytes, bytes, true);
}
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) { return copy(from, to, bytes, 1, bytes, bytes, false); }
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    if (records(stream)) {
        struct node *node = record(COPY_NODE);
        node->to = to, node->from = from, node->bytes = bytes;
        recording.graph->copies++;
        return SUCCESS;
    }
    pthread_mutex_lock(&guard);
    bool held = !bytes || holder(from, bytes);
    if (!held) bad("copy from", "what no live block holds");
    pthread_mutex_unlock(&guard);
    return (void)stream, held ? copy(to, (char *)(uintptr_t)from, bytes, 1, bytes, bytes, true) : INVALID_VALUE;
}

/* CUDA_MEMCPY2D of the manual: memory type 1 is the host's, 2 the device's. */
struct copy_2d {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    uint64_t from_device;
    void *from_array;
    size_t from_pitch, to_x, to_y;
    int to_type;
    void *to_host;
    uint64_t to_device;
    void *to_array;
    size_t to_pitch, width, rows;
};

EXPORT int cuMemcpy2DAsync_v2(const struct copy_2d *c, void *stream) {
    if (records(stream)) {
        struct node *node = record(COPY_NODE);
        bool in = c->from_type == 1;
        node->to = in ? c->to_device : (uint64_t)(uintptr_t)c->to_host, node->from_host = in, node->to_host = !in;
        node->from = in ? (uint64_t)(uintptr_t)c->from_host : c->from_device, node->bytes = c->rows ? c->width : 0;
        recording.graph->copies++;
        return SUCCESS;
    }
    if (c->width <= c->from_pitch && c->width <= c->to_pitch) {
        if (c->from_type == 1 && c->to_type == 2)
            return copy(c->to_device, (char *)c->from_host, c->width, c->rows, c->to_pitch, c->from_pitch, true);
        if (c->from_type == 2 && c->to_type == 1)
            return copy(c->from_device, c->to_host, c->width, c->rows, c->from_pitch, c->to_pitch, false);
    }
    bad("copy of rows", "with a pitch or a kind of memory that is not allowed");
    return INVALID_VALUE;
}

/* ---- kernels */

/* The CUDA version that brought a version of PTX: 8.0 came with 12.0, 9.0 with 13.0. */
static int cuda_of(double ptx) {
    int version = (int)(ptx * 10 + 0.5);
    if (version >= 90) return 13000 + (version - 90) * 10;
    if (version >= 80) return 12000 + (version >= 87 ? version - 79 : version - 80) * 10;
    return 11000;
}

/* For an assembler: named by the code's FNV-1a digest, so that each is there once. */
static void keep_code(const char *image) {
    const char *directory = getenv("STAND_IN_PTX");
    if (!directory) return;
    uint64_t digest = 0xcbf29ce484222325u;
    for (const char *at = image; *at; at++) digest = (digest ^ (unsigned char)*at) * 0x100000001b3u;
    char path[4096];
    snprintf(path, sizeof path, "%s/%016llx.ptx", directory, (unsigned long long)digest);
    FILE *file = fopen(path, "w");
    bool written = file && fputs(image, file) >= 0;
    if (file) written &= fclose(file) == 0;
    if (!written) bad("code cannot be written to", path);
}

EXPORT int cuModuleLoadData(void **module, const char *image) {
    if (fault) return fault;
    const char *version = strstr(image, ".version "), *target = strstr(image, ".target sm_");
    const char *entry = strstr(image, ".entry ");
    if (!version || !target || !entry) return bad("module", "without version, target or entry"), INVALID_PTX;
    count.modules++;
    keep_code(image);
    if (cuda_of(atof(version + 9)) > S.version) return UNSUPPORTED_PTX_VERSION;
    int made_for = atoi(target + 11);
    /* Code with an "a" behind the number runs on nothing else. */
    const char *suffix = target + 11 + strspn(target + 11, "0123456789");
    if (made_for > S.capability || (*suffix == 'a' && made_for != S.capability)) return NO_BINARY_FOR_GPU;
    struct kernel *kernel = calloc(1, sizeof *kernel);
    char name[512] = "";
    sscanf(entry + 7, "%511[^( \n\t]", name);
    kernel->name = strdup(name);
    kernel->threads_max = 1024;
    const char *body = strchr(entry, '{'), *most = strstr(entry, ".reqntid ");
    if (!most) most = strstr(entry, ".maxntid ");
    read_kernel(kernel, entry);
    int x = 1, y = 1, z = 1;
    if (most && (!body || most < body) && sscanf(most + 9, "%d, %d, %d", &x, &y, &z) > 0) kernel->threads_max = x * y * z;
    event("module %s", name);
    *module = kernel;
    return SUCCESS;
}
EXPORT int cuModuleUnload(void *module) { return (void)module, fault; }
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) {
    if (strcmp(((struct kernel *)module)->name, name)) return bad("no function", name), NOT_FOUND;
    return *function = module, SUCCESS;
}
EXPORT int cuFuncSetAttribute(void *function, int attribute, int value) {
    if (attribute == 8 && value > shared_max()) return bad("shared memory of", ((struct kernel *)function)->name), INVALID_VALUE;
    return fault;
}
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *function) {
    return (void)attribute, (void)function, *value = 0, SUCCESS;
}

/* Each launch, those of a capture among them, to a file of at most so many bytes. */
static void note_launch(const struct kernel *kernel, const unsigned *grid, const unsigned *block, void **arguments) {
    if (!launches) return;
    pthread_mutex_lock(&guard);
    uint64_t room[PARAMETERS_MAX] = {0};
    for (int i = 0; i < kernel->parameters; i++) {
        uint64_t at = kernel->parameter[i].pointer ? *(uint64_t *)arguments[i] : 0;
        struct block *block_of = at ? holder(at, 1) : NULL;
        if (block_of) room[i] = block_of->bytes - (at - block_of->at);
    }
    if (ftell(launches) < setting("STAND_IN_LAUNCHES_MIB", 64) * MIB) write_launch(launches, kernel, grid, block, arguments, room);
    else if (!launches_full) launches_full = true, bad("no room in the file of", "launches");
    pthread_mutex_unlock(&guard);
}

EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **parameters, void **extra) {
    (void)extra;
    if (fault) return fault;
    struct kernel *kernel = function;
    note_launch(kernel, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, parameters);
    if (records(stream)) {
        struct node *node = record(KERNEL_NODE);
        node->function = function, node->parameters = kernel->parameters;
        for (int i = 0; i < kernel->parameters; i++)
            if (kernel->parameter[i].pointer) node->values[i] = *(uint64_t *)parameters[i];
        recording.graph->kernels++;
        return SUCCESS;
    }
    pthread_mutex_lock(&guard);
    /* CubeCL's probes of what a device can do: how often they launch something is a matter of time, so they are not counted. */
    bool probe = strstr(kernel->name, "_throughput") || strncmp(kernel->name, "launch_overhead", 15) == 0;
    unsigned long long number = probe ? 0 : ++count.launches;
    ticks++;
    const char *wrong = NULL;
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535) wrong = "blocks of";
    if (!bx || !by || !bz || bz > 64 || bx * by * bz > (unsigned)kernel->threads_max) wrong = "threads of";
    if ((int)shared > shared_max()) wrong = "shared memory of";
    for (int i = 0; !wrong && i < kernel->parameters; i++)
        if (kernel->parameter[i].pointer && !holder(*(uint64_t *)parameters[i], 1)) wrong = "a pointer that no live block holds, of";
    if (wrong) bad(wrong, kernel->name);
    if (number && number == (unsigned long long)setting("STAND_IN_OTHERS_FROM_LAUNCH", 0))
        S.others = (uint64_t)setting("STAND_IN_OTHERS_THEN_MIB", 0) * MIB;
    /* What a kernel does wrong is seen by the calls after its launch. */
    if (number && number == (unsigned long long)setting("STAND_IN_FAIL_LAUNCH", 0)) {
        fault = (int)setting("STAND_IN_FAIL_CODE", 700);
        S.lost = (int)setting("STAND_IN_LOSE", 0);
        event("from here on every call gives %d", fault);
    }
    pthread_mutex_unlock(&guard);
    /* Such a probe repeats its work until it takes this long by the wall clock. */
    if (strstr(kernel->name, "_throughput")) usleep(20000);
    return wrong ? INVALID_VALUE : SUCCESS;
}
EXPORT int cuLaunchKernelEx(const unsigned *c, void *function, void **parameters, void **extra) {
    void *stream;
    memcpy(&stream, (const char *)c + 32, sizeof stream);
    return cuLaunchKernel(function, c[0], c[1], c[2], c[3], c[4], c[5], c[6], stream, parameters, extra);
}

/* Tensor maps: what the manual demands of addresses, strides and boxes. */
EXPORT int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *sizes,
                                  const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                                  int swizzle, int promotion, int fill) {
    (void)type, (void)sizes, (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    bool fine = rank >= 1 && rank <= 5 && (uintptr_t)address % 16 == 0;
    for (unsigned i = 0; fine && i < rank; i++) fine = box[i] >= 1 && box[i] <= 256;
    for (unsigned i = 0; fine && i + 1 < rank; i++) fine = strides[i] % 16 == 0;
    return memset(map, 0, 128), fine ? SUCCESS : INVALID_VALUE;
}
EXPORT int cuTensorMapEncodeIm2col(void *map, ...) { return memset(map, 0, 128), SUCCESS; }
EXPORT int cuTensorMapEncodeIm2colWide(void *map, ...) { return memset(map, 0, 128), SUCCESS; }

/* ---- graphs, again: the functions of the manual */

EXPORT int cuStreamBeginCapture_v2(void *stream, int mode) {
    (void)mode;
    if (fault) return fault;
    if (recording.graph) return INVALID_VALUE;
    recording.stream = stream;
    recording.graph = calloc(1, sizeof(struct graph));
    recording.broken = false;
    event("capture begins");
    return SUCCESS;
}
EXPORT int cuStreamEndCapture(void *stream, struct graph **made) {
    *made = NULL;
    if (!records(stream)) return INVALID_VALUE;
    *made = recording.broken ? NULL : recording.graph;
    event("capture ends: %zu nodes, %zu kernels, %zu copies%s", recording.graph->length, recording.graph->kernels,
          recording.graph->copies, recording.broken ? ", broken" : "");
    recording.graph = NULL;
    return *made ? SUCCESS : CAPTURE_INVALIDATED;
}
EXPORT int cuGraphGetNodes(struct graph *graph, struct node **nodes, size_t *number) {
    for (size_t i = 0; nodes && i < *number && i < graph->length; i++) nodes[i] = &graph->nodes[i];
    *number = graph->length;
    return SUCCESS;
}
EXPORT int cuGraphNodeGetType(const struct node *node, int *type) { return *type = node->type, SUCCESS; }
EXPORT int cuGraphInstantiateWithFlags(struct graph **made, struct graph *graph, unsigned long long flags) {
    (void)flags;
    *made = malloc(sizeof **made);
    **made = *graph;
    (*made)->nodes = malloc(graph->length * sizeof *graph->nodes + 1);
    memcpy((*made)->nodes, graph->nodes, graph->length * sizeof *graph->nodes);
    return SUCCESS;
}
EXPORT int cuGraphUpload(struct graph *graph, void *stream) { return (void)graph, (void)stream, fault; }
/* A replay uses the addresses of the recording: each must still be held. */
EXPORT int cuGraphLaunch(struct graph *graph, void *stream) {
    if (fault) return fault;
    if (records(stream)) return forbidden("a replay inside the capture");
    pthread_mutex_lock(&guard);
    for (size_t i = 0; i < graph->length; i++) {
        struct node *node = &graph->nodes[i];
        struct kernel *kernel = node->function;
        if (node->type == KERNEL_NODE) {
            count.launches++, ticks++;
            for (int j = 0; j < node->parameters; j++)
                if (kernel->parameter[j].pointer && !holder(node->values[j], 1)) bad("replay of a pointer that no live block holds, of", kernel->name);
        } else {
            count.copies++;
            if (!node->from_host && !holder(node->from, node->bytes)) bad("replay of a copy from", "what no live block holds");
            if (!node->to_host && !holder(node->to, node->bytes)) bad("replay of a copy to", "what no live block holds");
            memcpy((void *)(uintptr_t)node->to, (void *)(uintptr_t)node->from, node->bytes);
        }
    }
    count.replays++;
    event("replay of %zu nodes", graph->length);
    pthread_mutex_unlock(&guard);
    return SUCCESS;
}
EXPORT int cuGraphDestroy(struct graph *graph) { return free(graph->nodes), free(graph), SUCCESS; }
EXPORT int cuGraphExecDestroy(struct graph *graph) { return free(graph->nodes), free(graph), SUCCESS; }
