/* Counts the calls by which a process changes the files of one folder, and makes the N-th of them fail.
 *
 * It is preloaded, because the calls come from Rust (deltalake) and C++ (pyarrow) as well as Python. It does nothing
 * until faultfs_arm() maps a control file, whose layout shim.py defines. The file is shared memory, so that its report
 * survives a SIGKILL.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN = 1, WRITE = 2, SYNC = 4, RENAME = 8, LINK = 16, UNLINK = 32, MKDIR = 64, TRUNCATE = 128, READ = 256 };
enum { COUNT = 0, KILL_BEFORE = 1, KILL_AFTER = 2, TORN = 3, FAIL = 4, SHORT = 5, SLOW = 6 };
enum { UNDER_WAY = -1, PATH_LENGTH = 240, FOLDER_LENGTH = 512 };

struct entry {
    uint32_t kind;
    int32_t error; /* 0: success; an errno; UNDER_WAY: the process died in the call */
    uint64_t size; /* bytes requested to be written */
    char path[PATH_LENGTH];
};

struct control {
    uint32_t action;
    uint32_t error;          /* SLOW: milliseconds */
    uint32_t counted, kinds; /* masks of the calls that are counted, and that may fail */
    uint64_t at, times, capacity;
    char folder[FOLDER_LENGTH];
    uint64_t calls, fired, first_fired;
    struct entry entries[];
};

static struct control *control;

