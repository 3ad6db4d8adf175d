#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
ssize_t read(int file, void *bytes, size_t count) {
    char link[64], path[4096], *in = getenv("IN");
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = in ? readlink(link, path, sizeof path - 1) : -1;
    if (length > 0 && (path[length] = 0, strstr(path, in))) { errno = atoi(getenv("FAILS")); return -1; }
    return ((ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read"))(file, bytes, count);
}
int renameat2(int from, const char *old, int to, const char *new, unsigned how) { errno = EINVAL; return -1; }
int flock(int file, int how) {
    if (!getenv("LOCK")) return 0;
    errno = atoi(getenv("LOCK"));
    return -1;
}
