/* Counts the file operations of a process below one folder, logs them, and makes one of them fail or the last.
 *
 * Loaded by LD_PRELOAD. Nothing happens until soak_arm() is called, usually in a forked child. Every operation that
 * changes what is on the disk has a number, from 1. Operations are made one at a time, so that the log has their order.
 *
 * A line of the log: number, kind, inode, offset, length, path, second path (separated by tabs), then so many bytes of
 * data as the length says. Reads, modes and times are not operations, and neither are writes to mapped memory, which
 * SQLite alone makes, to a file that it makes anew after a crash.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault { NONE, KILL, TEAR, EIO_ONCE, EIO_EVER, ENOSPC_EVER, SHORT_ONCE };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int log_file = -1;
static pid_t armed; /* a child that it forks is not watched */
static long count, at;
static enum fault asked, lasting;

/* The function of the C library that stands behind one of ours. */
#define REAL(name)                                                          \
    ({                                                                      \
        static __typeof__(&name) real;                                      \
        if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);       \
        real;                                                               \
    })

static void say(const char *text, size_t size) {
    while (size > 0) {
        ssize_t done = syscall(SYS_write, log_file, text, size);
        if (done <= 0) abort();
        text += done;
        size -= done;
    }
}

static void note(const char *kind, ino_t inode, off_t offset, const void *data, size_t size, const char *path,
                 const char *second) {
    char line[2 * PATH_MAX + 200];
    int length = snprintf(line, sizeof line, "%ld\t%s\t%lu\t%lld\t%zu\t%s\t%s\n", count, kind, (unsigned long)inode,
                          (long long)offset, size, path, second);
    say(line, length);
    if (size > 0) say(data, size);
}

static void die(void) {
    kill(getpid(), SIGKILL);
    pause();
}

/* Count an operation, and say what becomes of it. */
static enum fault step(const char *kind, const char *path) {
    count++;
    enum fault now = NONE;
    if (count == at) {
        now = asked;
        if (asked == EIO_EVER || asked == ENOSPC_EVER) lasting = asked;
        note("FAULT", 0, 0, kind, strlen(kind), path, "");
    } else if (lasting == EIO_EVER) {
        now = lasting;
    } else if (lasting == ENOSPC_EVER && strstr("WRITE CREATE MKDIR LINK", kind)) {
        now = lasting;
    }
    if (now == KILL || (now == TEAR && strcmp(kind, "WRITE"))) die();
    return now;
}

/* Whether an operation that is made as a whole fails now; sets errno. */
static int fails(const char *kind, const char *path) {
    switch (step(kind, path)) {
        case EIO_ONCE:
        case EIO_EVER:
            errno = EIO;
            return 1;
        case ENOSPC_EVER:
            errno = ENOSPC;
            return 1;
        default:
            return 0;
    }
}

static int watched(void) { return log_file >= 0 && getpid() == armed; }

