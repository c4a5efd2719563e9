/* A table that saves itself by forking, with libquire: the child gives its memory back as it is dumped, so that what the parent
 * writes meanwhile is not copied for the child.
 *
 *     table_mdc fill FILE ENTRIES      fills a table, saves it, and changes every entry while the child is at work
 *     table_mdc check FILE ENTRIES     loads the file and looks at every entry
 *
 *     cc -O2 table_mdc.c $(pkg-config --cflags --libs quire) -o table_mdc
 */
#define _GNU_SOURCE
#include "table.h"

#include <quire.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VALUE_BYTES = 400 };

/* Writes the table. Runs in the child. */
static int save(const struct table *table, const char *path) {
    mdc_file *fp = mdc_checkpoint_start(path, MDC_RELEASE);
    if (fp == NULL)
        return -1;
    size_t written = mdc_fwrite(&table->entry_count, sizeof table->entry_count, 1, fp, MDC_VAL);
    for (size_t bucket = 0; bucket < table->bucket_count; bucket++) {
        for (const struct entry *entry = table->buckets[bucket]; entry != NULL; entry = entry->next) {
            written &= mdc_fwrite(&entry->key_len, sizeof entry->key_len, 1, fp, MDC_VAL);
            written &= mdc_fwrite(&entry->value_len, sizeof entry->value_len, 1, fp, MDC_VAL);
            written &= mdc_fwrite(entry->bytes, entry->key_len + entry->value_len, 1, fp, MDC_REF);
        }
    }
    if (!written)
        return mdc_checkpoint_cancel(fp), -1;
    return mdc_checkpoint_end(fp) == QUIRE_OK ? 0 : -1;
}

/* Reads what save() has written. */
static int load(struct table *table, const char *path) {
    mdc_file *fp = mdc_restore_start(path, 0);
    size_t count;
    if (fp == NULL || mdc_fread(&count, sizeof count, 1, fp, MDC_VAL) != 1)
        return -1;
    for (size_t i = 0; i < count; i++) {
        uint32_t lengths[2];
        if (mdc_fread(lengths, sizeof *lengths, 2, fp, MDC_VAL) != 2)
            return -1;
        struct entry *entry = entry_new(lengths[0], lengths[1]);
        if (mdc_fread(entry->bytes, lengths[0] + lengths[1], 1, fp, MDC_REF) != 1)
            return -1;
        table_link(table, entry);
    }
    return mdc_restore_end(fp) == QUIRE_OK ? 0 : -1;
}

#include "table_main.h"
