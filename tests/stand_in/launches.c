/* What the code of a kernel and its arguments tell of the work of a launch: see README.md. */
#include "shared.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { REGISTERS_MAX = 1 << 16, RANK_MAX = 8 };

static const char *word_end(const char *at) { return at + strcspn(at, " \t,;)]\n"); }

/* Number of a 64-bit register at this place, or -1. */
static int address_register(const char *at) {
    if (strncmp(at, "%rd", 3)) return -1;
    int number = atoi(at + 3);
    return number < REGISTERS_MAX ? number : -1;
}

/* Bytes of a value of the type that an opcode ends with: `.v4.b32` are 16. */
static unsigned width(const char *opcode, const char *end) {
    unsigned bytes = 0, times = 1;
    for (const char *at = opcode; at < end; at++) {
        if (*at != '.') continue;
        if (at[1] == 'v' && isdigit((unsigned char)at[2])) times = (unsigned)atoi(at + 2);
        const char *digits = at + 1 + strspn(at + 1, "bfus");
        int bits = digits > at + 1 ? atoi(digits) : 0;
        if (bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128) {
            bytes = (unsigned)bits / 8;
            const char *twice = strpbrk(digits, "x.");
            if (twice && twice < end && twice[0] == 'x' && twice[1] == '2') times *= 2;
        }
    }
    return bytes * times;
}

/* Parameters: their sizes, and which are addresses. */
static void read_parameters(struct kernel *kernel, const char *entry, const char *body) {
    for (const char *at = strstr(entry, ".param "); at && at < body; at = strstr(at + 1, ".param ")) {
        if (kernel->parameters == PARAMETERS_MAX) return;
        struct parameter *made = &kernel->parameter[kernel->parameters++];
        made->pointer = strncmp(at + 7, ".u64", 4) == 0 || strncmp(at + 7, ".b64", 4) == 0;
        const char *end = at + strcspn(at, ",)"), *array = memchr(at, '[', (size_t)(end - at));
        made->bytes = array ? (unsigned)atoi(array + 1) : width(at + 6, word_end(at + 7));
    }
}

/* Follows addresses from the parameters through the code, once more for those that a loop carries. An access through an address is one
 * to the buffer of its parameter. */
static void read_accesses(struct kernel *kernel, const char *body) {
    short *of = malloc(REGISTERS_MAX * sizeof *of);
    if (!of) return;
    for (int i = 0; i < REGISTERS_MAX; i++) of[i] = -1;
    for (int pass = 0; pass < 2; pass++) {
        for (const char *line = body; line; line = strchr(line, '\n')) {
            line += strspn(line, " \t\n");
            if (*line == '@') line = word_end(line) + strspn(word_end(line), " \t");
            if (!*line) break;
            const char *end = line + strcspn(line, "\n"), *after = word_end(line), *first = after + strspn(after, " \t");
            if (strncmp(line, "ld.param", 8) == 0) {
                const char *name = memchr(first, '[', (size_t)(end - first));
                const char *number = name ? strstr(name, "_param_") : NULL;
                int to = address_register(first);
                if (to >= 0 && number && number < end && atoi(number + 7) < kernel->parameters
                    && kernel->parameter[atoi(number + 7)].pointer)
                    of[to] = (short)atoi(number + 7);
                continue;
            }
            const char *bracket = memchr(first, '[', (size_t)(end - first));
            int carried = -1;
            for (const char *at = bracket ? bracket : first; at < end && carried < 0; at++)
                if (at != first && address_register(at) >= 0) carried = of[address_register(at)];
            /* cp.async: from the second address */
            if (bracket && carried < 0) continue;
            if (carried < 0) continue;
            if (!bracket) {
                static const char *const moves[] = {"add", "sub", "mad", "mov", "selp", "cvta", "max", "min"};
                int to = address_register(first);
                for (size_t i = 0; to >= 0 && of[to] < 0 && i < sizeof moves / sizeof *moves; i++)
                    if (strncmp(line, moves[i], strlen(moves[i])) == 0) of[to] = (short)carried;
                continue;
            }
            struct parameter *used = &kernel->parameter[carried];
            bool both = strncmp(line, "atom", 4) == 0 || strncmp(line, "red", 3) == 0;
            bool writes = both || strncmp(line, "st", 2) == 0 || strncmp(line, "wmma.store", 10) == 0;
            unsigned bytes = width(line, after);
            if (strncmp(line, "cp.async", 8) == 0) {
                const char *last = strchr(strchr(bracket + 1, '[') ? strchr(bracket + 1, '[') : bracket, ']');
                bytes = last && last < end ? (unsigned)atoi(last + 1 + strspn(last + 1, ", ")) : 0;
            }
            if (writes && bytes > used->written) used->written = bytes;
            if ((!writes || both) && bytes > used->read) used->read = bytes;
            unsigned one = width(line, after);
            for (const char *at = line; at < after; at++)
                if (at[0] == '.' && at[1] == 'v' && isdigit((unsigned char)at[2])) one /= (unsigned)atoi(at + 2);
            if (one && (!used->element || one < used->element)) used->element = one;
        }
    }
    free(of);
}

