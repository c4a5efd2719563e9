/* A program that uses its heap in every way there is, and checks what is in it. Run with a word that names a part.
 *
 * It knows nothing of the library: with it and without it prints the same. The peak of its memory goes to standard error,
 * as "peak N KiB".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

extern char **environ;

static void fail(const char *what) {
    printf("failed: %s\n", what);
    fflush(stdout);
    _exit(1);
}

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition))                                                                                             \
            fail(#condition);                                                                                         \
    } while (0)

static uint64_t next(uint64_t *random) {
    *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
    return *random;
}

/* A block knows what it should hold: each word follows from its seed. */
struct block {
    uint64_t *words;
    size_t count;
    uint64_t seed;
};

static void fill(struct block *block) {
    for (size_t i = 0; i < block->count; i++)
        block->words[i] = block->seed * (i + 1);
}

static bool holds(const struct block *block) {
    for (size_t i = 0; i < block->count; i++)
        if (block->words[i] != block->seed * (i + 1))
            return false;
    return true;
}

static size_t some_words(uint64_t random) {
    /* Mostly small, some of pages, few large. */
    size_t most = random % 64 == 0 ? 16384 : random % 8 == 0 ? 1024 : 32;
    return 1 + (random >> 8) % most;
}

/* Blocks of all sizes, `mib` in all. */
static struct block *make_blocks(size_t mib, size_t *count) {
    size_t room = mib * MIB / 8 / 100, words = 0;
    struct block *blocks = calloc(room, sizeof *blocks);
    uint64_t random = 88172645463325252u;
    CHECK(blocks != NULL);
    for (*count = 0; *count < room && words < mib * MIB / 8; ++*count) {
        struct block *block = &blocks[*count];
        block->count = some_words(next(&random));
        block->seed = next(&random);
        block->words = malloc(block->count * 8);
        CHECK(block->words != NULL && (uintptr_t)block->words % 8 == 0);
        CHECK(malloc_usable_size(block->words) >= block->count * 8);
        fill(block);
        words += block->count;
    }
    return blocks;
}

static uint64_t sum_of(const struct block *blocks, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        CHECK(holds(&blocks[i]));
        sum += blocks[i].seed ^ blocks[i].count;
    }
    return sum;
}

static void walk(size_t mib) {
    size_t count;
    struct block *blocks = make_blocks(mib, &count);
    printf("%zu blocks, sum %016llx\n", count, (unsigned long long)sum_of(blocks, count));
    /* Here and there, some larger, some smaller, some new. */
    uint64_t random = 362436069;
    for (size_t step = 0; step < count; step++) {
        struct block *block = &blocks[next(&random) % count];
        CHECK(holds(block));
        size_t words = some_words(next(&random));
        if (step % 3 == 0) {
            free(block->words);
            CHECK((block->words = calloc(words, 8)) != NULL);
            for (size_t i = 0; i < words; i++)
                CHECK(block->words[i] == 0);
            block->count = words;
            fill(block);
        } else {
            size_t kept = words < block->count ? words : block->count;
            CHECK((block->words = realloc(block->words, words * 8)) != NULL);
            block->count = kept;
            CHECK(holds(block));
            block->count = words;
            fill(block);
        }
    }
    printf("sum %016llx\n", (unsigned long long)sum_of(blocks, count));
    for (size_t i = 0; i < count; i++)
        free(blocks[i].words);
    free(blocks);
}

enum { SLOTS = 512 };

/* Blocks that threads hand to each other. */
static struct block *shelf[SLOTS];

static void *juggle(void *argument) {
    uint64_t random = 0x9e3779b97f4a7c15u * (1 + (uintptr_t)argument);
    for (size_t step = 0; step < 4000; step++) {
        struct block *mine = malloc(sizeof *mine);
        CHECK(mine != NULL);
        mine->count = some_words(next(&random));
        mine->seed = next(&random);
        CHECK((mine->words = malloc(mine->count * 8)) != NULL);
        fill(mine);
        struct block *other = __atomic_exchange_n(&shelf[next(&random) % SLOTS], mine, __ATOMIC_ACQ_REL);
        if (other == NULL)
            continue;
        CHECK(holds(other));
        if (step % 4 == 0) {
            CHECK((other->words = realloc(other->words, (other->count + 100) * 8)) != NULL);
            CHECK(holds(other));
        }
        free(other->words);
        free(other);
    }
    return NULL;
}

