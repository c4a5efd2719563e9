/* A program that reads a file in every way there is, and checks what its buffers hold afterwards. Run with a part's name and a file.
 *
 * It knows nothing of the library: with it and without it prints the same. The file holds words that say where they lie:
 * word i of version v is v << 48 | i. Parts that change the file do so by another process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
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

/* The version of the bytes at `buffer`, which come from `offset`; all must be of one. */
static uint64_t version_of(const void *buffer, size_t len, size_t offset) {
    const unsigned char *bytes = buffer;
    uint64_t first;
    size_t skip = (8 - offset % 8) % 8;
    memcpy(&first, bytes + skip, 8);
    uint64_t version = first >> 48;
    for (size_t at = skip; at + 8 <= len; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, 8);
        if (word != word_at(version, offset + at)) {
            printf("at %zu of %zu from %zu: %016llx is not of version %llu\n", at, len, offset, (unsigned long long)word,
                   (unsigned long long)version);
            fail("one version", __LINE__);
        }
    }
    return version;
}

static bool holds(const void *buffer, size_t len, size_t offset, uint64_t version) {
    return version_of(buffer, len, offset) == version;
}

/* Writes the file anew, as `version`, in place. */
static void write_version(uint64_t version, int flags, size_t size) {
    int file = open(path, O_WRONLY | O_CREAT | flags, 0600);
    CHECK(file >= 0);
    uint64_t *words = malloc(SIZE);
    for (size_t i = 0; i < size / 8; i++)
        words[i] = word_at(version, i * 8);
    size_t done = 0;
    while (done < size) {
        ssize_t count = pwrite(file, (char *)words + done, size - done, done);
        CHECK(count > 0);
        done += count;
    }
    free(words);
    close(file);
}

