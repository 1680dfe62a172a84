/* A disk that fails, memory that runs out, and a clock that jumps, for one process: preloaded, then armed through the
   functions at the end.

   Calls that write below one folder are counted. The nth fails: with an errno, or, for `SHORT`, by writing only half. A
   full disk stays full; other errors happen once. Allocations of at least so many bytes are counted likewise: the nth
   fails, alone or with all that follow. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SHORT -1
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static char folder[PATH_MAX];
static long seen, fails_at = -1, clock_offset;
static int kind;

static int is_below(const char *path) { return *folder && !strncmp(path, folder, strlen(folder)); }

static int is_watched(int descriptor) {
    char link[64], path[PATH_MAX];
    if (!*folder) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

/* 1 if this call is to fail with errno set; 2 if it is to write only half. */
static int fails(int can_be_short) {
    long number = seen++;
    if (fails_at < 0 || number < fails_at || (kind != ENOSPC && number != fails_at)) return 0;
    if (kind == SHORT) return can_be_short ? 2 : 0;
    errno = kind;
    return 1;
}

#define WRITING(name, arguments, values, halved)                                      \
    ssize_t name arguments {                                                          \
        int how = is_watched(fd) ? fails(count > 1) : 0;                              \
        if (how == 1) return -1;                                                      \
        if (how == 2) return REAL(name) halved;                                       \
        return REAL(name) values;                                                     \
    }
WRITING(write, (int fd, const void *from, size_t count), (fd, from, count), (fd, from, count / 2))
WRITING(pwrite, (int fd, const void *from, size_t count, off_t at), (fd, from, count, at), (fd, from, count / 2, at))
WRITING(pwrite64, (int fd, const void *from, size_t count, off64_t at), (fd, from, count, at), (fd, from, count / 2, at))

#define CHANGING(name, arguments, values, watched)                                    \
    int name arguments { return (watched) && fails(0) ? -1 : REAL(name) values; }
CHANGING(fsync, (int fd), (fd), is_watched(fd))
CHANGING(fdatasync, (int fd), (fd), is_watched(fd))
CHANGING(ftruncate, (int fd, off_t size), (fd, size), is_watched(fd))
CHANGING(ftruncate64, (int fd, off64_t size), (fd, size), is_watched(fd))
CHANGING(rename, (const char *from, const char *to), (from, to), is_below(to))
CHANGING(mkdir, (const char *path, mode_t mode), (path, mode), is_below(path))

#define OPENING(name)                                                                 \
    int name(const char *path, int flags, ...) {                                      \
        va_list rest;                                                                 \
        va_start(rest, flags);                                                        \
        mode_t mode = va_arg(rest, mode_t);                                           \
        va_end(rest);                                                                 \
        if ((flags & O_CREAT) && is_below(path) && fails(0)) return -1;               \
        return REAL(name)(path, flags, mode);                                         \
    }
OPENING(open)
OPENING(open64)

/* glibc's own names, since looking up the next `malloc` allocates. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static long allocations, allocation_fails_at = -1;
static size_t counted_bytes = (size_t)-1;
static int stays_out;

static int runs_out(size_t size) {
    if (size < counted_bytes) return 0;
    long number = __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    if (allocation_fails_at < 0 || number < allocation_fails_at || (!stays_out && number != allocation_fails_at)) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return runs_out(size) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return runs_out(count * size) ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return runs_out(size) ? NULL : __libc_realloc(old, size); }
void *memalign(size_t boundary, size_t size) { return runs_out(size) ? NULL : __libc_memalign(boundary, size); }
void *aligned_alloc(size_t boundary, size_t size) { return memalign(boundary, size); }
int posix_memalign(void **made, size_t boundary, size_t size) {
    void *found = memalign(boundary, size);
    if (!found) return ENOMEM;
    *made = found;
    return 0;
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (runs_out(size)) return MAP_FAILED;
    return REAL(mmap)(at, size, protection, flags, fd, offset);
}

int clock_gettime(clockid_t which, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = REAL(clock_gettime);
    int result = real(which, now);
    if (!result && which == CLOCK_REALTIME) now->tv_sec += clock_offset;
    return result;
}

void failing_disk_arm(const char *below, long number, int how) {
    snprintf(folder, sizeof folder, "%s", below);
    seen = 0, fails_at = number, kind = how;
}
long failing_disk_seen(void) { return seen; }
void failing_disk_clock(long offset) { clock_offset = offset; }
void failing_memory_arm(long number, long at_least, int for_good) {
    allocations = 0, allocation_fails_at = number, counted_bytes = at_least, stays_out = for_good;
}
long failing_memory_seen(void) { return allocations; }