#define REAL(result, name, ...) static result (*real_##name)(__VA_ARGS__)
REAL(int, open, const char *, int, ...);
REAL(int, openat, int, const char *, int, ...);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
REAL(ssize_t, writev, int, const struct iovec *, int);
REAL(ssize_t, copy_file_range, int, off_t *, int, off_t *, size_t, unsigned);
REAL(ssize_t, sendfile, int, int, off_t *, size_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(int, rename, const char *, const char *);
REAL(int, renameat, int, const char *, int, const char *);
REAL(int, renameat2, int, const char *, int, const char *, unsigned);
REAL(int, link, const char *, const char *);
REAL(int, linkat, int, const char *, int, const char *, int);
REAL(int, symlink, const char *, const char *);
REAL(int, unlink, const char *);
REAL(int, unlinkat, int, const char *, int);
REAL(int, rmdir, const char *);
REAL(int, mkdir, const char *, mode_t);
REAL(int, mkdirat, int, const char *, mode_t);
REAL(int, ftruncate, int, off_t);

__attribute__((constructor)) static void find_the_real_ones(void) {
#define FIND(name) *(void **)&real_##name = dlsym(RTLD_NEXT, #name)
    FIND(open), FIND(openat), FIND(write), FIND(pwrite), FIND(writev), FIND(copy_file_range), FIND(sendfile);
    FIND(fsync), FIND(fdatasync), FIND(rename), FIND(renameat), FIND(renameat2), FIND(link), FIND(linkat);
    FIND(symlink), FIND(unlink), FIND(unlinkat), FIND(rmdir), FIND(mkdir), FIND(mkdirat), FIND(ftruncate);
}

int faultfs_arm(const char *path) {
    int file = real_open(path, O_RDWR | O_CLOEXEC);
    struct stat about;
    if (file < 0 || fstat(file, &about) < 0) return errno;
    void *mapped = mmap(NULL, about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return errno;
    control = mapped;
    return 0;
}

void faultfs_disarm(void) { control = NULL; }

/* Resolve a path to text, or the path of a descriptor if there is no path. */
static void locate(char *into, int folder, const char *path) {
    char link[64];
    size_t used = 0;
    if (!path || path[0] != '/') {
        if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, into, PATH_MAX - 1);
        used = length < 0 ? 0 : (size_t)length;
    }
    snprintf(into + used, PATH_MAX - used, "%s%s", used && path ? "/" : "", path ? path : "");
}

static int inside(const char *path) {
    size_t length = strlen(control->folder);
    return !strncmp(path, control->folder, length) && (path[length] == '/' || !path[length]);
}

/* The action for a call, and its entry in the report; COUNT and no entry for calls that are not counted. */
static int decide(uint32_t kind, const char *path, size_t size, struct entry **entry) {
    struct control *now = control;
    *entry = NULL;
    if (!(kind & now->counted) || !inside(path)) return COUNT;
    uint64_t number = __atomic_add_fetch(&now->calls, 1, __ATOMIC_SEQ_CST);
    if (number <= now->capacity) {
        *entry = &now->entries[number - 1];
        (*entry)->kind = kind, (*entry)->error = UNDER_WAY, (*entry)->size = size;
        size_t length = strlen(path), cut = length < PATH_LENGTH ? 0 : length - PATH_LENGTH + 1;
        strcpy((*entry)->path, path + cut);
    }
    if (now->action == COUNT || number < now->at || !(kind & now->kinds)) return COUNT;
    uint64_t before = __atomic_fetch_add(&now->fired, 1, __ATOMIC_SEQ_CST);
    if (before >= now->times) {
        __atomic_fetch_sub(&now->fired, 1, __ATOMIC_SEQ_CST);
        return COUNT;
    }
    if (before == 0) now->first_fired = number;
    if (now->action == SHORT) return before == 0 && kind == WRITE && size > 1 ? SHORT : FAIL;
    if (now->action == TORN && kind != WRITE) return KILL_AFTER;
    return now->action;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static void wait_a_while(void) {
    struct timespec rest = {control->error / 1000, control->error % 1000 * 1000000L};
    while (nanosleep(&rest, &rest) < 0 && errno == EINTR) continue;
}

#define NOTED(result) \
    do { \
        int kept = errno; \
        if (entry) entry->error = (result) < 0 ? kept : 0; \
        if (fate == KILL_AFTER) die(); \
        errno = kept; \
        return (result); \
    } while (0)

/* Perform a call according to its action. */
#define CARRY_OUT(type, kind, where, file, size, call) \
    do { \
        if (!control) return call; \
        char found[PATH_MAX]; \
        struct entry *entry; \
        locate(found, where, file); \
        int fate = decide(kind, found, size, &entry); \
        if (fate == KILL_BEFORE) die(); \
        if (fate == SLOW) wait_a_while(); \
        if (fate == FAIL) { \
            errno = (int)control->error; \
            if (entry) entry->error = errno; \
            return -1; \
        } \
        type result = call; \
        NOTED(result); \
    } while (0)

/* A write can be done by half. */
#define CARRY_OUT_WRITE(descriptor, size, half, whole) \
    do { \
        if (!control) return whole; \
        char found[PATH_MAX]; \
        struct entry *entry; \
        locate(found, descriptor, NULL); \
        int fate = decide(WRITE, found, size, &entry); \
        if (fate == KILL_BEFORE) die(); \
        if (fate == SLOW) wait_a_while(); \
        if (fate == FAIL) { \
            errno = (int)control->error; \
            if (entry) entry->error = errno; \
            return -1; \
        } \
        ssize_t result = fate == TORN || fate == SHORT ? half : whole; \
        if (fate == TORN) die(); \
        NOTED(result); \
    } while (0)

static uint32_t kind_of_open(int flags) {
    return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) ? OPEN : READ;
}

static mode_t mode_of_open(int flags, va_list arguments) {
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

#define WITH_MODE \
    va_list arguments; \
    va_start(arguments, flags); \
    mode_t mode = mode_of_open(flags, arguments); \
    va_end(arguments)

int open(const char *path, int flags, ...) {
    WITH_MODE;
    CARRY_OUT(int, kind_of_open(flags), AT_FDCWD, path, 0, real_open(path, flags, mode));
}

int open64(const char *path, int flags, ...) {
    WITH_MODE;
    CARRY_OUT(int, kind_of_open(flags), AT_FDCWD, path, 0, real_open(path, flags | O_LARGEFILE, mode));
}

int openat(int folder, const char *path, int flags, ...) {
    WITH_MODE;
    CARRY_OUT(int, kind_of_open(flags), folder, path, 0, real_openat(folder, path, flags, mode));
}

int openat64(int folder, const char *path, int flags, ...) {
    WITH_MODE;
    CARRY_OUT(int, kind_of_open(flags), folder, path, 0, real_openat(folder, path, flags | O_LARGEFILE, mode));
}

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

ssize_t write(int file, const void *bytes, size_t size) {
    CARRY_OUT_WRITE(file, size, real_write(file, bytes, size / 2), real_write(file, bytes, size));
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    CARRY_OUT_WRITE(file, size, real_pwrite(file, bytes, size / 2, at), real_pwrite(file, bytes, size, at));
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off_t at) { return pwrite(file, bytes, size, at); }

static size_t total(const struct iovec *parts, int count) {
    size_t sum = 0;
    for (int at = 0; at < count; at++) sum += parts[at].iov_len;
    return sum;
}

static ssize_t write_half(int file, const struct iovec *parts, int count) {
    size_t rest = total(parts, count) / 2;
    ssize_t written = 0;
    for (int at = 0; at < count && rest; at++) {
        size_t size = parts[at].iov_len < rest ? parts[at].iov_len : rest;
        ssize_t one = real_write(file, parts[at].iov_base, size);
        if (one < 0) return written ? written : -1;
        written += one, rest -= size;
    }
    return written;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    CARRY_OUT_WRITE(file, total(parts, count), write_half(file, parts, count), real_writev(file, parts, count));
}

ssize_t copy_file_range(int from, off_t *at, int to, off_t *to_at, size_t size, unsigned flags) {
    CARRY_OUT_WRITE(to, size, real_copy_file_range(from, at, to, to_at, size / 2, flags),
                    real_copy_file_range(from, at, to, to_at, size, flags));
}

ssize_t sendfile(int to, int from, off_t *at, size_t size) {
    CARRY_OUT_WRITE(to, size, real_sendfile(to, from, at, size / 2), real_sendfile(to, from, at, size));
}

ssize_t sendfile64(int to, int from, off_t *at, size_t size) { return sendfile(to, from, at, size); }

int fsync(int file) { CARRY_OUT(int, SYNC, file, NULL, 0, real_fsync(file)); }

int fdatasync(int file) { CARRY_OUT(int, SYNC, file, NULL, 0, real_fdatasync(file)); }

int rename(const char *from, const char *to) { CARRY_OUT(int, RENAME, AT_FDCWD, to, 0, real_rename(from, to)); }

int renameat(int at, const char *from, int to_at, const char *to) {
    CARRY_OUT(int, RENAME, to_at, to, 0, real_renameat(at, from, to_at, to));
}

int renameat2(int at, const char *from, int to_at, const char *to, unsigned flags) {
    CARRY_OUT(int, RENAME, to_at, to, 0, real_renameat2(at, from, to_at, to, flags));
}

int link(const char *from, const char *to) { CARRY_OUT(int, LINK, AT_FDCWD, to, 0, real_link(from, to)); }

int linkat(int at, const char *from, int to_at, const char *to, int flags) {
    CARRY_OUT(int, LINK, to_at, to, 0, real_linkat(at, from, to_at, to, flags));
}

int symlink(const char *from, const char *to) { CARRY_OUT(int, LINK, AT_FDCWD, to, 0, real_symlink(from, to)); }

int unlink(const char *path) { CARRY_OUT(int, UNLINK, AT_FDCWD, path, 0, real_unlink(path)); }

int unlinkat(int folder, const char *path, int flags) {
    CARRY_OUT(int, UNLINK, folder, path, 0, real_unlinkat(folder, path, flags));
}

int rmdir(const char *path) { CARRY_OUT(int, UNLINK, AT_FDCWD, path, 0, real_rmdir(path)); }

int mkdir(const char *path, mode_t mode) { CARRY_OUT(int, MKDIR, AT_FDCWD, path, 0, real_mkdir(path, mode)); }

int mkdirat(int folder, const char *path, mode_t mode) {
    CARRY_OUT(int, MKDIR, folder, path, 0, real_mkdirat(folder, path, mode));
}

int ftruncate(int file, off_t size) { CARRY_OUT(int, TRUNCATE, file, NULL, 0, real_ftruncate(file, size)); }

int ftruncate64(int file, off_t size) { return ftruncate(file, size); }
