/* A program that reads large pieces of a file and does what concerns the world around it: limits, locks, leases, process groups, children of
 * all kinds, devices, sandboxes. Run with a part's name and a file.
 *
 * It knows nothing of the library: with it and without it prints the same. The file holds words that say where they lie, as in zread.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define MIB ((size_t)1 << 20)
#define SIZE (8 * MIB)

extern char **environ;
extern pid_t _Fork(void);
static const char *path;
static const char *self;

static void fail(const char *what, int line) {
    printf("failed in line %d: %s (errno %d)\n", line, what, errno);
    fflush(stdout);
    _exit(1);
}

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition))                                                                                             \
            fail(#condition, __LINE__);                                                                               \
    } while (0)

static uint64_t word_at(uint64_t version, size_t offset) {
    return version << 48 | offset / 8;
}

static bool holds(const void *buffer, size_t len, size_t offset, uint64_t version) {
    const uint64_t *words = buffer;
    for (size_t at = 0; at < len / 8; at++)
        if (words[at] != word_at(version, offset + at * 8)) {
            printf("at %zu of %zu from %zu: %016llx\n", at * 8, len, offset, (unsigned long long)words[at]);
            return false;
        }
    return true;
}

static void nap(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* Writes the file anew, as `version`, in place; by small pieces, so that nothing of it is remapped. */
static void write_version(uint64_t version) {
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(file >= 0);
    uint64_t words[512];
    for (size_t at = 0; at < SIZE; at += sizeof words) {
        for (size_t i = 0; i < 512; i++)
            words[i] = word_at(version, at + i * 8);
        CHECK(pwrite(file, words, sizeof words, at) == sizeof words);
    }
    close(file);
}

static void by_another(const char *part, const char *argument, const char *second) {
    char *words[] = {(char *)self, (char *)part, (char *)path, (char *)argument, (char *)second, NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, self, NULL, NULL, words, environ) == 0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static int opened(void) {
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    return file;
}

static void *block(size_t size) {
    void *memory = aligned_alloc(PAGE, size);
    CHECK(memory != NULL);
    memset(memory, 0xee, size);
    return memory;
}

/* Reads until the library, if it is there, has had time to lease the file. */
static void settle(int file, void *buffer) {
    for (int i = 0; i < 30; i++) {
        CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB);
        nap(15000);
    }
}

/* Whether the page at `address` is one of a file. */
static bool is_of_a_file(const void *address) {
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    char line[5000], name[4096];
    bool found = false;
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end;
        name[0] = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %4095s", &start, &end, name) >= 2)
            found |= (uintptr_t)address >= start && (uintptr_t)address < end && name[0] == '/';
    }
    fclose(maps);
    return found;
}

static size_t status_kib(const char *name) {
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    char line[300];
    size_t value = 0;
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtoul(line + strlen(name) + 1, NULL, 10);
    fclose(status);
    return value;
}

/* A thread that does nothing but read can be cancelled, at its reads or at any time, and leaves nothing held. */
static atomic_int ready;

static void *reads_only(void *argument) {
    int file = opened(), old;
    /* It is never freed: small, so that many threads can be cancelled. */
    unsigned char *buffer = block(MIB / 8);
    if (argument != NULL)
        CHECK(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old) == 0);
    atomic_fetch_add(&ready, 1);
    for (;;)
        pread(file, buffer, MIB / 8, 0);
    return NULL;
}

static void cancellation(void) {
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    for (int i = 0; i < 400; i++) {
        pthread_t thread;
        int before = atomic_load(&ready);
        CHECK(pthread_create(&thread, NULL, reads_only, i % 3 == 0 ? NULL : buffer) == 0);
        while (atomic_load(&ready) == before)
            nap(100);
        nap(300 + i * 37 % 500);
        void *result;
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    }
    CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB);
    by_another("write", "2", NULL);
    CHECK(holds(buffer, MIB, 0, 1));
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    puts("cancellation");
}