/* Several rounds of threads, so that some end while their blocks live on. */
static void threads(size_t count) {
    for (size_t round = 0; round < 3; round++) {
        pthread_t all[64];
        for (size_t i = 0; i < count; i++)
            CHECK(pthread_create(&all[i], NULL, juggle, (void *)(round * count + i)) == 0);
        for (size_t i = 0; i < count; i++)
            CHECK(pthread_join(all[i], NULL) == 0);
    }
    for (size_t i = 0; i < SLOTS; i++)
        if (shelf[i] != NULL) {
            CHECK(holds(shelf[i]));
            free(shelf[i]->words);
            free(shelf[i]);
        }
    printf("threads are done\n");
}

static void exhaust(void) {
    struct chain {
        struct chain *next;
    } *chain = NULL;
    size_t count = 0;
    errno = 0;
    for (;;) {
        struct chain *more = malloc(MIB);
        if (more == NULL)
            break;
        more->next = chain;
        chain = more;
        if (++count > 100000)
            fail("it never ends");
    }
    CHECK(errno == ENOMEM);
    CHECK(calloc(1, (size_t)1 << 40) == NULL && errno == ENOMEM);
    void *place = NULL;
    CHECK(posix_memalign(&place, 4096, (size_t)1 << 40) == ENOMEM);
    CHECK(realloc(NULL, (size_t)1 << 40) == NULL);
    /* What was not enlarged stays. */
    CHECK(realloc(chain, (size_t)1 << 40) == NULL);
    while (chain != NULL) {
        struct chain *next = chain->next;
        free(chain);
        chain = next;
    }
    char *again = malloc(8 * MIB);
    CHECK(again != NULL);
    memset(again, 1, 8 * MIB);
    free(again);
    printf("exhausted\n");
}

