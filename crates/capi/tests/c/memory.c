/* Memory of the program's own: what can be adopted, and what becomes of it. Also system calls that write to a range. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char *map(size_t size, int protection, int flags) {
    void *memory = mmap(NULL, size, protection, flags, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static unsigned char *plain(size_t size) {
    return map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
}

static void adopted_memory_keeps_what_it_holds(int32_t mechanism) {
    const size_t size = 6 * MIB;
    unsigned char *memory = plain(size);
    CHECK(memory != NULL);
    memory[0] = 1;
    memory[5 * MIB] = 2;
    memory[size - 1] = 3;
    quire_range *range;
    quire_snapshot *snapshot;
    CHECK_OK(quire_range_adopt(memory, size, mechanism, NULL, &range));
    CHECK(quire_range_base(range) == memory && quire_range_size(range) == size);
    CHECK(memory[0] == 1 && memory[5 * MIB] == 2 && memory[size - 1] == 3);
    CHECK_OK(quire_cut(range, &snapshot));
    put(range, 0, 11);
    put(range, size - 1, 13);
    CHECK(byte_of(snapshot, 0) == 1 && byte_of(snapshot, 5 * MIB) == 2 && byte_of(snapshot, size - 1) == 3);
    /* The range first, then its last snapshot: from then on the memory is ours again. */
    CHECK_OK(quire_range_release(range));
    CHECK(byte_of(snapshot, 0) == 1);
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK(memory[0] == 11 && memory[5 * MIB] == 2 && memory[size - 1] == 13);
    memory[5 * MIB] = 12;
    CHECK(memory[5 * MIB] == 12);
    CHECK(munmap(memory, size) == 0);
}