/* Runs this program again as another process, with a part that changes the file, and waits for it. */
static void by_another(const char *part, const char *argument) {
    char *words[] = {(char *)self, (char *)part, (char *)path, (char *)argument, NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, self, NULL, NULL, words, environ) == 0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void nap(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* Reads until the library, if it is there, has had time to lease the file. */
static void settle(int file, void *buffer) {
    for (int i = 0; i < 30; i++) {
        CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB);
        nap(15000);
    }
}

static int opened(void) {
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    return file;
}

static unsigned char *block(size_t size) {
    unsigned char *memory = malloc(size);
    CHECK(memory != NULL);
    memset(memory, 0xee, size);
    return memory;
}

/* Every length and alignment, by every call: what is read, what is returned, where the position is, what lies behind. */
static void semantics(void) {
    int file = opened();
    size_t room = 3 * MIB;
    unsigned char *buffer = block(room);
    settle(file, buffer);
    uint64_t sum = 0;
    size_t offsets[] = {0, 1, 8, PAGE, PAGE + 8, 3 * PAGE - 1, SIZE - MIB, SIZE - 300000, SIZE - 1, SIZE, SIZE + 5};
    size_t lengths[] = {9 << 10, 131072, 131073, 200000, MIB, MIB + 1, 2 * MIB + PAGE};
    size_t places[] = {0, 1, 8, 100, PAGE};
    for (size_t o = 0; o < sizeof offsets / sizeof *offsets; o++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (size_t p = 0; p < sizeof places / sizeof *places; p++)
                for (int call = 0; call < 4; call++) {
                    size_t offset = offsets[o], len = lengths[l];
                    unsigned char *at = buffer + places[p] + (p < 4 ? offset % PAGE : 0);
                    size_t expected = offset >= SIZE ? 0 : len < SIZE - offset ? len : SIZE - offset;
                    unsigned char *end = at + expected;
                    *end = 0x5a;
                    if (at > buffer)
                        at[-1] = 0xa5;
                    CHECK(lseek(file, offset, SEEK_SET) == (off_t)offset);
                    struct iovec parts[3] = {{at, len / 3}, {at + len / 3, 0}, {at + len / 3, len - len / 3}};
                    ssize_t count = call == 0   ? read(file, at, len)
                                    : call == 1 ? pread(file, at, len, offset)
                                    : call == 2 ? readv(file, parts, 3)
                                                : preadv(file, parts, 3, offset);
                    CHECK(count == (ssize_t)expected);
                    CHECK(lseek(file, 0, SEEK_CUR) == (off_t)(offset + (call % 2 == 0 ? expected : 0)));
                    CHECK(*end == 0x5a && (at == buffer || at[-1] == 0xa5));
                    if (expected >= 16)
                        CHECK(holds(at, expected, offset, 1));
                    sum = sum * 31 + (uint64_t)count;
                }
    errno = 0;
    CHECK(pread(file, (void *)8, MIB, 0) == -1 && errno == EFAULT);
    CHECK(read(-1, buffer, MIB) == -1 && errno == EBADF && read(9999, buffer, MIB) == -1 && errno == EBADF);
    CHECK(pread(file, buffer, MIB, -1) == -1 && errno == EINVAL);
    /* An array of buffers that is none, and one of which a part is none. */
    struct iovec bad[2] = {{buffer, MIB}, {(void *)8, MIB}}, *heap = malloc(sizeof bad);
    CHECK(readv(file, (struct iovec *)8, 2) == -1 && errno == EFAULT);
    CHECK(preadv(file, (struct iovec *)-4096, 2, 0) == -1 && errno == EFAULT);
    CHECK(preadv(file, NULL, 1, 0) == -1 && errno == EFAULT && preadv(file, bad, -1, 0) == -1 && errno == EINVAL);
    memcpy(heap, bad, sizeof bad);
    CHECK(preadv(file, heap, 1, PAGE) == (ssize_t)MIB && holds(buffer, MIB, PAGE, 1));
    CHECK(preadv(file, heap, 2, 0) == (ssize_t)MIB && holds(buffer, MIB, 0, 1));
    void *unmapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(unmapped, PAGE);
    CHECK(readv(file, unmapped, 1) == -1 && errno == EFAULT);
    free(heap);
    int writer = open("/dev/null", O_WRONLY);
    CHECK(read(writer, buffer, MIB) == -1 && errno == EBADF);
    printf("semantics %llx\n", (unsigned long long)sum);
}

/* What was read stays, whatever becomes of the file. */
static void changes(void) {
    const char *parts[] = {"overwrite", "truncate", "shrink", "replace", "remove", "append", "punch", "mapped"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        write_version(1, 0, SIZE);
        int file = opened();
        unsigned char *buffer = block(MIB), *other = block(4 * MIB);
        settle(file, buffer);
        CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB);
        CHECK(pread(file, other, 4 * MIB, 4 * MIB) == (ssize_t)(4 * MIB));
        /* Some of it is the program's own by now. */
        memset(other + MIB, 0x77, PAGE);
        close(file);
        by_another(parts[i], "2");
        CHECK(holds(buffer, MIB, 0, 1));
        CHECK(holds(other, MIB, 4 * MIB, 1) && holds(other + MIB + PAGE, 3 * MIB - PAGE, 5 * MIB + PAGE, 1));
        for (size_t at = 0; at < PAGE; at++)
            CHECK(other[MIB + at] == 0x77);
        memset(buffer, 1, MIB);
        memset(other, 1, 4 * MIB);
        free(buffer);
        free(other);
        printf("%s\n", parts[i]);
    }
}

/* The program changes the file by itself: buffers stay, the next read sees it. */
static void own_writes(void) {
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    int writer = open(path, O_RDWR);
    CHECK(writer >= 0 && holds(buffer, MIB, 0, 1));
    uint64_t word = 99;
    CHECK(pwrite(writer, &word, 8, PAGE) == 8 && holds(buffer, MIB, 0, 1));
    CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB && memcmp(buffer + PAGE, &word, 8) == 0);
    word = word_at(1, PAGE);
    CHECK(pwrite(writer, &word, 8, PAGE) == 8);
    /* Read what was just read: from the buffer into the file that it came from. */
    CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB && pwrite(writer, buffer, MIB, 0) == (ssize_t)MIB);
    close(writer);
    settle(file, buffer);
    int again = open(path, O_WRONLY | O_NONBLOCK);
    CHECK(again >= 0 && holds(buffer, MIB, 0, 1));
    close(again);
    settle(file, buffer);
    CHECK(truncate(path, PAGE) == 0 && holds(buffer, MIB, 0, 1));
    puts("own writes");
}

