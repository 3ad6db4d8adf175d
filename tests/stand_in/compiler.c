/* A stand-in for CUDA's run-time compiler (NVRTC): see README.md. Makes an empty kernel with the name and the parameters of
 * the source, or has the real one make it. */
#define _GNU_SOURCE
#include "shared.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_INPUT = 3, COMPILATION = 6, INTERNAL = 11 };

struct program {
    char *source, *code, *log;
    void *real;
};

static void *real(const char *name) {
    static void *library;
    const char *path = getenv("STAND_IN_NVRTC_REAL");
    if (!path) return NULL;
    if (!library) library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "stand-in: %s\n", dlerror());
        _exit(99);
    }
    return dlsym(library, name);
}

static void version_of(int *major, int *minor) {
    const char *text = getenv("STAND_IN_NVRTC");
    *major = 13, *minor = 0;
    if (text) sscanf(text, "%d.%d", major, minor);
}

EXPORT int nvrtcVersion(int *major, int *minor) {
    int (*asked)(int *, int *) = real("nvrtcVersion");
    return asked ? asked(major, minor) : (version_of(major, minor), SUCCESS);
}
static const int architectures[] = {50, 60, 70, 75, 80, 86, 87, 89, 90, 100, 120};
/* CUDA 13 left out what is older than 7.5; 12.8 brought 10.0 and 12.0. */
static bool knows(int architecture) {
    int major, minor;
    nvrtcVersion(&major, &minor);
    return !(major >= 13 && architecture < 75) && !(major * 100 + minor < 1208 && architecture >= 100);
}
EXPORT int nvrtcGetSupportedArchs(int *found) {
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (knows(architectures[i])) *found++ = architectures[i];
    return SUCCESS;
}
EXPORT int nvrtcGetNumSupportedArchs(int *count) {
    *count = 0;
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) *count += knows(architectures[i]);
    return SUCCESS;
}
EXPORT const char *nvrtcGetErrorString(int code) {
    return code == COMPILATION ? "NVRTC_ERROR_COMPILATION" : code ? "NVRTC_ERROR_INTERNAL_ERROR" : "NVRTC_SUCCESS";
}

/* What is to be compiled, one file each, for whoever wants to look at it or to time it. */
static void keep_source(const char *source) {
    static int number;
    const char *folder = getenv("STAND_IN_SOURCES");
    char path[4096];
    if (!folder) return;
    snprintf(path, sizeof path, "%s/%05d.cu", folder, number++);
    FILE *file = fopen(path, "w");
    if (!file) return;
    fputs(source, file);
    fclose(file);
}

EXPORT int nvrtcCreateProgram(struct program **made, const char *source, const char *name, int count,
                              const char *const *headers, const char *const *names) {
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *) =
        real("nvrtcCreateProgram");
    struct program *program = calloc(1, sizeof *program);
    program->source = strdup(source);
    keep_source(source);
    *made = program;
    return create ? create(&program->real, source, name, count, headers, names) : SUCCESS;
}

/* Where the list of parameters of the first kernel begins; its name is written down. */
static const char *signature(const char *source, char name[512]) {
    const char *at = strstr(source, "__global__");
    const char *bounds = at ? strstr(at, "__launch_bounds__(") : NULL;
    if (bounds) at = strchr(bounds, ')');
    const char *open = at ? strchr(at + 1, '(') : NULL;
    if (!open) return NULL;
    const char *end = open;
    while (end > at && (end[-1] == ' ' || end[-1] == '\n')) end--;
    const char *begin = end;
    while (begin > at && begin[-1] != ' ' && begin[-1] != '\n' && begin[-1] != ')') begin--;
    snprintf(name, 512, "%.*s", (int)(end - begin), begin);
    return open + 1;
}

/* Headers are not read, but for the one that may refuse to be compiled. */
static bool refused(const char *source, int count, const char *const *options) {
    const char *header = "cooperative_groups.h";
    char path[4096], text[8] = "";
    for (int i = 0; i < count && strstr(source, header) && !*text; i++) {
        if (strncmp(options[i], "--include-path=", 15)) continue;
        snprintf(path, sizeof path, "%s/%s", options[i] + 15, header);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (!fgets(text, sizeof text, file)) *text = 0;
        fclose(file);
    }
    return !strcmp(text, "#error ");
}