/* The program limits its memory: it has what it has without the library, and what it has read stays. */
static void limited(int resource, size_t most) {
    write_version(1);
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    struct rlimit limit = {most, RLIM_INFINITY};
    CHECK(setrlimit(resource, &limit) == 0);
    void *more = mmap(NULL, 256 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(more != MAP_FAILED);
    unsigned char *blocks[20];
    for (int i = 0; i < 20; i++) {
        blocks[i] = block(4 * MIB);
        CHECK(pread(file, blocks[i], 4 * MIB, 0) == (ssize_t)(4 * MIB));
    }
    by_another("write", "2", NULL);
    CHECK(holds(buffer, MIB, 0, 1) && holds(blocks[19], 4 * MIB, 0, 1));
    for (int i = 0; i < 20; i++) {
        blocks[i] = realloc(blocks[i], 6 * MIB);
        CHECK(blocks[i] != NULL && holds(blocks[i], 4 * MIB, 0, 1));
        free(blocks[i]);
    }
    free(buffer);
    munmap(more, 256 * MIB);
    CHECK(malloc(3 * most) == NULL);
}

static void limits(void) {
    pid_t pid = fork();
    if (pid == 0) {
        limited(RLIMIT_AS, 1024 * MIB);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    limited(RLIMIT_DATA, 512 * MIB);
    puts("limits");
}

/* All memory is locked: that is what the program has, and no more. */
static void locked(void) {
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    /* What would be too much is seen before it is locked. */
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[5000];
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long start, end;
        char rights[8];
        CHECK(sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3);
        CHECK(rights[1] != 'w' || end - start < 512 * MIB);
    }
    fclose(maps);
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    CHECK(status_kib("VmSize:") < 2048 * 1024 && status_kib("VmRSS:") < 400 * 1024);
    unsigned char *more = block(2 * MIB);
    CHECK(pread(file, more, 2 * MIB, 0) == (ssize_t)(2 * MIB) && !is_of_a_file(more) && !is_of_a_file(buffer));
    by_another("write", "2", NULL);
    CHECK(holds(buffer, MIB, 0, 1) && holds(more, 2 * MIB, 0, 1));
    puts("locked");
}

/* What is freed goes back to the system. */
static void freed(void) {
    unsigned char *blocks[100];
    int file = opened();
    for (int i = 0; i < 100; i++)
        blocks[i] = block(4 * MIB);
    settle(file, blocks[0]);
    for (int i = 0; i < 100; i++)
        CHECK(pread(file, blocks[i], 4 * MIB, i % 4 * MIB) == (ssize_t)(4 * MIB));
    for (int i = 0; i < 100; i++)
        memset(blocks[i], 1, 4 * MIB);
    CHECK(status_kib("VmRSS:") > 400 * 1024);
    for (int i = 0; i < 100; i++)
        free(blocks[i]);
    CHECK(status_kib("VmRSS:") < 150 * 1024);
    puts("freed");
}

/* Children that no handler is told of: they have their parent's bytes, may do everything, and nothing in them waits for ever. */
static unsigned char *common;
static int common_file;

static int child(void *unused) {
    CHECK(holds(common, MIB, 0, 1));
    unsigned char *mine = block(MIB);
    for (int i = 0; i < 20; i++)
        CHECK(pread(common_file, mine, MIB, MIB) == (ssize_t)MIB && holds(mine, MIB, MIB, 1) && !is_of_a_file(mine));
    CHECK(madvise(common + MIB / 2, MIB / 4, MADV_DONTNEED) == 0);
    CHECK(mprotect(common, PAGE, PROT_READ) == 0 && mprotect(common, PAGE, PROT_READ | PROT_WRITE) == 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    int direct = open("/dev/null", O_RDONLY | O_DIRECT);
    close(direct);
    free(common);
    _exit(0);
    return (int)(intptr_t)unused;
}

static void children(void) {
    common_file = opened();
    common = block(MIB);
    settle(common_file, common);
    static unsigned char stack[512 * 1024] __attribute__((aligned(16)));
    for (int i = 0; i < 3; i++) {
        CHECK(pread(common_file, common, MIB, 0) == (ssize_t)MIB);
        pid_t pid = clone(child, stack + sizeof stack, SIGCHLD, NULL);
        int status;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    }
    /* This one may be told of: it keeps what was read when the file changes. */
    settle(common_file, common);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    pid_t pid = _Fork();
    if (pid == 0) {
        char go;
        CHECK(read(pipes[0], &go, 1) == 1 && holds(common, MIB, 0, 1));
        _exit(0);
    }
    by_another("write", "2", NULL);
    int status;
    CHECK(pid > 0 && write(pipes[1], "x", 1) == 1 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(holds(common, MIB, 0, 1));
    puts("children");
}

/* Signals to the process group are the program's alone. */
static void group(void) {
    signal(SIGUSR1, SIG_IGN);
    signal(SIGIO, SIG_IGN);
    CHECK(setpgid(0, 0) == 0);
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    CHECK(kill(0, SIGUSR1) == 0 && kill(0, SIGIO) == 0);
    nap(100000);
    puts("group");
}

/* Reads, says so, and checks after a line on standard input. */
static void wait_for_line(const char *says) {
    puts(says);
    fflush(stdout);
    char line[100];
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

static void waits(void) {
    int file = opened();
    unsigned char *buffer = block(MIB), *other = block(MIB);
    settle(file, buffer);
    wait_for_line("read");
    settle(file, other);
    wait_for_line("read again");
    CHECK(holds(buffer, MIB, 0, 1));
    puts("stays");
}

/* The program opens what it reads for writing and shall not wait: its threads read on. */
static atomic_bool over;

static void *reads_on(void *unused) {
    int file = opened();
    unsigned char *buffer = block(MIB);
    while (!atomic_load(&over))
        CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB && holds(buffer, PAGE, 0, 1));
    close(file);
    return unused;
}

static void not_waiting(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, reads_on, NULL) == 0);
    nap(400000);
    for (int i = 0; i < 40; i++) {
        int file = open(path, i % 2 ? O_RDWR | O_NONBLOCK : O_WRONLY | O_NONBLOCK);
        CHECK(file >= 0);
        close(file);
        nap(120000);
    }
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    puts("not waiting");
}

/* Leases of the program's own: it gets them, they stay, and it is told only of what a program did. */
static atomic_int told;

static void count(int signal) {
    atomic_fetch_add(&told, 1);
    (void)signal;
}

static void own_leases(void) {
    signal(SIGIO, count);
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    CHECK(fcntl(file, F_SETLEASE, F_RDLCK) == 0 && fcntl(file, F_SETLEASE, F_UNLCK) == 0);
    CHECK(fcntl(file, F_SETLEASE, F_WRLCK) == 0);
    settle(file, buffer);
    CHECK(fcntl(file, F_GETLEASE) == F_WRLCK && atomic_load(&told) == 0);
    CHECK(fcntl(file, F_SETLEASE, F_UNLCK) == 0);
    settle(file, buffer);
    CHECK(fcntl(file, F_SETLEASE, F_RDLCK) == 0);
    settle(file, buffer);
    pid_t pid;
    char *words[] = {(char *)self, "write", (char *)path, "2", NULL};
    CHECK(posix_spawn(&pid, self, NULL, NULL, words, environ) == 0);
    for (int i = 0; i < 3000 && atomic_load(&told) == 0; i++)
        nap(10000);
    CHECK(atomic_load(&told) == 1 && fcntl(file, F_SETLEASE, F_UNLCK) == 0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0 && holds(buffer, MIB, 0, 1));
    puts("own leases");
}

/* A sandbox that ends the program for calls that it does not make itself. */
static void sandbox(void) {
    int file = opened();
    unsigned char *blocks[40];
    for (int i = 0; i < 40; i++)
        blocks[i] = block(4 * MIB);
    settle(file, blocks[0]);
    CHECK(pread(file, blocks[1], 4 * MIB, 0) == (ssize_t)(4 * MIB));
    CHECK(madvise(blocks[2], PAGE, MADV_DONTNEED) == 0);
    for (int i = 2; i < 20; i++)
        free(blocks[i]);
    int forbidden[] = {SYS_madvise, SYS_mprotect, SYS_mremap, SYS_rt_sigprocmask, SYS_fcntl, SYS_lseek, SYS_statx, SYS_getpid};
    size_t count = sizeof forbidden / sizeof *forbidden;
    struct sock_filter filter[20] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (size_t i = 0; i < count; i++)
        filter[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forbidden[i], count - i, 0);
    filter[1 + count] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[2 + count] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {3 + count, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, 2, &program, 0, 0) == 0);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 2; i < 20; i++)
            blocks[i] = block(4 * MIB);
        for (int i = 2; i < 20; i++)
            CHECK(pread(file, blocks[i], 4 * MIB, 0) == (ssize_t)(4 * MIB) && holds(blocks[i], 4 * MIB, 0, 1));
        for (int i = 2; i < 40; i++)
            if (turn == 2 || i < 20)
                free(blocks[i]);
    }
    CHECK(holds(blocks[1], 4 * MIB, 0, 1));
    puts("sandbox");
    fflush(stdout);
    _exit(0);
}