static int below_root(const char *path) {
    return !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int path_of(int file, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

/* The whole path of a name; whether it is below the root. */
static int resolve(int folder, const char *name, char *path) {
    if (!watched() || !name) return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char above[PATH_MAX];
        if (folder == AT_FDCWD ? !getcwd(above, sizeof above) : !path_of(folder, above)) return 0;
        if (snprintf(path, PATH_MAX, "%s/%s", above, name) >= PATH_MAX) return 0;
    }
    return below_root(path);
}

/* Whether an open file is one of the root's; its path and inode. */
static int known(int file, char *path, struct stat *status) {
    int before = errno, found;
    found = watched() && path_of(file, path) && below_root(path) && !fstat(file, status) &&
            (S_ISREG(status->st_mode) || S_ISDIR(status->st_mode));
    errno = before;
    return found;
}

/* From now on, operations below the folder are counted; number `number` meets the fault, 0 none. */
void soak_arm(const char *folder, const char *log, long number, int fault) {
    int opened = REAL(open)(log, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    root_length = snprintf(root, sizeof root, "%s", folder);
    count = 0;
    at = number;
    asked = fault;
    armed = getpid();
    lasting = NONE;
    log_file = fcntl(opened, F_DUPFD_CLOEXEC, 500);
    REAL(close)(opened);
    if (log_file < 0) abort();
}

/* A point of the program that is no operation on a file, but has its number in the order, and can be killed at. */
void soak_mark(const char *text) {
    if (!watched()) return;
    pthread_mutex_lock(&lock);
    step("MARK", text);
    note("MARK", 0, 0, "", 0, text, "");
    pthread_mutex_unlock(&lock);
}

static ssize_t put(int file, const char *data, size_t size, off_t offset, const char *path, const struct stat *status) {
    pthread_mutex_lock(&lock);
    enum fault now = step("WRITE", path);
    ssize_t done = -1;
    if (now == EIO_ONCE || now == EIO_EVER) {
        errno = EIO;
    } else if (now == ENOSPC_EVER) {
        errno = ENOSPC;
    } else {
        off_t from = offset;
        if (offset < 0) {
            int end = fcntl(file, F_GETFL) & O_APPEND;
            from = end ? status->st_size : lseek(file, 0, SEEK_CUR);
        }
        if (now == SHORT_ONCE && size > 1) size /= 2;
        if (now == TEAR) size = size < 8192 ? 0 : count * 7 % (size / 4096) * 4096; /* a page is written whole or not at all */
        done = offset < 0 ? REAL(write)(file, data, size) : REAL(pwrite)(file, data, size, offset);
        if (done > 0) note("WRITE", status->st_ino, from, data, done, path, "");
        if (now == TEAR) die();
    }
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

static ssize_t put_vector(int file, const struct iovec *parts, int number, off_t offset, const char *path,
                          const struct stat *status) {
    size_t size = 0, end = 0;
    for (int i = 0; i < number; i++) size += parts[i].iov_len;
    char *whole = malloc(size + 1);
    for (int i = 0; i < number; end += parts[i++].iov_len) memcpy(whole + end, parts[i].iov_base, parts[i].iov_len);
    ssize_t done = put(file, whole, size, offset, path, status);
    free(whole);
    return done;
}

#define WRITES(name, arguments, call, wrapped)                  \
    ssize_t name arguments {                                    \
        char path[PATH_MAX];                                    \
        struct stat status;                                     \
        return known(file, path, &status) ? wrapped : REAL(name) call; \
    }

WRITES(write, (int file, const void *data, size_t size), (file, data, size), put(file, data, size, -1, path, &status))
WRITES(pwrite, (int file, const void *data, size_t size, off_t offset), (file, data, size, offset),
       put(file, data, size, offset, path, &status))
WRITES(pwrite64, (int file, const void *data, size_t size, off64_t offset), (file, data, size, offset),
       put(file, data, size, offset, path, &status))
WRITES(writev, (int file, const struct iovec *parts, int number), (file, parts, number),
       put_vector(file, parts, number, -1, path, &status))
WRITES(pwritev, (int file, const struct iovec *parts, int number, off_t offset), (file, parts, number, offset),
       put_vector(file, parts, number, offset, path, &status))
WRITES(pwritev64, (int file, const struct iovec *parts, int number, off64_t offset), (file, parts, number, offset),
       put_vector(file, parts, number, offset, path, &status))

/* Copies inside the kernel are refused, so that programs copy by write. */
ssize_t sendfile(int file, int from, off_t *offset, size_t size) {
    char path[PATH_MAX];
    struct stat status;
    if (known(file, path, &status)) return errno = EINVAL, -1;
    return syscall(SYS_sendfile, file, from, offset, size);
}
ssize_t sendfile64(int file, int from, off64_t *offset, size_t size) { return sendfile(file, from, offset, size); }
ssize_t copy_file_range(int from, off64_t *start, int file, off64_t *end, size_t size, unsigned flags) {
    char path[PATH_MAX];
    struct stat status;
    if (known(file, path, &status)) return errno = EXDEV, -1;
    return syscall(SYS_copy_file_range, from, start, file, end, size, flags);
}

/* Room is never set aside: what needs it writes. */
#define NO_ROOM(name, arguments, call, refused)                 \
    int name arguments {                                        \
        char path[PATH_MAX];                                    \
        struct stat status;                                     \
        if (known(file, path, &status)) return refused;         \
        return REAL(name) call;                                 \
    }
NO_ROOM(fallocate, (int file, int mode, off_t start, off_t size), (file, mode, start, size), (errno = EOPNOTSUPP, -1))
NO_ROOM(fallocate64, (int file, int mode, off64_t start, off64_t size), (file, mode, start, size),
        (errno = EOPNOTSUPP, -1))
NO_ROOM(posix_fallocate, (int file, off_t start, off_t size), (file, start, size), EINVAL)
NO_ROOM(posix_fallocate64, (int file, off64_t start, off64_t size), (file, start, size), EINVAL)

/* An operation on an open file that is made as a whole. */
#define ON_FILE(name, arguments, call, kind, offset)                                             \
    int name arguments {                                                                         \
        char path[PATH_MAX];                                                                     \
        struct stat status;                                                                      \
        if (!known(file, path, &status)) return REAL(name) call;                                 \
        pthread_mutex_lock(&lock);                                                               \
        int done = fails(kind, path) ? -1 : REAL(name) call;                                     \
        int error = errno;                                                                       \
        if (!done) note(kind, status.st_ino, offset, "", 0, path, "");                           \
        pthread_mutex_unlock(&lock);                                                             \
        errno = error;                                                                           \
        return done;                                                                             \
    }
ON_FILE(fsync, (int file), (file), "SYNC", 0)
ON_FILE(fdatasync, (int file), (file), "SYNC", 0)
ON_FILE(ftruncate, (int file, off_t size), (file, size), "TRUNCATE", size)
ON_FILE(ftruncate64, (int file, off64_t size), (file, size), "TRUNCATE", size)

int close(int file) {
    char path[PATH_MAX];
    struct stat status;
    if (!known(file, path, &status) || (fcntl(file, F_GETFL) & O_ACCMODE) == O_RDONLY) return REAL(close)(file);
    pthread_mutex_lock(&lock);
    int failed = fails("CLOSE", path), error = errno;
    int done = REAL(close)(file); /* a file is closed even where this is told to have failed */
    if (failed) {
        done = -1;
        errno = error;
    }
    note("CLOSE", status.st_ino, 0, "", 0, path, "");
    pthread_mutex_unlock(&lock);
    return done;
}

/* An operation on a name that is made as a whole. */
static int on_name(const char *kind, const char *path, const char *second, int folder, const char *name, int other,
                   const char *new_name, int flags) {
    pthread_mutex_lock(&lock);
    int done = -1;
    if (!fails(kind, path)) {
        if (!strcmp(kind, "RENAME") || !strcmp(kind, "EXCHANGE"))
            done = syscall(SYS_renameat2, folder, name, other, new_name, flags);
        if (!strcmp(kind, "LINK")) done = syscall(SYS_linkat, folder, name, other, new_name, flags);
        if (!strcmp(kind, "MKDIR")) done = syscall(SYS_mkdirat, folder, name, flags);
        if (!strcmp(kind, "UNLINK") || !strcmp(kind, "RMDIR")) done = syscall(SYS_unlinkat, folder, name, flags);
        if (!strcmp(kind, "TRUNCATE")) done = syscall(SYS_truncate, name, (off_t)flags);
        int error = errno;
        if (!done) note(kind, 0, !strcmp(kind, "TRUNCATE") ? flags : 0, "", 0, path, second);
        errno = error;
    }
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

int renameat2(int folder, const char *name, int other, const char *new_name, unsigned flags) {
    char path[PATH_MAX], second[PATH_MAX];
    if (!resolve(folder, name, path) || !resolve(other, new_name, second))
        return syscall(SYS_renameat2, folder, name, other, new_name, flags);
    const char *kind = flags & RENAME_EXCHANGE ? "EXCHANGE" : "RENAME";
    return on_name(kind, path, second, folder, name, other, new_name, flags);
}
int renameat(int folder, const char *name, int other, const char *new_name) {
    return renameat2(folder, name, other, new_name, 0);
}
int rename(const char *name, const char *new_name) { return renameat2(AT_FDCWD, name, AT_FDCWD, new_name, 0); }

int linkat(int folder, const char *name, int other, const char *new_name, int flags) {
    char path[PATH_MAX], second[PATH_MAX];
    if (!resolve(folder, name, path) || !resolve(other, new_name, second))
        return syscall(SYS_linkat, folder, name, other, new_name, flags);
    return on_name("LINK", path, second, folder, name, other, new_name, flags);
}
int link(const char *name, const char *new_name) { return linkat(AT_FDCWD, name, AT_FDCWD, new_name, 0); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    struct stat status;
    if (!resolve(folder, name, path) || !fstatat(folder, name, &status, 0))
        return syscall(SYS_mkdirat, folder, name, mode);
    return on_name("MKDIR", path, "", folder, name, 0, "", mode);
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int unlinkat(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    struct stat status;
    if (!resolve(folder, name, path) || fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW))
        return syscall(SYS_unlinkat, folder, name, flags);
    return on_name(flags & AT_REMOVEDIR ? "RMDIR" : "UNLINK", path, "", folder, name, 0, "", flags);
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) {
    struct stat status;
    return !lstat(name, &status) && S_ISDIR(status.st_mode) ? rmdir(name) : unlink(name);
}

int truncate(const char *name, off_t size) {
    char path[PATH_MAX];
    if (!resolve(AT_FDCWD, name, path)) return syscall(SYS_truncate, name, size);
    return on_name("TRUNCATE", path, "", AT_FDCWD, name, 0, "", size);
}
int truncate64(const char *name, off64_t size) { return truncate(name, size); }

static int open_at(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    struct stat status;
    if (!(flags & (O_CREAT | O_TRUNC)) || !resolve(folder, name, path))
        return syscall(SYS_openat, folder, name, flags, mode);
    int before = errno, there = !fstatat(folder, name, &status, 0);
    errno = before;
    if (there ? !(flags & O_TRUNC) || (flags & O_EXCL) : !(flags & O_CREAT))
        return syscall(SYS_openat, folder, name, flags, mode);
    const char *kind = there ? "TRUNCATE" : "CREATE";
    pthread_mutex_lock(&lock);
    int file = fails(kind, path) ? -1 : (int)syscall(SYS_openat, folder, name, flags, mode), error = errno;
    if (file >= 0 && !fstat(file, &status)) note(kind, status.st_ino, 0, "", 0, path, "");
    pthread_mutex_unlock(&lock);
    errno = error;
    return file;
}

#define OPENS(name, arguments, folder)                          \
    int name arguments {                                        \
        mode_t mode = 0;                                        \
        if (flags & (O_CREAT | O_TMPFILE)) {                    \
            va_list more;                                       \
            va_start(more, flags);                              \
            mode = va_arg(more, mode_t);                        \
            va_end(more);                                       \
        }                                                       \
        return open_at(folder, path, flags, mode);              \
    }
OPENS(open, (const char *path, int flags, ...), AT_FDCWD)
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD)
OPENS(openat, (int folder, const char *path, int flags, ...), folder)
OPENS(openat64, (int folder, const char *path, int flags, ...), folder)
int creat(const char *path, mode_t mode) { return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }
