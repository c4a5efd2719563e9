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
    CHECK(mdc_fwrite(&byte, 1, 1, file, 9) == 0 && strstr(quire_last_error(), "MDC_REF"));
    CHECK(mdc_fwrite(NULL, 1, 1, file, MDC_VAL) == 0 && strstr(quire_last_error(), "`ptr` is NULL"));
    CHECK(mdc_fwrite(&byte, SIZE_MAX, 2, file, MDC_VAL) == 0 && strstr(quire_last_error(), "`size`"));
    CHECK(mdc_fwrite((void *)8, 100, 1, file, MDC_REF) == 0 && strstr(quire_last_error(), "not in the memory"));
    CHECK(mdc_fwrite(&byte, 1, 0, file, MDC_VAL) == 0 && mdc_fwrite(NULL, 0, 7, file, MDC_VAL) == 0);
    CHECK(mdc_fread(&byte, 1, 1, file, MDC_VAL) == 0 && strstr(quire_last_error(), "mdc_restore_start()"));
    CHECK_FAILS(QUIRE_INVALID, "mdc_restore_start()", mdc_restore_end(file));
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

int main(void) {
    snprintf(path, sizeof path, "/tmp/quire-mdc-test-%d", (int)getpid());
    RUN(objects_come_back_as_they_were_at_the_fork);
    RUN(arguments_without_a_meaning_are_told);
    RUN(a_damaged_checkpoint_is_told_by_its_last_call);
    unlink(path);
    return finish();
}