/* The program turns to what holds frames of its memory: what it reads is not remapped from then on. */
static void frames(const char *how) {
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    if (strcmp(how, "uring") == 0)
        CHECK(syscall(SYS_io_uring_setup, 1, NULL) == -1);
    else if (strcmp(how, "fault") == 0)
        close(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    else
        close(open(how, O_RDONLY | O_NONBLOCK));
    CHECK(!is_of_a_file(buffer) && holds(buffer, MIB, 0, 1));
    for (int i = 0; i < 10; i++, nap(10000))
        CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB && !is_of_a_file(buffer));
    puts("frames");
}

/* What guards the file may refuse each read. */
static void guarded(void) {
    int guard = fanotify_init(FAN_CLASS_CONTENT | FAN_NONBLOCK | FAN_CLOEXEC, O_RDONLY), pipes[2];
    if (guard < 0 || fanotify_mark(guard, FAN_MARK_ADD, FAN_ACCESS_PERM, AT_FDCWD, path) != 0) {
        puts("guarded");
        return;
    }
    CHECK(pipe(pipes) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        /* Allows until it is told, and refuses then. */
        int flags = fcntl(pipes[0], F_SETFL, O_NONBLOCK);
        uint32_t answer = FAN_ALLOW;
        for (char end = 0; end != 'e';) {
            if (read(pipes[0], &end, 1) == 1)
                answer = FAN_DENY;
            struct fanotify_event_metadata event;
            while (read(guard, &event, sizeof event) == sizeof event) {
                struct fanotify_response response = {event.fd, answer};
                CHECK(write(guard, &response, sizeof response) == sizeof response);
                close(event.fd);
            }
            nap(500);
        }
        _exit(flags);
    }
    close(guard);
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    CHECK(write(pipes[1], "x", 1) == 1);
    nap(50000);
    for (int i = 0; i < 10; i++)
        CHECK(pread(file, buffer, MIB, 0) == -1 && errno == EPERM && read(file, buffer, MIB) == -1 && errno == EPERM);
    CHECK(lseek(file, 0, SEEK_CUR) == 0 && write(pipes[1], "e", 1) == 1);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    puts("guarded");
}