/* Children see what was there at the fork, and so does the parent. */
static void forks(void) {
    int file = opened();
    unsigned char *buffer = block(MIB);
    for (int i = 0; i < 5; i++) {
        write_version(1, 0, SIZE);
        settle(file, buffer);
        int pipes[2];
        CHECK(pipe(pipes) == 0);
        pid_t pid = fork();
        if (pid == 0) {
            char go;
            CHECK(read(pipes[0], &go, 1) == 1 && holds(buffer, MIB, 0, 1));
            unsigned char *mine = block(MIB);
            for (int j = 0; j < 20; j++, nap(10000))
                CHECK(pread(file, mine, MIB, 0) == (ssize_t)MIB && holds(mine, MIB, 0, 2) && holds(buffer, MIB, 0, 1));
            memset(buffer, 0, MIB);
            free(buffer);
            _exit(0);
        }
        CHECK(pid > 0);
        by_another("overwrite", "2");
        CHECK(write(pipes[1], "x", 1) == 1 && holds(buffer, MIB, 0, 1));
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0 && holds(buffer, MIB, 0, 1));
        close(pipes[0]), close(pipes[1]);
    }
    puts("forks");
}

static atomic_bool over;
static _Atomic(uint64_t) reads_done;

/* Reads blocks of its own, checks and writes them. */
static void *reader(void *argument) {
    uint64_t random = (uintptr_t)argument * 2654435761u + 88172645463325252u;
    unsigned char *buffer = NULL;
    size_t room = 0;
    int file = opened();
    while (!atomic_load(&over)) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        if (buffer == NULL || random % 8 == 0) {
            free(buffer);
            room = MIB / 8 + random / 64 % (2 * MIB);
            buffer = malloc(room);
            CHECK(buffer != NULL);
        }
        if (random % 16 == 1)
            close(file), file = opened();
        size_t offset = random / 4096 % (SIZE / PAGE) * PAGE, len = room - random / 1024 % 3 * 100;
        ssize_t count = pread(file, buffer, len, offset);
        CHECK(count >= 0);
        if (count < 16)
            continue;
        /* Of several versions, as a read may be torn; but each word lies at its place. */
        for (ssize_t at = 0; at + 8 <= count; at += 8) {
            uint64_t word;
            memcpy(&word, buffer + at, 8);
            CHECK(word == 0 || (word & 0xffffffffffff) == (offset + at) / 8);
        }
        unsigned char *copy = malloc(count);
        memcpy(copy, buffer, count);
        if (random % 3 == 0)
            sched_yield();
        /* Stores of this thread, which must not be lost. */
        for (ssize_t at = 0; at < count; at += PAGE / 2)
            if ((random >> 20) % 4 == 0)
                copy[at] = buffer[at] = (unsigned char)(random >> 30);
        if (random % 5 == 0)
            nap(random / 7 % 3000);
        CHECK(memcmp(buffer, copy, count) == 0);
        free(copy);
        atomic_fetch_add(&reads_done, 1);
    }
    close(file);
    return NULL;
}

/* Threads read while another process writes, truncates and renames. */
static void load(void) {
    char *words[] = {(char *)self, "churn", (char *)path, "40", NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, self, NULL, NULL, words, environ) == 0);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, reader, (void *)(i + 1)) == 0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    while (atomic_load(&reads_done) < 200)
        nap(1000);
    atomic_store(&over, true);
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    puts("load");
}

