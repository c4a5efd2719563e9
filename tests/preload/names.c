/* Calls every function that the preload library stands in front of for QUIRE_ZREAD. Prints which of them another library in LD_PRELOAD gets
   (-DBEHIND is that library), or (-DLOOKUPS) how often the dynamic linker is asked for a symbol meanwhile. The same must be printed with the
   preload library and without. Built and run by starts.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, OPEN64, OPENAT, OPENAT64, PREAD, PREAD64, PREADV, PREADV64, FCNTL, FCNTL64, MMAP, MMAP64, CHECKED, CHECKED64, NAMES };

#ifdef BEHIND
int seen[NAMES];

static int opened(int directory, const char *path, int flags, va_list rest) {
    return (int)syscall(SYS_openat, directory, path, flags, va_arg(rest, int));
}
#define OPENS(name, number, first, directory) \
    int name first { \
        va_list rest; \
        va_start(rest, flags); \
        int result = opened(directory, path, flags, rest); \
        va_end(rest); \
        seen[number]++; \
        return result; \
    }
OPENS(open, OPEN, (const char *path, int flags, ...), AT_FDCWD)
OPENS(open64, OPEN64, (const char *path, int flags, ...), AT_FDCWD)
OPENS(openat, OPENAT, (int directory, const char *path, int flags, ...), directory)
OPENS(openat64, OPENAT64, (int directory, const char *path, int flags, ...), directory)
#define FCNTLS(name, number) \
    int name(int at, int command, ...) { \
        va_list rest; \
        va_start(rest, command); \
        long result = syscall(SYS_fcntl, at, command, va_arg(rest, long)); \
        va_end(rest); \
        seen[number]++; \
        return (int)result; \
    }
FCNTLS(fcntl, FCNTL)
FCNTLS(fcntl64, FCNTL64)
#define READS(name, number, ...) \
    ssize_t name(int at, void *buffer, size_t len, off_t offset __VA_OPT__(, ) __VA_ARGS__) { \
        seen[number]++; \
        return syscall(SYS_pread64, at, buffer, len, offset); \
    }
READS(pread, PREAD)
READS(pread64, PREAD64)
READS(__pread_chk, CHECKED, size_t room)
READS(__pread64_chk, CHECKED64, size_t room)
#define READVS(name, number) \
    ssize_t name(int at, const struct iovec *buffers, int count, off_t offset) { \
        seen[number]++; \
        return syscall(SYS_preadv, at, buffers, (long)count, offset, 0L); \
    }
READVS(preadv, PREADV)
READVS(preadv64, PREADV64)
#define MMAPS(name, number) \
    void *name(void *at, size_t len, int rights, int flags, int file, off_t offset) { \
        seen[number]++; \
        return (void *)syscall(SYS_mmap, at, len, rights, flags, file, offset); \
    }
MMAPS(mmap, MMAP)
MMAPS(mmap64, MMAP64)

#else
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void *, size_t, off_t, size_t);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);

static int lookups;

#ifdef LOOKUPS
/* Libraries that look for what comes behind them get it from the C library. */
void *dlsym(void *restrict handle, const char *restrict name) {
    static void *(*real)(void *, const char *);
    static void *library;
    lookups++;
    if (!real) {
        const char *versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
        library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        for (int at = 0; at < 3 && !real; at++) real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", versions[at]);
    }
    return real(handle == RTLD_NEXT ? library : handle, name);
}
#endif

static int *seen;
static int none[NAMES];

/* Prints which names the library behind has seen since the last time, and what the call gave. */
static void told(const char *name, long result) {
    static int before[NAMES];
    int error = errno;
    char line[200];
    int len = snprintf(line, sizeof line, "%s: %ld %d, seen", name, result, result < 0 ? error : 0);
    for (int at = 0; at < NAMES; at++) {
        for (; before[at] < seen[at]; before[at]++) len += snprintf(line + len, sizeof line - (size_t)len, " %d", at);
    }
    printf("%s\n", line);
}

int main(void) {
    static char bytes[16384] __attribute__((aligned(4096)));
    char *page = bytes + 4096;
    const char *path = "/proc/self/exe";
    struct iovec all = {bytes, 4};
    seen = dlsym(RTLD_DEFAULT, "seen");
    if (!seen) seen = none;
    /* What is allocated and looked up on the first use of the standard output is not meant. */
    printf("begun\n");
    fflush(stdout);
    for (int at = 0; at < NAMES; at++) seen[at] = 0;
    int before = lookups;
    int first = open(path, O_RDONLY);
    told("open", first);
    told("open64", open64(path, O_RDONLY));
    told("openat", openat(AT_FDCWD, path, O_RDONLY));
    told("openat64", openat64(AT_FDCWD, path, O_RDONLY));
    told("open", open("/no/such", O_RDWR | O_NONBLOCK));
    told("__open_2", __open_2(path, O_RDONLY));
    told("__open64_2", __open64_2(path, O_RDONLY));
    told("__openat_2", __openat_2(AT_FDCWD, path, O_RDONLY));
    told("__openat64_2", __openat64_2(AT_FDCWD, path, O_RDONLY));
    told("read", read(first, bytes, 4));
    told("readv", readv(first, &all, 1));
    told("__read_chk", __read_chk(first, bytes, 4, 4));
    told("pread", pread(first, bytes, 4, 0));
    told("pread64", pread64(first, bytes, 4, 0));
    told("preadv", preadv(first, &all, 1, 0));
    told("preadv64", preadv64(first, &all, 1, 0));
    told("__pread_chk", __pread_chk(first, bytes, 4, 0, 4));
    told("__pread64_chk", __pread64_chk(first, bytes, 4, 0, 4));
    told("fcntl", fcntl(first, F_GETFD));
    told("fcntl64", fcntl64(first, F_GETFD));
    told("vmsplice", vmsplice(-1, &all, 1, 0));
    told("setsockopt", setsockopt(-1, SOL_SOCKET, SO_KEEPALIVE, bytes, 4));
    void *anonymous = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    told("mmap", anonymous == MAP_FAILED);
    void *other = mmap64(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    told("mmap64", other == MAP_FAILED);
    told("mremap", mremap(other, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, anonymous) == anonymous);
    told("munmap", munmap(anonymous, 4096));
    told("mprotect", mprotect(page, 4096, PROT_READ | PROT_WRITE));
    told("pkey_mprotect", pkey_mprotect(page, 4096, PROT_READ | PROT_WRITE, -1));
    told("madvise", madvise(page, 4096, MADV_NORMAL));
    told("mlock", mlock(page, 0));
    told("mlock2", mlock2(page, 0, 0));
    told("mlockall", mlockall(0));
    told("msync", msync(page, 4096, MS_ASYNC));
    printf("looked up: %d\n", lookups - before);
    return 0;
}
#endif