/* The program changes what it has read in every way that there is. */
static void change(int how, int writer, int source) {
    off_t from = 0;
    char *map;
    int pipes[2];
    switch (how) {
    case 0:
        CHECK(sendfile(writer, source, &from, 64 * 1024) > 0);
        break;
    case 1:
        CHECK(copy_file_range(source, &from, writer, NULL, 64 * 1024, 0) > 0);
        break;
    case 2:
        CHECK(pipe(pipes) == 0 && write(pipes[1], "spliced!", 8) == 8);
        CHECK(splice(pipes[0], NULL, writer, NULL, 8, 0) == 8);
        close(pipes[0]), close(pipes[1]);
        break;
    case 3:
        map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, writer, 0);
        CHECK(map != MAP_FAILED && close(writer) == 0);
        memset(map, 5, 64 * 1024);
        munmap(map, SIZE);
        break;
    case 4:
        fallocate(writer, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 64 * 1024);
        break;
    case 5:
        CHECK(ftruncate(writer, PAGE) == 0 && ftruncate(writer, SIZE) == 0);
        break;
    case 6:
        CHECK(fcntl(writer, F_SETFL, O_APPEND) == 0 && write(writer, "appended", 8) == 8 && ftruncate(writer, SIZE) == 0);
        break;
    case 7:
        CHECK(pwritev2(writer, (struct iovec[]){{"vector", 6}}, 1, 100, 0) == 6);
        break;
    }
    if (how != 3)
        close(writer);
}

