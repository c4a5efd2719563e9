/* A program that holds entries in memory and saves them by forking, as redis-server does: the peer (stdio) and ours (-DMDC).
 *
 *     saver run FILE ENTRIES VALUE_BYTES SEED     then lines on standard input:
 *         save OPS_PER_S SKEW SHARE               saves to FILE; meanwhile entries are updated or read, by a Zipf law (0: uniform); SHARE
 *                                                 of the operations are updates
 *             -> saved FORK_NS SAVE_NS OPS UPDATES LONGEST_NS SUM
 *         quit
 *     saver restore FILE
 *             -> restored FIRST_NS ALL_NS SUM
 *
 * An entry is allocated by itself, with malloc(), and the table has its address. SUM covers the entries at the fork.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef MDC
#include <quire.h>
#endif

enum { MOST_VALUE_BYTES = 1 << 20, BATCH = 64 };

static char **entries;
static uint64_t entry_count, value_bytes, state;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t mixed(uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
}

static uint64_t roll(void) { return mixed(state += 0x9e3779b97f4a7c15); }

/* Fills a value with bytes that follow from `seed`. */
static void fill(char *value, uint64_t seed) {
    for (uint64_t at = 0; at + 8 <= value_bytes; at += 8) {
        uint64_t word = seed * 0x9e3779b97f4a7c15 + at;
        memcpy(value + at, &word, 8);
    }
}

static uint64_t sum_of(const char *value, uint64_t sum) {
    for (uint64_t at = 0; at + 8 <= value_bytes; at += 8) {
        uint64_t word;
        memcpy(&word, value + at, 8);
        sum = (sum ^ word) * 0x100000001b3 + 1;
    }
    return sum;
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void make_table(void) {
    entries = malloc(entry_count * sizeof *entries);
    if (entries == NULL) fail("memory for the table");
    for (uint64_t index = 0; index < entry_count; index++)
        if ((entries[index] = calloc(1, value_bytes)) == NULL) fail("memory for an entry");
}

/* Ranks by Gray et al., "Quickly generating billion-record synthetic databases". */
static struct { double skew, alpha, zeta, eta; } zipf;

static void zipf_prepare(double skew) {
    if (zipf.skew == skew && zipf.zeta != 0) return;
    double zeta = 0, zeta2 = 1 + pow(0.5, skew), count = (double)entry_count;
    for (uint64_t rank = 1; rank <= entry_count; rank++) zeta += 1 / pow((double)rank, skew);
    zipf.skew = skew;
    zipf.alpha = 1 / (1 - skew);
    zipf.zeta = zeta;
    zipf.eta = (1 - pow(2 / count, 1 - skew)) / (1 - zeta2 / zeta);
}

static uint64_t draw(double skew) {
    if (skew == 0) return roll() % entry_count;
    double uniform = (double)(roll() >> 11) * 0x1p-53, scaled = uniform * zipf.zeta;
    uint64_t rank;
    if (scaled < 1) rank = 0;
    else if (scaled < 1 + pow(0.5, skew)) rank = 1;
    else rank = (uint64_t)((double)entry_count * pow(zipf.eta * uniform - zipf.eta + 1, zipf.alpha));
    /* Hot entries lie anywhere. */
    return mixed(rank + 1) % entry_count;
}

#ifdef MDC
static int write_all(const char *path) {
    mdc_file *file = mdc_checkpoint_start(path, MDC_RELEASE);
    if (file == NULL) return -1;
    size_t written = mdc_fwrite(&entry_count, sizeof entry_count, 1, file, MDC_VAL);
    written &= mdc_fwrite(&value_bytes, sizeof value_bytes, 1, file, MDC_VAL);
    for (uint64_t index = 0; index < entry_count; index++) written &= mdc_fwrite(entries[index], value_bytes, 1, file, MDC_REF);
    if (!written) return mdc_checkpoint_cancel(file), -1;
    return mdc_checkpoint_end(file) == QUIRE_OK ? 0 : -1;
}
#define FILE_T mdc_file
#define OPEN(path) mdc_restore_start(path, 0)
#define READ(to, bytes, file) mdc_fread(to, bytes, 1, file, MDC_REF)
#define CLOSE(file) (mdc_restore_end(file) != QUIRE_OK)
#else
static int write_all(const char *path) {
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    FILE *file = fopen(temporary, "wb");
    if (file == NULL) return -1;
    size_t written = fwrite(&entry_count, sizeof entry_count, 1, file);
    written &= fwrite(&value_bytes, sizeof value_bytes, 1, file);
    for (uint64_t index = 0; index < entry_count; index++) written &= fwrite(entries[index], value_bytes, 1, file);
    if (!written || fflush(file) != 0 || fsync(fileno(file)) != 0 || fclose(file) != 0) return -1;
    return rename(temporary, path);
}
#define FILE_T FILE
#define OPEN(path) fopen(path, "rb")
#define READ(to, bytes, file) fread(to, bytes, 1, file)
#define CLOSE(file) fclose(file)
#endif

/* What reads have read, so that the compiler keeps them. */
static volatile uint64_t read_sum;

/* Updates and reads entries at the rate until the child has ended. */
static void save(const char *path, double ops_per_s, double skew, double share) {
    uint64_t sum = 0, ops = 0, updates = 0, longest_ns = 0;
    int status = -1, has_ended = 0;
    for (uint64_t index = 0; index < entry_count; index++) sum = sum_of(entries[index], sum);
    if (skew != 0) zipf_prepare(skew);
    uint64_t start = now_ns();
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) _exit(write_all(path) == 0 ? 0 : 1);
    uint64_t fork_ns = now_ns() - start, began = now_ns();
    while (!has_ended) {
        double due = (double)(now_ns() - began) * 1e-9 * ops_per_s;
        for (int batch = 0; batch < BATCH && (double)ops < due; batch++, ops++) {
            uint64_t at = now_ns(), index = draw(skew);
            if (share >= 1 || (double)(roll() >> 11) * 0x1p-53 < share) {
                fill(entries[index], roll());
                updates++;
            } else read_sum = sum_of(entries[index], 0);
            uint64_t took = now_ns() - at;
            if (took > longest_ns) longest_ns = took;
        }
        has_ended = waitpid(pid, &status, WNOHANG) == pid;
        if (!has_ended && (double)ops >= due) usleep(500);
    }
    uint64_t save_ns = now_ns() - start;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "the child has not saved (status %d)\n", status);
        exit(1);
    }
    printf("saved %lu %lu %lu %lu %lu %lu\n", fork_ns, save_ns, ops, updates, longest_ns, sum);
    fflush(stdout);
}

