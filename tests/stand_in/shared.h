/* Settings and counters that driver and management library share. */
#ifndef STAND_IN_H
#define STAND_IN_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
#define MIB ((uint64_t)1 << 20)
#define DEVICES_MAX 16

/* What the driver has done, by physical device where it matters. The management library finds it by name. */
struct stand_in_state {
    uint64_t used[DEVICES_MAX], context_bytes[DEVICES_MAX];
    uint64_t others;
    int devices, capability, version;
    int lost; /* the bus no longer has the device */
    uint64_t memory;
};

/* A kernel and what its code tells (launches.c). */
enum { PARAMETERS_MAX = 256 };
struct kernel {
    char *name;
    int threads_max, parameters;
    bool loops;
    struct parameter {
        bool pointer;
        unsigned bytes;                  /* of the parameter itself */
        unsigned read, written, element; /* bytes of the widest access to its buffer, and of the smallest value */
    } parameter[PARAMETERS_MAX];
};
void read_kernel(struct kernel *kernel, const char *entry);
/* A line of JSON. A buffer has at most so much room, in bytes, in the order of the parameters. */
void write_launch(FILE *file, const struct kernel *kernel, const unsigned *grid, const unsigned *block, void **arguments,
                  const uint64_t *room);

static inline double setting(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text && *text ? atof(text) : otherwise;
}
#endif