/* A loop is a branch to a label above it. */
static bool has_loop(const char *body) {
    for (const char *at = strstr(body, "bra"); at; at = strstr(at + 1, "bra")) {
        const char *label = strchr(at, '$');
        if (!label || label > at + strcspn(at, "\n")) continue;
        size_t length = strcspn(label, "; \t\n");
        for (const char *place = body; place && place < at; place = strchr(place + 1, '\n')) {
            const char *text = place + strspn(place, "\n\t ");
            if (strncmp(text, label, length) == 0 && text[length] == ':' && text < at) return true;
        }
    }
    return false;
}

void read_kernel(struct kernel *kernel, const char *entry) {
    const char *body = strchr(entry, '{');
    if (!body) body = entry + strlen(entry);
    read_parameters(kernel, entry, body);
    read_accesses(kernel, body);
    kernel->loops = has_loop(body);
}

/* Numbers of elements of the buffers, in the order of their parameters. CubeCL ends the parameter that it passes by value with them, as 32-
 * or 64-bit numbers, and with an offset of shapes and one of strides for each tensor: those of strides follow those of shapes. */
static int lengths(const unsigned char *info, unsigned bytes, int pointers, bool may_have_shapes, const uint64_t *most, uint64_t *into) {
    for (unsigned size = 4; size <= 8; size += 4) {
        for (int tensors = may_have_shapes ? pointers : 0; tensors >= 0; tensors--) {
            /* The shapes are in a buffer of their own, which is the last. */
            int buffers = pointers - (tensors > 0);
            unsigned part = ((unsigned)(buffers + 2 * tensors) * size + 7) / 8 * 8;
            if (buffers < 1 || tensors > buffers || part > bytes || (tensors == 0 && size == 8)) continue;
            uint64_t number[3 * PARAMETERS_MAX];
            for (int i = 0; i < buffers + 2 * tensors; i++) {
                uint32_t small;
                if (size == 4) memcpy(&small, info + bytes - part + 4 * i, 4), number[i] = small;
                else memcpy(&number[i], info + bytes - part + 8 * i, 8);
            }
            const uint64_t *shapes = number + buffers, *strides = shapes + tensors;
            bool fits = true;
            for (int i = 0; fits && i < tensors; i++)
                fits = strides[i] == strides[0] + shapes[i] && (i ? shapes[i] >= shapes[i - 1] : shapes[0] == 0)
                    && strides[0] > shapes[i] && strides[0] <= (unsigned)tensors * RANK_MAX;
            for (int i = 0; fits && i < buffers; i++) fits = number[i] <= most[i];
            if (!fits) continue;
            memcpy(into, number, (size_t)buffers * sizeof *into);
            return buffers;
        }
    }
    return 0;
}

static unsigned unit(const struct parameter *at) { return at->read > at->written ? at->read : at->written; }

void write_launch(FILE *file, const struct kernel *kernel, const unsigned *grid, const unsigned *block, void **arguments,
                  const uint64_t *room) {
    uint64_t length[PARAMETERS_MAX] = {0}, most[PARAMETERS_MAX];
    int pointers = 0, last = kernel->parameters - 1;
    for (int i = 0; i <= last; i++)
        if (kernel->parameter[i].pointer) most[pointers++] = room[i] / (unit(&kernel->parameter[i]) ? unit(&kernel->parameter[i]) : 1);
    /* No kernel writes to the buffer of shapes. */
    bool may_have_shapes = last > 0 && kernel->parameter[last - 1].pointer && !kernel->parameter[last - 1].written;
    int known = last >= 0 && !kernel->parameter[last].pointer
        ? lengths(arguments[last], kernel->parameter[last].bytes, pointers, may_have_shapes, most, length) : 0;
    fprintf(file, "{\"kernel\":\"%s\",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"loops\":%s,\"buffers\":[", kernel->name, grid[0], grid[1],
            grid[2], block[0], block[1], block[2], kernel->loops ? "true" : "false");
    for (int i = 0, number = 0; i <= last && number < known; i++) {
        const struct parameter *at = &kernel->parameter[i];
        if (!at->pointer) continue;
        /* A length counts vectors: as many bytes as the widest access has. */
        uint64_t elements = length[number] * (at->element ? unit(at) / at->element : 1), bytes = length[number] * unit(at);
        fprintf(file, "%s[%llu,%llu,%llu]", number ? "," : "", (unsigned long long)elements,
                (unsigned long long)(at->read ? bytes : 0), (unsigned long long)(at->written ? bytes : 0));
        number++;
    }
    fputs("]}\n", file);
}