static void restore(const char *path) {
    uint64_t start = now_ns(), sum = 0, first_ns = 0;
    FILE_T *file = OPEN(path);
    if (file == NULL || READ(&entry_count, sizeof entry_count, file) != 1 || READ(&value_bytes, sizeof value_bytes, file) != 1)
        fail("opening the file");
    if ((entries = calloc(entry_count, sizeof *entries)) == NULL) fail("memory for the table");
    for (uint64_t index = 0; index < entry_count; index++) {
        if ((entries[index] = malloc(value_bytes)) == NULL) fail("memory for an entry");
        if (READ(entries[index], value_bytes, file) != 1) fail("reading an entry");
        if (index == 0) first_ns = now_ns() - start;
    }
    if (CLOSE(file)) fail("reading the file");
    uint64_t all_ns = now_ns() - start;
    for (uint64_t index = 0; index < entry_count; index++) sum = sum_of(entries[index], sum);
    printf("restored %lu %lu %lu\n", first_ns, all_ns, sum);
}

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "restore") == 0) return restore(words[2]), 0;
    if (count != 6 || strcmp(words[1], "run") != 0) return 2;
    entry_count = strtoull(words[3], NULL, 10);
    value_bytes = strtoull(words[4], NULL, 10);
    state = strtoull(words[5], NULL, 10);
    if (entry_count < 2 || value_bytes < 8 || value_bytes > MOST_VALUE_BYTES) return 2;
    make_table();
    for (uint64_t index = 0; index < entry_count; index++) fill(entries[index], index);
    printf("ready\n");
    fflush(stdout);
    char line[128];
    while (fgets(line, sizeof line, stdin) != NULL && strncmp(line, "quit", 4) != 0) {
        double ops_per_s, skew, share;
        if (sscanf(line, "save %lf %lf %lf", &ops_per_s, &skew, &share) != 3) return 2;
        save(words[2], ops_per_s, skew, share);
    }
    return 0;
}