static void *storer(void *argument) {
    unsigned char *buffer = argument;
    uint64_t counts[MIB / PAGE] = {0};
    for (uint64_t count = 1; !atomic_load(&over); count++) {
        size_t page = count * 7 % (MIB / PAGE);
        volatile uint64_t *word = (uint64_t *)(buffer + page * PAGE + 8);
        CHECK(counts[page] == 0 || *word == counts[page]);
        counts[page] = count;
        *word = count;
        CHECK(*word == count);
    }
    return NULL;
}

/* No store of a thread is lost while sharing is broken again and again, and system calls that use the buffer don't fail. */
static void stores(void) {
    int file = opened(), null = open("/dev/zero", O_RDONLY);
    unsigned char *buffer = block(2 * MIB);
    pthread_t thread;
    for (int i = 0; i < 25; i++) {
        for (int j = 0; j < 12; j++, nap(12000))
            CHECK(pread(file, buffer, 2 * MIB, 0) == (ssize_t)(2 * MIB));
        atomic_store(&over, false);
        CHECK(pthread_create(&thread, NULL, storer, buffer) == 0);
        nap(500);
        char *words[] = {(char *)self, "overwrite", (char *)path, "1", NULL};
        pid_t pid;
        CHECK(posix_spawn(&pid, self, NULL, NULL, words, environ) == 0);
        int status;
        while (waitpid(pid, &status, WNOHANG) == 0)
            CHECK(read(null, buffer + MIB, 64) == 64);
        atomic_store(&over, true);
        CHECK(pthread_join(thread, NULL) == 0 && holds(buffer + MIB + PAGE, MIB - PAGE, MIB + PAGE, 1));
    }
    puts("stores");
}