static void own_changes(void) {
    char other[4096];
    snprintf(other, sizeof other, "%s.other", path);
    for (int how = 0; how < 8; how++) {
        write_version(1);
        int file = opened(), source = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
        unsigned char *buffer = block(4 * MIB), *after = block(4 * MIB), small[PAGE];
        CHECK(source >= 0 && ftruncate(source, MIB) == 0);
        settle(file, buffer);
        CHECK(pread(file, buffer, 4 * MIB, 0) == (ssize_t)(4 * MIB));
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        int writer = open(how % 2 ? path : link, O_RDWR);
        CHECK(writer >= 0);
        change(how, writer, source);
        CHECK(holds(buffer, 4 * MIB, 0, 1));
        for (int turn = 0; turn < 2; turn++) {
            CHECK(pread(file, after, 4 * MIB, 0) == (ssize_t)(4 * MIB));
            for (size_t at = 0; at < 4 * MIB; at += PAGE)
                CHECK(pread(file, small, PAGE, at) == (ssize_t)PAGE && memcmp(small, after + at, PAGE) == 0);
            settle(file, after);
        }
        free(buffer), free(after), close(file), close(source);
    }
    unlink(other);
    puts("own changes");
}

/* Another process looks into the buffers. */
static void looked_at(void) {
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    char pid[20], address[20];
    snprintf(pid, sizeof pid, "%d", getpid());
    snprintf(address, sizeof address, "%lx", (unsigned long)buffer);
    prctl(PR_SET_PTRACER, -1, 0, 0, 0);
    by_another("look", pid, address);
    by_another("write", "2", NULL);
    by_another("look", pid, address);
    puts("looked at");
}

static void look(pid_t pid, void *address) {
    static unsigned char bytes[MIB];
    struct iovec into = {bytes, MIB}, from = {address, MIB};
    CHECK(process_vm_readv(pid, &into, 1, &from, 1, 0) == (ssize_t)MIB && holds(bytes, MIB, 0, 1));
    char name[40];
    snprintf(name, sizeof name, "/proc/%d/mem", pid);
    int memory = open(name, O_RDONLY);
    memset(bytes, 0, MIB);
    CHECK(pread(memory, bytes, MIB, (off_t)(uintptr_t)address) == (ssize_t)MIB && holds(bytes, MIB, 0, 1));
}

/* Handlers on a small stack of their own read; handlers jump out of calls that wait. */
static sigjmp_buf back;
static unsigned char *for_handler;

static void reads(int signal) {
    int file = open(path, O_RDONLY);
    CHECK(pread(file, for_handler, MIB, 0) == (ssize_t)MIB);
    close(file);
    (void)signal;
}