static void only_plain_memory_in_whole_pages_is_adopted(void) {
    const size_t size = 4 * 4096;
    quire_range *range = NULL;
    unsigned char *memory = plain(size);
    CHECK(memory != NULL);
    CHECK_FAILS(QUIRE_INVALID, "`memory`", quire_range_adopt(NULL, size, QUIRE_MEMCPY, NULL, &range));
    CHECK_FAILS(QUIRE_INVALID, "align", quire_range_adopt(memory + 8, 4096, QUIRE_MEMCPY, NULL, &range));
    CHECK_FAILS(QUIRE_INVALID, "align", quire_range_adopt(memory, 5000, QUIRE_MEMCPY, NULL, &range));
    CHECK_FAILS(QUIRE_INVALID, "size", quire_range_adopt(memory, 0, QUIRE_MEMCPY, NULL, &range));
    CHECK_FAILS(QUIRE_INVALID, "size", quire_range_adopt(memory, (size_t)-4096, QUIRE_MEMCPY, NULL, &range));
    CHECK_FAILS(QUIRE_INVALID, "mechanism", quire_range_adopt(memory, size, 99, NULL, &range));

    const char *words = "no private anonymous memory";
    CHECK(mprotect(memory + 4096, 4096, PROT_READ) == 0);
    CHECK_FAILS(QUIRE_INVALID, words, quire_range_adopt(memory, size, QUIRE_MEMCPY, NULL, &range));
    CHECK(munmap(memory + 4096, 4096) == 0);
    CHECK_FAILS(QUIRE_INVALID, words, quire_range_adopt(memory, size, QUIRE_MEMCPY, NULL, &range));
    CHECK_OK(quire_range_adopt(memory, 4096, QUIRE_MEMCPY, NULL, &range));
    CHECK_OK(quire_range_release(range));
    CHECK(munmap(memory, 4096) == 0 && munmap(memory + 8192, 8192) == 0);

    unsigned char *shared = map(size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
    CHECK(shared != NULL);
    CHECK_FAILS(QUIRE_INVALID, words, quire_range_adopt(shared, size, QUIRE_MEMCPY, NULL, &range));
    CHECK(munmap(shared, size) == 0 && range == NULL);
}

static void memory_is_in_one_range_at_a_time(int32_t mechanism) {
    const size_t size = 4 * MIB;
    unsigned char *memory = plain(size);
    CHECK(memory != NULL);
    quire_range *range, *second;
    quire_snapshot *snapshot;
    CHECK_OK(quire_range_adopt(memory, size / 2, mechanism, NULL, &range));
    CHECK_STATUS(QUIRE_INVALID, quire_range_adopt(memory, size / 2, QUIRE_MEMCPY, NULL, &second));
    CHECK_STATUS(QUIRE_INVALID, quire_range_adopt(memory + 4096, 4096, QUIRE_MEMCPY, NULL, &second));
    CHECK_OK(quire_range_adopt(memory + size / 2, size / 2, mechanism, NULL, &second));
    CHECK_OK(quire_range_release(second));
    CHECK_OK(quire_cut(range, &snapshot));
    CHECK_OK(quire_range_release(range));
    CHECK_STATUS(QUIRE_INVALID, quire_range_adopt(memory, size / 2, QUIRE_MEMCPY, NULL, &second));
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK(munmap(memory, size) == 0);
}

/* Mechanisms that leave memory as it was let others have it afterwards. */
static void memory_can_be_adopted_again(int32_t mechanism) {
    if (mechanism == QUIRE_SCOOT || mechanism == QUIRE_MMAPCOPY)
        return;
    unsigned char *memory = plain(MIB);
    CHECK(memory != NULL);
    for (int round = 0; round < 3; round++) {
        quire_range *range;
        quire_snapshot *snapshot;
        CHECK_OK(quire_range_adopt(memory, MIB, mechanism, NULL, &range));
        CHECK_OK(quire_cut(range, &snapshot));
        put(range, 0, (unsigned char)(round + 1));
        CHECK(byte_of(snapshot, 0) == round);
        CHECK_OK(quire_snapshot_release(snapshot));
        CHECK_OK(quire_range_release(range));
    }
    CHECK(munmap(memory, MIB) == 0);
}

/* Once the last of a range is released, nothing of the library touches its memory any more, not even in the background. */
static void memory_can_be_unmapped_at_once(int32_t mechanism) {
    const size_t size = 16 * MIB;
    for (int round = 0; round < 30; round++) {
        quire_range *range;
        quire_snapshot *snapshot;
        unsigned char *memory = plain(size);
        CHECK(memory != NULL);
        CHECK_OK(quire_range_adopt(memory, size, mechanism, NULL, &range));
        for (int cut = 0; cut < 2; cut++) {
            for (size_t page = 0; page < size / 4096; page++)
                put(range, page * 4096, (unsigned char)(round + cut));
            CHECK_OK(quire_cut(range, &snapshot));
            put(range, 0, 99);
            CHECK(byte_of(snapshot, 0) == round + cut);
            CHECK_OK(quire_snapshot_release(snapshot));
        }
        CHECK_OK(quire_range_release(range));
        CHECK(munmap(memory, size) == 0);
        /* A thread that writes here now ends the program. */
        unsigned char *guard = mmap(memory, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        CHECK(guard == memory && munmap(guard, size) == 0);
    }
}

/* The trap of uffd: a system call does not fault as a store does. quire_prepare_write() is the way out with all. */
static void a_system_call_writes_to_prepared_memory(int32_t mechanism) {
    quire_range *range;
    quire_snapshot *snapshot;
    int ends[2];
    CHECK_OK(quire_range_create(MIB, mechanism, NULL, &range));
    CHECK(pipe(ends) == 0 && write(ends[1], "abcdef", 6) == 6);
    put(range, 4096, 'x');
    CHECK_OK(quire_cut(range, &snapshot));
    char *base = quire_range_base(range);
    if (mechanism == QUIRE_UFFD) {
        errno = 0;
        CHECK(read(ends[0], base + 4096, 3) == -1 && errno == EFAULT);
    }
    CHECK_OK(quire_prepare_write(range, 4096, 3));
    CHECK(read(ends[0], base + 4096, 3) == 3 && memcmp(base + 4096, "abc", 3) == 0);
    CHECK(byte_of(snapshot, 4096) == 'x');
    CHECK_OK(quire_snapshot_release(snapshot));
    CHECK_OK(quire_range_release(range));
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

int main(void) {
    RUN(only_plain_memory_in_whole_pages_is_adopted);
    RUN_WITH_EACH(adopted_memory_keeps_what_it_holds);
    RUN_WITH_EACH(memory_is_in_one_range_at_a_time);
    RUN_WITH_EACH(memory_can_be_adopted_again);
    RUN_WITH_EACH(memory_can_be_unmapped_at_once);
    RUN_WITH_EACH(a_system_call_writes_to_prepared_memory);
    return finish();
}