static void every_function(void) {
    for (size_t align = 8; align <= 65536; align *= 2) {
        void *place = NULL;
        CHECK(posix_memalign(&place, align, 100) == 0 && (uintptr_t)place % align == 0);
        memset(place, 3, 100);
        char *grown = realloc(place, 5000);
        CHECK(grown != NULL && grown[99] == 3);
        free(grown);
        CHECK((place = memalign(align, 1)) != NULL && (uintptr_t)place % align == 0);
        free(place);
        CHECK((place = aligned_alloc(align, 2 * align)) != NULL && (uintptr_t)place % align == 0);
        free(place);
    }
    void *place = &place;
    CHECK(posix_memalign(&place, 24, 100) == EINVAL && place == &place);
    void *page = valloc(1), *pages = pvalloc(4097);
    CHECK(page != NULL && (uintptr_t)page % 4096 == 0 && pages != NULL && malloc_usable_size(pages) >= 8192);
    free(page);
    free(pages);
    CHECK(reallocarray(NULL, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    char *array = reallocarray(NULL, 100, 10);
    CHECK(array != NULL && malloc_usable_size(array) >= 1000 && malloc_usable_size(NULL) == 0);
    CHECK(realloc(array, 0) == NULL);
    free(NULL);
    char *text = strdup("text"), *printed = NULL;
    CHECK(asprintf(&printed, "%s %d", text, 5) == 6 && strcmp(printed, "text 5") == 0);
    free(text);
    free(printed);
    CHECK(malloc_trim(0) >= 0 && mallopt(M_ARENA_MAX, 2) >= 0);
    printf("every function\n");
}

/* System calls that read from and write to the heap, pages of which are not in memory. */
static void calls(size_t mib) {
    size_t size = mib * MIB, count = size / 8;
    uint64_t *from = malloc(size), *to = calloc(1, size);
    CHECK(from != NULL && to != NULL);
    for (size_t i = 0; i < count; i++)
        from[i] = i * 0x9e3779b97f4a7c15u;
    FILE *file = tmpfile();
    CHECK(file != NULL && fwrite(from, 1, size, file) == size && fflush(file) == 0);
    rewind(file);
    CHECK(fread(to, 1, size, file) == size);
    CHECK(memcmp(from, to, size) == 0);
    memset(to, 0, size);
    for (size_t at = 0; at < size;) {
        ssize_t got = pread(fileno(file), (char *)to + at, size - at, (off_t)at);
        CHECK(got > 0);
        at += (size_t)got;
    }
    CHECK(memcmp(from, to, size) == 0);
    CHECK(fclose(file) == 0);
    free(from);
    free(to);
    printf("calls\n");
}

static int ending_of(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static bool all_hold(const struct block *blocks, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!holds(&blocks[i]))
            return false;
    return true;
}

/* A child sees all of the heap as it was, may change its own, have children, and become another program. */
static void forks(size_t mib) {
    size_t count;
    struct block *blocks = make_blocks(mib, &count);
    FILE *stream = tmpfile();
    CHECK(stream != NULL && fputs("buffered", stream) >= 0);
    CHECK(all_hold(blocks, count));
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* The parent changes its blocks before this. */
        if (read(ends[0], &byte, 1) != 1 || !all_hold(blocks, count))
            _exit(2);
        for (size_t i = 0; i < count; i += 2) {
            blocks[i].seed++;
            fill(&blocks[i]);
        }
        char *own = malloc(MIB);
        if (own == NULL || !all_hold(blocks, count))
            _exit(3);
        memset(own, 1, MIB);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            blocks[1].seed += 7;
            fill(&blocks[1]);
            _exit(all_hold(blocks, count) ? 21 : 4);
        }
        if (ending_of(grandchild) != 21 || !all_hold(blocks, count))
            _exit(5);
        if (fputs(" more", stream) < 0 || fflush(stream) != 0)
            _exit(6);
        _exit(20);
    }
    /* Fewer than the pool has room for: nothing can be written while the child lives. */
    for (size_t i = 0; i < count / 40; i++) {
        blocks[i].seed += 3;
        fill(&blocks[i]);
    }
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(ending_of(child) == 20);
    CHECK(all_hold(blocks, count));
    /* The child is gone: there is room for all again. */
    for (size_t i = 0; i < count; i++) {
        blocks[i].seed += 5;
        fill(&blocks[i]);
    }
    CHECK(all_hold(blocks, count));
    for (int round = 0; round < 20; round++) {
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char *words[] = {strdup("sh"), strdup("-c"), strdup("exit 9"), NULL};
            execv("/bin/sh", words);
            _exit(127);
        }
        blocks[round].seed++;
        fill(&blocks[round]);
        CHECK(ending_of(child) == 9);
    }
    char *words[] = {"sh", "-c", "exit 11", NULL};
    CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) == 0 && ending_of(child) == 11);
    CHECK(WEXITSTATUS(system("exit 12")) == 12);
    child = vfork();
    if (child == 0) {
        execv("/bin/sh", words);
        _exit(127);
    }
    CHECK(ending_of(child) == 11);
    CHECK(all_hold(blocks, count));
    fclose(stream);
    printf("forks\n");
}

static void *fork_often(void *argument) {
    for (int round = 0; round < 25; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char *own = malloc(10000);
            memset(own, 1, 10000);
            _exit(own[round] == 1 ? 33 : 1);
        }
        CHECK(ending_of(child) == 33);
    }
    return argument;
}

/* Several threads fork at a time, while another works on the heap. */
static void fork_threads(void) {
    pthread_t all[4];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&all[i], NULL, fork_often, NULL) == 0);
    CHECK(pthread_create(&all[3], NULL, juggle, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    printf("threads that fork\n");
}

/* Allocated before main, and perhaps before the library was there. */
static char *early;

__attribute__((constructor)) static void begin(void) {
    early = malloc(100);
    memset(early, 4, 100);
}

static void tell_peak(void) {
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0)
            fprintf(stderr, "peak %ld KiB\n", strtol(line + 6, NULL, 10));
    if (file != NULL)
        fclose(file);
}

int main(int count, char **words) {
    const char *part = count > 1 ? words[1] : "";
    size_t size = count > 2 ? strtoull(words[2], NULL, 10) : 0;
    early = realloc(early, 100000);
    CHECK(early != NULL && early[99] == 4);
    free(early);
    if (strcmp(part, "walk") == 0)
        walk(size);
    else if (strcmp(part, "threads") == 0)
        threads(size);
    else if (strcmp(part, "exhaust") == 0)
        exhaust();
    else if (strcmp(part, "functions") == 0)
        every_function();
    else if (strcmp(part, "calls") == 0)
        calls(size);
    else if (strcmp(part, "forks") == 0)
        forks(size);
    else if (strcmp(part, "fork-threads") == 0)
        fork_threads();
    else
        fail("no such part");
    fflush(stdout);
    tell_peak();
    return 0;
}