/* What a program may do with memory: it behaves as anonymous memory of `malloc` does. */
static void memory(void) {
    int file = opened();
    size_t size = 2 * MIB;
    for (int what = 0; what < 9; what++) {
        unsigned char *buffer = aligned_alloc(PAGE, size);
        memset(buffer, 3, size);
        settle(file, buffer);
        CHECK(pread(file, buffer, size, 0) == (ssize_t)size);
        unsigned char *middle = buffer + 16 * PAGE, *moved;
        memset(middle + PAGE, 9, PAGE);
        switch (what) {
        case 0:
            CHECK(madvise(middle, 4 * PAGE, MADV_DONTNEED) == 0);
            for (size_t at = 0; at < 4 * PAGE; at++)
                CHECK(middle[at] == 0);
            break;
        case 1:
            CHECK(mprotect(middle, 4 * PAGE, PROT_READ) == 0);
            by_another("overwrite", "1");
            CHECK(mprotect(middle, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
            CHECK(pread(file, buffer, size, 0) == (ssize_t)size && holds(buffer, size, 0, 1));
            break;
        case 2:
            CHECK(mlock(middle, 4 * PAGE) == 0 && munlock(middle, 4 * PAGE) == 0);
            break;
        case 3:
            moved = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(mremap(middle, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
            CHECK(mmap(middle, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == middle);
            by_another("overwrite", "2");
            CHECK(holds(moved, PAGE, 16 * PAGE, 1) && moved[PAGE] == 9 && middle[0] == 0);
            write_version(1, 0, SIZE);
            munmap(moved, 4 * PAGE);
            break;
        case 4:
            CHECK(madvise(middle, 4 * PAGE, MADV_HUGEPAGE) == 0 && holds(buffer, 16 * PAGE, 0, 1));
            break;
        case 5: {
            unsigned char *grown = realloc(buffer, 5 * MIB);
            CHECK(grown != NULL && holds(grown, 16 * PAGE, 0, 1) && grown[17 * PAGE] == 9);
            memset(grown + size, 1, 3 * MIB);
            by_another("truncate", "2");
            CHECK(holds(grown, 16 * PAGE, 0, 1) && holds(grown + 18 * PAGE, size - 18 * PAGE, 18 * PAGE, 1));
            write_version(1, 0, SIZE);
            buffer = realloc(grown, 1000);
            CHECK(buffer != NULL && holds(buffer, 1000, 0, 1));
            break;
        }
        case 6: {
            free(buffer);
            unsigned char *zeros = calloc(1, size);
            for (size_t at = 0; at < size; at++)
                CHECK(zeros[at] == 0);
            free(zeros);
            buffer = malloc(size);
            by_another("truncate", "2");
            memset(buffer, 4, size);
            write_version(1, 0, SIZE);
            break;
        }
        case 7:
            CHECK(malloc_usable_size(buffer) >= size);
            CHECK(madvise(middle, 4 * PAGE, MADV_DONTFORK) == 0);
            break;
        case 8:
            CHECK(munmap(middle, 4 * PAGE) == 0);
            CHECK(mmap(middle, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == middle);
            memset(middle, 5, 4 * PAGE);
            by_another("overwrite", "1");
            CHECK(middle[100] == 5 && holds(buffer, 16 * PAGE, 0, 1));
            break;
        }
        free(buffer);
    }
    puts("memory");
}

/* Locks, descriptors, positions: what goes with a descriptor is not the buffer's. */
static void descriptors(void) {
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 10};
    CHECK(fcntl(file, F_SETLK, &lock) == 0);
    settle(file, buffer);
    by_another("locked", "1");
    CHECK(flock(file, LOCK_EX) == 0);
    settle(file, buffer);
    close(file);
    by_another("locked", "0");
    int first = opened(), copy = dup(first), second = opened();
    CHECK(first == file && lseek(first, PAGE, SEEK_SET) == (off_t)PAGE);
    CHECK(read(copy, buffer, MIB) == (ssize_t)MIB && holds(buffer, MIB, PAGE, 1));
    CHECK(lseek(first, 0, SEEK_CUR) == (off_t)(PAGE + MIB));
    /* The number stands for something else now. */
    int pipes[2];
    CHECK(pipe(pipes) == 0 && dup2(pipes[0], copy) == copy && write(pipes[1], "hello", 5) == 5);
    CHECK(read(copy, buffer, MIB) == 5 && memcmp(buffer, "hello", 5) == 0);
    CHECK(read(second, buffer, MIB) == (ssize_t)MIB && holds(buffer, MIB, 0, 1));
    int direct = open(path, O_RDONLY | O_DIRECT);
    if (direct >= 0) {
        unsigned char *aligned = aligned_alloc(PAGE, MIB);
        settle(first, aligned);
        CHECK(pread(direct, aligned, MIB, MIB) == (ssize_t)MIB && holds(aligned, MIB, MIB, 1));
    }
    int maps = open("/proc/self/status", O_RDONLY);
    CHECK(read(maps, buffer, MIB) > 100 && memcmp(buffer, "Name:", 5) == 0);
    puts("descriptors");
}

/* Threads share one descriptor: each byte of the file is read once. */
static int shared_file;
static _Atomic(uint64_t) bytes_read;
static atomic_uchar seen[SIZE / PAGE];

static void *sharer(void *unused) {
    unsigned char *buffer = block(MIB);
    for (;;) {
        ssize_t count = read(shared_file, buffer, 160 * 1024);
        CHECK(count >= 0);
        if (count == 0)
            break;
        uint64_t word;
        memcpy(&word, buffer, 8);
        size_t offset = (word & 0xffffffffffff) * 8;
        CHECK(holds(buffer, count, offset, 1));
        for (size_t page = offset / PAGE; page < (offset + count) / PAGE; page++)
            CHECK(atomic_fetch_add(&seen[page], 1) == 0);
        atomic_fetch_add(&bytes_read, count);
    }
    free(buffer);
    return unused;
}

static void positions(void) {
    unsigned char *buffer = block(MIB);
    shared_file = opened();
    settle(shared_file, buffer);
    for (int round = 0; round < 20; round++) {
        CHECK(lseek(shared_file, 0, SEEK_SET) == 0);
        memset(seen, 0, sizeof seen);
        atomic_store(&bytes_read, 0);
        pthread_t threads[4];
        for (size_t i = 0; i < 4; i++)
            CHECK(pthread_create(&threads[i], NULL, sharer, NULL) == 0);
        for (size_t i = 0; i < 4; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(atomic_load(&bytes_read) == SIZE && lseek(shared_file, 0, SEEK_CUR) == (off_t)SIZE);
    }
    puts("positions");
}

/* Many ranges that don't fit together: maps stay few. */
static void many(void) {
    int file = opened();
    unsigned char *buffers[40];
    for (size_t i = 0; i < 40; i++)
        buffers[i] = block(4 * MIB);
    settle(file, buffers[0]);
    for (size_t i = 0; i < 40; i++)
        for (size_t at = 0; at + 128 * 1024 + PAGE <= 4 * MIB; at += 128 * 1024 + PAGE)
            CHECK(pread(file, buffers[i] + at, 128 * 1024, (at * 3 + i * 128 * 1024) % (7 * MIB) / PAGE * PAGE) == 128 * 1024);
    FILE *maps = fopen("/proc/self/maps", "r");
    size_t lines = 0;
    for (int byte; (byte = fgetc(maps)) != EOF;)
        lines += byte == '\n';
    CHECK(lines < 3000);
    by_another("truncate", "2");
    for (size_t i = 0; i < 40; i++)
        for (size_t at = 0; at + 128 * 1024 + PAGE <= 4 * MIB; at += 128 * 1024 + PAGE)
            CHECK(holds(buffers[i] + at, 128 * 1024, (at * 3 + i * 128 * 1024) % (7 * MIB) / PAGE * PAGE, 1));
    puts("many");
}

/* The program uses up its mappings after it has read: what was read stays all the same, and so does what it reads then. */
static void maps_used_up(void) {
    int file = opened();
    unsigned char *buffers[4];
    for (size_t i = 0; i < 4; i++)
        buffers[i] = block(2 * MIB);
    settle(file, buffers[0]);
    for (size_t i = 0; i < 4; i++)
        CHECK(pread(file, buffers[i], 2 * MIB, i * MIB) == (ssize_t)(2 * MIB));
    memset(buffers[1] + PAGE, 0x77, PAGE);
    FILE *limit = fopen("/proc/sys/vm/max_map_count", "r");
    size_t most = 65530;
    CHECK(limit != NULL && fscanf(limit, "%zu", &most) == 1);
    fclose(limit);
    if (most > 300000)
        most = 0; /* It would take minutes. */
    size_t pages = most + 16;
    char *area = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(area != MAP_FAILED);
    size_t used = 0;
    while (used < pages && mprotect(area + used * PAGE, PAGE, PROT_READ) == 0)
        used += 2;
    CHECK(most == 0 || used < pages);
    by_another("overwrite", "2");
    for (size_t i = 0; i < 4; i++)
        CHECK(holds(buffers[i], PAGE, i * MIB, 1) && holds(buffers[i] + 2 * PAGE, 2 * MIB - 2 * PAGE, i * MIB + 2 * PAGE, 1));
    CHECK(buffers[1][PAGE] == 0x77 && buffers[1][2 * PAGE - 1] == 0x77);
    for (int i = 0; i < 20; i++, nap(15000))
        CHECK(pread(file, buffers[0], 2 * MIB, 0) == (ssize_t)(2 * MIB) && holds(buffers[0], 2 * MIB, 0, 2));
    by_another("truncate", "3");
    CHECK(holds(buffers[0], 2 * MIB, 0, 2));
    munmap(area, pages * PAGE);
    /* It reads as ever when there are mappings again. */
    for (int i = 0; i < 120; i++, nap(15000))
        CHECK(pread(file, buffers[0], 2 * MIB, 0) == (ssize_t)(2 * MIB) && holds(buffers[0], 2 * MIB, 0, 3));
    puts("maps used up");
}

/* Many short pieces in one large buffer, again and again: the number of maps is bounded whatever is converted between. */
static void pieces(void) {
    int file = opened();
    size_t size = 64 * MIB;
    unsigned char *buffer = block(size);
    settle(file, buffer);
    size_t lines = 0;
    for (int round = 0; round < 4; round++) {
        for (size_t at = 0; at + 8 * PAGE <= size; at += 8 * PAGE)
            CHECK(pread(file, buffer + at, 3 * PAGE, (at * 5 + round * 7 * PAGE) % (7 * MIB) / PAGE * PAGE) == (ssize_t)(3 * PAGE));
        for (size_t at = 0; at + 8 * PAGE <= size; at += 8 * PAGE)
            CHECK(holds(buffer + at, 3 * PAGE, (at * 5 + round * 7 * PAGE) % (7 * MIB) / PAGE * PAGE, 1));
        FILE *maps = fopen("/proc/self/maps", "r");
        for (int byte; (byte = fgetc(maps)) != EOF;)
            lines += byte == '\n';
        fclose(maps);
    }
    CHECK(lines < 4 * 40000);
    puts("pieces");
}

/* What libc's stdio reads beneath, and what it gives to its caller. */
static void streams(void) {
    unsigned char *buffer = block(3 * MIB), *own = block(2 * MIB);
    int file = opened();
    settle(file, buffer);
    for (int mode = 0; mode < 4; mode++) {
        FILE *stream = fopen(path, "r");
        CHECK(stream != NULL);
        if (mode == 1)
            setvbuf(stream, (char *)own, _IOFBF, 2 * MIB);
        if (mode == 2)
            setvbuf(stream, NULL, _IONBF, 0);
        if (mode == 3)
            CHECK(fgetc(stream) == 0 && fseek(stream, 0, SEEK_SET) == 0);
        for (int i = 0; i < 20; i++) {
            CHECK(fseek(stream, PAGE, SEEK_SET) == 0 && fread(buffer, 1, 3 * MIB, stream) == 3 * MIB);
            CHECK(holds(buffer, 3 * MIB, PAGE, 1) && ftell(stream) == (long)(3 * MIB + PAGE));
            CHECK(fread(buffer, 8, 5, stream) == 5 && holds(buffer, 40, 3 * MIB + PAGE, 1));
            CHECK(ungetc('x', stream) == 'x' && fread(buffer, 1, 2, stream) == 2 && buffer[0] == 'x');
            CHECK(fseek(stream, SIZE - MIB, SEEK_SET) == 0 && fread(buffer, 1, 3 * MIB, stream) == MIB);
            CHECK(feof(stream) && !ferror(stream) && holds(buffer, MIB, SIZE - MIB, 1));
            clearerr(stream);
            nap(2000);
        }
        CHECK(fseek(stream, 0, SEEK_SET) == 0 && fread(buffer, MIB, 2, stream) == 2);
        fclose(stream);
        by_another("overwrite", "2");
        CHECK(holds(buffer, 2 * MIB, 0, 1));
        write_version(1, 0, SIZE);
    }
    puts("streams");
}

static atomic_int handled;

static void handler(int signal) {
    unsigned char small[64];
    int file = open(path, O_RDONLY);
    if (file >= 0 && read(file, small, 64) == 64 && small[8] == 1)
        atomic_fetch_add(&handled, 1);
    close(file);
    (void)signal;
}

/* All signals are the program's, and its own stay as they are; threads that are cancelled leave nothing held. */
static void *cancelled(void *buffer) {
    int file = opened();
    for (;;) {
        CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB);
        pthread_testcancel();
    }
    return NULL;
}

static void signals(void) {
    int file = opened();
    unsigned char *buffer = block(MIB), *other = block(MIB);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    for (int signal = 1; signal < 65; signal++)
        sigaction(signal, &action, NULL);
    struct itimerval timer = {{0, 700}, {0, 700}};
    settle(file, buffer);
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    for (int i = 0; i < 20000 && atomic_load(&handled) < 100; i++)
        CHECK(pread(file, buffer, MIB, 0) == (ssize_t)MIB && (i % 16 != 0 || holds(buffer, MIB, 0, 1)));
    timer = (struct itimerval){{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0 && atomic_load(&handled) >= 100);
    int before = atomic_load(&handled);
    by_another("overwrite", "1");
    CHECK(atomic_load(&handled) - before <= 1); /* SIGCHLD of that process */
    for (int i = 0; i < 10; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, cancelled, other) == 0);
        nap(5000);
        CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    }
    by_another("truncate", "1");
    puts("signals");
}

/* It becomes another program, which reads by itself. */
static void replaced(void) {
    int file = opened();
    unsigned char *buffer = block(MIB);
    settle(file, buffer);
    execl(self, self, "semantics", path, NULL);
    fail("exec", __LINE__);
}

static void overwrite(const char *version) { write_version(strtoull(version, NULL, 10), 0, SIZE); }

static void shrink(const char *unused) {
    (void)unused;
    CHECK(truncate(path, 3 * PAGE + 5) == 0);
}

static void churn(const char *rounds) {
    char other[4096];
    snprintf(other, sizeof other, "%s.new", path);
    const char *original = path;
    uint64_t random = 42;
    for (int i = 0; i < atoi(rounds); i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        uint64_t version = 2 + random % 1000;
        switch (random / 1024 % 5) {
        case 0:
            overwrite(version < 10 ? "3" : "4");
            break;
        case 1:
            write_version(version, O_TRUNC, SIZE);
            break;
        case 2:
            path = other;
            write_version(version, O_TRUNC, SIZE);
            path = original;
            CHECK(rename(other, original) == 0);
            break;
        case 3:
            CHECK(truncate(path, random / 4096 % (SIZE / PAGE) * PAGE) == 0);
            write_version(version, 0, SIZE);
            break;
        case 4:
            break;
        }
        /* Time in which readers get a lease. */
        nap(random % 200000);
    }
    write_version(1, 0, SIZE);
}

static int change(const char *part, const char *argument) {
    int file;
    if (strcmp(part, "overwrite") == 0)
        overwrite(argument);
    else if (strcmp(part, "truncate") == 0)
        write_version(strtoull(argument, NULL, 10), O_TRUNC, SIZE);
    else if (strcmp(part, "shrink") == 0)
        shrink(argument);
    else if (strcmp(part, "replace") == 0) {
        char other[4096];
        const char *original = path;
        snprintf(other, sizeof other, "%s.new", path);
        path = other;
        write_version(2, O_TRUNC, SIZE);
        CHECK(rename(other, original) == 0);
    } else if (strcmp(part, "remove") == 0)
        CHECK(unlink(path) == 0);
    else if (strcmp(part, "append") == 0) {
        CHECK((file = open(path, O_WRONLY | O_APPEND)) >= 0 && write(file, path, 5) == 5);
        CHECK(ftruncate(file, SIZE) == 0);
    } else if (strcmp(part, "punch") == 0) {
        CHECK((file = open(path, O_RDWR)) >= 0);
        fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2 * MIB);
    } else if (strcmp(part, "mapped") == 0) {
        CHECK((file = open(path, O_RDWR)) >= 0);
        char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        CHECK(map != MAP_FAILED);
        memset(map, 2, SIZE);
    } else if (strcmp(part, "locked") == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
        CHECK((file = open(path, O_RDWR)) >= 0);
        int is_locked = fcntl(file, F_SETLK, &lock) != 0;
        CHECK(is_locked == atoi(argument) && (is_locked || flock(file, LOCK_EX | LOCK_NB) == 0));
    } else if (strcmp(part, "churn") == 0)
        churn(argument);
    else
        return 1;
    return 0;
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"semantics", semantics}, {"changes", changes},         {"own-writes", own_writes}, {"forks", forks},
                 {"load", load},           {"stores", stores},           {"memory", memory},         {"signals", signals},
                 {"many", many},           {"descriptors", descriptors}, {"positions", positions},   {"replaced", replaced},
                 {"maps-used-up", maps_used_up}, {"pieces", pieces}, {"streams", streams}};
    if (count < 3)
        return 2;
    self = words[0], path = words[2];
    if (count > 3)
        return change(words[1], words[3]);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(words[1], parts[i].name) == 0) {
            write_version(1, O_TRUNC, SIZE);
            parts[i].run();
            return 0;
        }
    return 2;
}
