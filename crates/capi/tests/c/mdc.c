/* Checkpoints of forked children: what is restored is what was there at the fork, and what can't be is told. */
#define _GNU_SOURCE
#include "check.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OBJECTS = 20000, WORDS = 60 };

static char path[64];

/* Runs a child and tells its status. */
static int in_child(int (*work)(void *), void *argument) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(work(argument));
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int save(void *argument) {
    uint32_t **objects = argument;
    uint32_t count = OBJECTS;
    mdc_file *file = mdc_checkpoint_start(path, MDC_RELEASE);
    if (file == NULL || mdc_fwrite(&count, sizeof count, 1, file, MDC_VAL) != 1)
        return 1;
    for (int i = 0; i < OBJECTS; i++)
        if (mdc_fwrite(objects[i], sizeof **objects, WORDS, file, MDC_REF) != WORDS)
            return 2;
    if (mdc_checkpoint_end(file) != QUIRE_OK)
        return 3;
    /* The allocator's memory is given back, and goes on serving. */
    for (int i = 0; i < OBJECTS; i++) {
        if (objects[i][0] != (uint32_t)i)
            return 4;
        free(objects[i]);
    }
    void *more = malloc(1 << 20);
    free(more);
    return more == NULL;
}

static void objects_come_back_as_they_were_at_the_fork(void) {
    uint32_t **objects = calloc(OBJECTS, sizeof *objects);
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = malloc(WORDS * sizeof **objects);
        for (int word = 0; word < WORDS; word++)
            objects[i][word] = (uint32_t)(i + word * 7);
    }
    CHECK(in_child(save, objects) == 0);
    for (int i = 0; i < OBJECTS; i++)
        free(objects[i]);
    free(objects);
    uint32_t flags[] = {0, MDC_LOAD};
    for (int way = 0; way < 2; way++) {
        uint32_t count = 0, read[WORDS];
        mdc_file *file = mdc_restore_start(path, flags[way]);
        CHECK(file != NULL);
        CHECK(mdc_fread(&count, sizeof count, 1, file, MDC_VAL) == 1 && count == OBJECTS);
        for (uint32_t i = 0; i < count; i++) {
            CHECK(mdc_fread(read, sizeof *read, WORDS, file, MDC_REF) == WORDS);
            CHECK(read[0] == i && read[WORDS - 1] == i + (WORDS - 1) * 7);
        }
        CHECK(mdc_fread(read, sizeof *read, 1, file, MDC_REF) == 0);
        CHECK_OK(mdc_restore_end(file));
    }
}

static void arguments_without_a_meaning_are_told(void) {
    char byte = 1;
    CHECK(mdc_checkpoint_start(NULL, 0) == NULL && strstr(quire_last_error(), "`path` is NULL"));
    CHECK(mdc_checkpoint_start(path, 77) == NULL && strstr(quire_last_error(), "MDC_RELEASE"));
    CHECK(mdc_checkpoint_start("/no/such/folder/x", 0) == NULL && strstr(quire_last_error(), "/no/such/folder/x"));
    CHECK(mdc_restore_start("/no/such/file", 0) == NULL && strstr(quire_last_error(), "there is no checkpoint"));
    CHECK(mdc_restore_start("/etc/passwd", 0) == NULL && strstr(quire_last_error(), "is not a checkpoint"));
    mdc_file *file = mdc_checkpoint_start(path, 0);
    CHECK(file != NULL);
    CHECK(mdc_checkpoint_start(path, 0) == NULL && strstr(quire_last_error(), "another process"));
    CHECK(mdc_fwrite((void *)8, 100, 1, file, MDC_REF) == 0 && strstr(quire_last_error(), "not in the memory"));
    CHECK(mdc_fwrite(&byte, 1, 1, file, 9) == 0 && strstr(quire_last_error(), "MDC_REF"));
    CHECK(mdc_fwrite(NULL, 1, 1, file, MDC_VAL) == 0 && strstr(quire_last_error(), "`ptr` is NULL"));
    CHECK(mdc_fwrite(&byte, SIZE_MAX, 2, file, MDC_VAL) == 0 && strstr(quire_last_error(), "`size`"));
    /* A checkpoint that lacks an object is none, whatever was wrong with it. */
    CHECK(mdc_fwrite(&byte, 1, 1, file, MDC_VAL) == 0 && strstr(quire_last_error(), "failed"));
    CHECK(mdc_fwrite(&byte, 1, 0, file, MDC_VAL) == 0 && mdc_fwrite(NULL, 0, 7, file, MDC_VAL) == 0);
    CHECK(mdc_fread(&byte, 1, 1, file, MDC_VAL) == 0 && strstr(quire_last_error(), "mdc_restore_start()"));
    CHECK_FAILS(QUIRE_INVALID, "mdc_restore_start()", mdc_restore_end(file));
    CHECK(mdc_checkpoint_end(file) != QUIRE_OK && strstr(quire_last_error(), "failed"));
    CHECK_FAILS(QUIRE_INVALID, "which is none", mdc_checkpoint_end(file));
    file = mdc_checkpoint_start(path, 0);
    CHECK(file != NULL && mdc_fwrite((void *)8, 100, 1, file, MDC_REF) == 0);
    CHECK_OK(mdc_checkpoint_cancel(file));
    CHECK_FAILS(QUIRE_INVALID, "which is none", mdc_checkpoint_end(file));
    CHECK_OK(mdc_checkpoint_cancel(NULL));
    CHECK_OK(mdc_restore_end(NULL));
    /* The checkpoint of the test before is still there. */
    file = mdc_restore_start(path, 0);
    CHECK(file != NULL);
    CHECK(mdc_fwrite(&byte, 1, 1, file, MDC_VAL) == 0);
    CHECK_FAILS(QUIRE_INVALID, "mdc_checkpoint_start()", mdc_checkpoint_end(file));
    CHECK_OK(mdc_restore_end(file));
}