static int compile(struct program *program, int count, const char *const *options) {
    char name[512], target[32] = "75";
    const char *at = signature(program->source, name);
    if (refused(program->source, count, options)) return program->log = strdup("#error directive\n"), COMPILATION;
    for (int i = 0; i < count; i++) sscanf(options[i], "--gpu-architecture=sm_%31s", target);
    if (!at || !knows(atoi(target))) {
        program->log = strdup(at ? "nvrtc: error: invalid value for --gpu-architecture (-arch)\n" : "no kernel\n");
        return COMPILATION;
    }
    int major, minor;
    version_of(&major, &minor);
    size_t room = 4096 + strlen(name) + 64 * 256, used = 0;
    program->code = malloc(room);
    double ptx = major >= 13 ? 9.0 + minor * 0.1 : major == 12 ? 8.0 + (minor >= 8 ? minor - 1 : minor) * 0.1 : 7.0;
    used += snprintf(program->code, room, ".version %.1f\n.target sm_%s\n.address_size 64\n.visible .entry %s(", ptx, target, name);
    int depth = 0, number = 0;
    bool pointer = false, any = false;
    for (; *at && number < 250; at++) {
        depth += (*at == '(' || *at == '<' || *at == '[') - (*at == ')' || *at == '>' || *at == ']');
        bool last = depth < 0;
        if (*at == '*') pointer = true;
        if (*at > ' ' && !last) any = true;
        if (last || (*at == ',' && depth == 0)) {
            const char *type = pointer ? ".u64" : ".align 8 .b8";
            if (any) {
                used += snprintf(program->code + used, room - used, "%s.param %s p%d", number ? ", " : "", type, number);
                number++;
            }
            pointer = false;
        }
        if (last) break;
    }
    snprintf(program->code + used, room - used, ")\n{\nret;\n}\n");
    return SUCCESS;
}

/* What does not compile: tuning leaves it out without a word. */
static int noted(int result, const char *log) {
    const char *path = getenv("STAND_IN_NOT_COMPILED");
    FILE *file = result && path ? fopen(path, "a") : NULL;
    if (file) fprintf(file, "%s\n", log ? log : "no log"), fclose(file);
    return result;
}

EXPORT int nvrtcCompileProgram(struct program *program, int count, const char *const *options) {
    usleep((useconds_t)(1000 * setting("STAND_IN_COMPILE_MS", 0)));
    int (*compiled)(void *, int, const char *const *) = real("nvrtcCompileProgram");
    if (!compiled) {
        int result = compile(program, count, options);
        return noted(result, program->log);
    }
    int result = compiled(program->real, count, options);
    int (*size)(void *, size_t *) = real(result ? "nvrtcGetProgramLogSize" : "nvrtcGetPTXSize");
    int (*get)(void *, char *) = real(result ? "nvrtcGetProgramLog" : "nvrtcGetPTX");
    size_t bytes = 0;
    size(program->real, &bytes);
    char *text = calloc(1, bytes + 1);
    get(program->real, text);
    *(result ? &program->log : &program->code) = text;
    return noted(result, text);
}

static int size_of(const char *text, size_t *size) { return *size = text ? strlen(text) + 1 : 1, SUCCESS; }
static int text_of(const char *text, char *to) { return strcpy(to, text ? text : ""), SUCCESS; }
EXPORT int nvrtcGetPTXSize(struct program *program, size_t *size) { return size_of(program->code, size); }
EXPORT int nvrtcGetPTX(struct program *program, char *to) { return text_of(program->code, to); }
EXPORT int nvrtcGetProgramLogSize(struct program *program, size_t *size) { return size_of(program->log, size); }
EXPORT int nvrtcGetProgramLog(struct program *program, char *to) { return text_of(program->log, to); }
EXPORT int nvrtcDestroyProgram(struct program **gone) {
    struct program *program = *gone;
    free(program->source), free(program->code), free(program->log), free(program);
    return *gone = NULL, SUCCESS;
}