static void jumps(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void handlers(void) {
    for_handler = block(MIB);
    size_t size = sysconf(_SC_MINSIGSTKSZ) + 6 * 1024;
    unsigned char *guard = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t room = (size + PAGE - 1) / PAGE * PAGE;
    CHECK(guard != MAP_FAILED && mprotect(guard, PAGE, PROT_NONE) == 0);
    stack_t stack = {.ss_sp = guard + PAGE, .ss_size = room};
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = reads, .sa_flags = SA_ONSTACK | SA_RESTART};
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    int file = opened();
    unsigned char *buffer = block(2 * MIB);
    for (int i = 0; i < 40; i++, nap(10000)) {
        raise(SIGUSR2);
        CHECK(holds(for_handler, MIB, 0, 1));
        if (i > 5)
            CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB);
    }
    struct sigaction jump = {.sa_handler = jumps, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGALRM, &jump, NULL) == 0);
    volatile int turns = 0;
    /* More often than requests are had at a time. */
    while (turns < 300) {
        if (sigsetjmp(back, 1) == 0) {
            struct itimerval timer = {{0, 0}, {0, 20 + turns % 150}};
            CHECK(pread(file, buffer, 2 * MIB, 0) == (ssize_t)(2 * MIB));
            setitimer(ITIMER_REAL, &timer, NULL);
            for (;;) {
                madvise(buffer + MIB, 4 * PAGE, MADV_DOFORK);
                pread(file, buffer, 2 * MIB, 0);
            }
        }
        /* A block of which nothing is advised. */
        free(buffer);
        turns = turns + 1;
        buffer = aligned_alloc(PAGE, 2 * MIB);
    }
    by_another("write", "2", NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    puts("handlers");
}

/* Numbers that stand for something else by and by. */
static void numbers(void) {
    int file = opened(), pipes[2];
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    int copy = fcntl(file, F_DUPFD_CLOEXEC, 50);
    CHECK(copy == 50 && dup3(file, 60, O_CLOEXEC) == 60 && lseek(copy, PAGE, SEEK_SET) == (off_t)PAGE);
    CHECK(read(60, buffer, MIB) == (ssize_t)MIB && holds(buffer, MIB, PAGE, 1) && lseek(file, 0, SEEK_CUR) == (off_t)(MIB + PAGE));
    CHECK(close_range(3, ~0U, 0) == 0 && read(file, buffer, MIB) == -1 && errno == EBADF);
    CHECK(pipe(pipes) == 0 && write(pipes[1], "pipe", 4) == 4 && read(pipes[0], buffer, MIB) == 4 && memcmp(buffer, "pipe", 4) == 0);
    int place = open(path, O_PATH), folder = open("/", O_RDONLY | O_DIRECTORY);
    CHECK(read(place, buffer, MIB) == -1 && errno == EBADF && read(folder, buffer, MIB) == -1 && errno == EISDIR);
    file = opened();
    settle(file, buffer);
    CHECK(preadv2(file, (struct iovec[]){{buffer, MIB}}, 1, PAGE, 0) == (ssize_t)MIB && holds(buffer, MIB, PAGE, 1));
    by_another("write", "2", NULL);
    CHECK(holds(buffer, MIB, PAGE, 1));
    puts("numbers");
}

int main(int count, char **words) {
    self = words[0], path = words[2];
    const char *part = words[1];
    if (strcmp(part, "write") == 0) {
        write_version(strtoull(words[3], NULL, 10));
        return 0;
    }
    if (strcmp(part, "look") == 0) {
        look(atoi(words[3]), (void *)strtoull(words[4], NULL, 16));
        return 0;
    }
    alarm(150);
    write_version(1);
    struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"cancellation", cancellation}, {"limits", limits}, {"locked", locked}, {"freed", freed}, {"children", children},
                 {"group", group}, {"waits", waits}, {"not-waiting", not_waiting}, {"own-leases", own_leases}, {"sandbox", sandbox},
                 {"guarded", guarded}, {"own-changes", own_changes}, {"looked-at", looked_at}, {"handlers", handlers},
                 {"numbers", numbers}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(part, parts[i].name) == 0)
            parts[i].run();
    if (strcmp(part, "frames") == 0)
        frames(words[3]);
    return count > 2 ? 0 : 2;
}