static void a_damaged_checkpoint_is_told_by_its_last_call(void) {
    FILE *raw = fopen(path, "r+b");
    CHECK(raw != NULL);
    /* A byte of the first object in the log, and a byte of the footer. */
    fseek(raw, 4096 + 18, SEEK_SET);
    fputc(0xa5, raw);
    fclose(raw);
    uint32_t count;
    mdc_file *file = mdc_restore_start(path, 0);
    CHECK(file != NULL);
    CHECK(mdc_fread(&count, sizeof count, 1, file, MDC_VAL) == 0 && strstr(quire_last_error(), "log, chunk 0"));
    CHECK_FAILS(QUIRE_DAMAGED, "was not read to its end", mdc_restore_end(file));
    CHECK(mdc_restore_start(path, MDC_LOAD) == NULL && strstr(quire_last_error(), "damaged"));
}

static int save_both(void *argument) {
    uint32_t **objects = argument;
    mdc_file *file = mdc_checkpoint_start(path, MDC_RELEASE);
    if (file == NULL || mdc_fwrite(objects[0], 1, 100000, file, MDC_REF) != 100000 || mdc_checkpoint_end(file) != QUIRE_OK)
        return 1;
    void *more = mdc_malloc(5000);
    return more == NULL || mdc_free(more) != QUIRE_OK || objects[0][0] != 7 || objects[1][0] != 9;
}

static void a_dump_has_the_checkpointed_pool_and_not_the_scratch_pool(void) {
    uint32_t *objects[2] = {mdc_calloc(1, 100000), mdc_scratch_calloc(4, 4 << 20)};
    CHECK(objects[0] != NULL && objects[1] != NULL && objects[0][24999] == 0 && objects[1][(4 << 20) - 1] == 0);
    objects[0][0] = 7;
    objects[0][24999] = 8;
    memset(objects[1], 9, 16 << 20);
    objects[1][0] = 9;
    CHECK(in_child(save_both, objects) == 0);
    FILE *raw = fopen(path, "rb");
    CHECK(raw != NULL && fseek(raw, 0, SEEK_END) == 0 && ftell(raw) < 3 << 20);
    fclose(raw);
    static uint32_t read[25000];
    mdc_file *file = mdc_restore_start(path, 0);
    CHECK(file != NULL && mdc_fread(read, 1, sizeof read, file, MDC_REF) == sizeof read);
    CHECK(read[0] == 7 && read[1] == 0 && read[24999] == 8);
    CHECK_OK(mdc_restore_end(file));
    CHECK_OK(mdc_free(objects[0]));
    CHECK_OK(mdc_free(objects[1]));
}

static void memory_of_the_pools_is_used_like_that_of_malloc(void) {
    char *text = mdc_malloc(6), *scratch = mdc_scratch_malloc(1);
    CHECK(text != NULL && scratch != NULL && mdc_usable_size(text) >= 6 && mdc_usable_size(NULL) == 0);
    memcpy(text, "hello", 6);
    text = mdc_realloc(text, 200000);
    CHECK(text != NULL && strcmp(text, "hello") == 0 && mdc_usable_size(text) >= 200000);
    CHECK_FAILS(QUIRE_INVALID, "`ptr` is ", mdc_free(text + 16));
    CHECK(mdc_usable_size(&text) == 0 && mdc_realloc(&text, 5) == NULL);
    CHECK(mdc_malloc(SIZE_MAX) == NULL && strstr(quire_last_error(), "no memory"));
    CHECK(mdc_calloc(SIZE_MAX / 2, 3) == NULL && mdc_realloc(text, SIZE_MAX) == NULL && text[0] == 'h');
    CHECK_OK(mdc_free(text));
    CHECK_OK(mdc_free(scratch));
    CHECK_OK(mdc_free(mdc_realloc(NULL, 0)));
    CHECK_OK(mdc_free(NULL));
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/quire-mdc-test-%d", (int)getpid());
    RUN(objects_come_back_as_they_were_at_the_fork);
    RUN(arguments_without_a_meaning_are_told);
    RUN(a_damaged_checkpoint_is_told_by_its_last_call);
    RUN(a_dump_has_the_checkpointed_pool_and_not_the_scratch_pool);
    RUN(memory_of_the_pools_is_used_like_that_of_malloc);
    unlink(path);
    return finish();
}
