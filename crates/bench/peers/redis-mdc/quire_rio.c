/* Checkpoints by libquire for redis-server.
 *
 * A checkpoint is the stream of an RDB file, with the strings of the database by reference: rdb.c writes it object by object, as it
 * does to a file, and this stream passes what must outlive the call by value (MDC_VAL) and strings that stay where they are by
 * reference (MDC_REF). mdc_checkpoint_end() dumps the memory that they lie in, and gives it back to the system.
 *
 * Only the child of a BGSAVE refers and gives back. A save in the server's own process has other threads beside it, which may give
 * memory back while it is dumped: there all goes by value. */
#include "quire_rio.h"

#include "quire.h"
#include <sys/stat.h>

/* Strings of no more bytes go by value: an address takes nearly as many, and reads from another place. */
#define MOST_VALUE_BYTES 24
/* Entries of a database that are fetched to the processor's cache before their turn. */
#define AHEAD 32
/* One checkpoint at a time is written or read. Values between two references are one record; reads are served from here. */
static char buffer[1 << 16];

static struct {
    dictEntry *entries[AHEAD];
    unsigned first, count;
} ahead;

static mdc_file *fileOf(const rio *r) {
    return r->io.mdc.file;
}

/* Writes the values that wait. */
static int mdcFlush(rio *r) {
    size_t used = r->io.mdc.used;
    r->io.mdc.used = 0;
    return used == 0 || mdc_fwrite(buffer, used, 1, fileOf(r), MDC_VAL) == 1;
}

static size_t mdcWrite(rio *r, const void *bytes, size_t len) {
    if (len > sizeof buffer - r->io.mdc.used && !mdcFlush(r)) return 0;
    if (len >= sizeof buffer) return mdc_fwrite(bytes, len, 1, fileOf(r), MDC_VAL) == 1;
    memcpy(buffer + r->io.mdc.used, bytes, len);
    r->io.mdc.used += len;
    return 1;
}

/* There is nothing to go on with. As at the damage of an RDB file the server ends, here with the name of what is damaged. */
static void endAtDamage(rio *r) {
    char read_error[1024];
    snprintf(read_error, sizeof read_error, "%s", quire_last_error());
    if (mdc_restore_end(fileOf(r)) == QUIRE_OK) snprintf(read_error, sizeof read_error, "it ends within an object");
    serverLog(LL_WARNING, "Fatal error restoring the checkpoint: %s. Exiting.", read_error);
    exit(1);
}

static size_t mdcRead(rio *r, void *bytes, size_t len) {
    char *to = bytes;
    while (len > 0) {
        size_t part = r->io.mdc.used - r->io.mdc.at;
        if (part == 0) {
            r->io.mdc.at = 0;
            r->io.mdc.used = mdc_fread(buffer, 1, sizeof buffer, fileOf(r), MDC_VAL);
            if (r->io.mdc.used == 0) endAtDamage(r);
            continue;
        }
        if (part > len) part = len;
        memcpy(to, buffer + r->io.mdc.at, part);
        r->io.mdc.at += part;
        to += part;
        len -= part;
    }
    return 1;
}

static off_t mdcTell(rio *r) {
    return r->processed_bytes;
}

static void initWithMdc(rio *r, mdc_file *file) {
    memset(r, 0, sizeof *r);
    r->read = mdcRead;
    r->write = mdcWrite;
    r->tell = mdcTell;
    r->flush = mdcFlush;
    r->io.mdc.file = file;
    ahead.first = ahead.count = 0;
}

int rioIsMdc(const rio *r) {
    return r->read == mdcRead;
}

void rioMdcAllowReferences(rio *r, int type) {
    if (!rioIsMdc(r)) return;
    /* Streams and modules are written from memory that is used again for the next of their parts. */
    int stays = type == OBJ_STRING || type == OBJ_LIST || type == OBJ_SET || type == OBJ_ZSET || type == OBJ_HASH;
    r->io.mdc.may_refer = stays && server.in_fork_child != CHILD_TYPE_NONE;
}

/* Fetches entries from tables that are a few steps ahead: key and object of an entry, later the string that the object has. Without
 * this the logging, during which no memory is given back, would mostly wait for memory. */
static void fetchAhead(dictIterator *iterator) {
    while (ahead.count < AHEAD) {
        dictEntry *entry = dictNext(iterator);
        if (entry == NULL) break;
        unsigned long bucket = iterator->index + AHEAD / 2;
        dict *d = iterator->d;
        if (bucket < DICTHT_SIZE(d->ht_size_exp[iterator->table])) __builtin_prefetch(d->ht_table[iterator->table][bucket]);
        __builtin_prefetch((char *)dictGetKey(entry) - 1);
        __builtin_prefetch(dictGetVal(entry));
        ahead.entries[(ahead.first + ahead.count++) % AHEAD] = entry;
    }
    if (ahead.count > AHEAD / 2) {
        robj *object = dictGetVal(ahead.entries[(ahead.first + AHEAD / 2) % AHEAD]);
        __builtin_prefetch((char *)object->ptr - (object->encoding == OBJ_ENCODING_RAW));
    }
}

dictEntry *rioMdcNext(rio *r, dictIterator *iterator) {
    /* In the server's own process a module that is asked for its value might change the table. */
    if (!rioIsMdc(r) || server.in_fork_child == CHILD_TYPE_NONE) return dictNext(iterator);
    fetchAhead(iterator);
    if (ahead.count == 0) return NULL;
    dictEntry *entry = ahead.entries[ahead.first];
    ahead.first = (ahead.first + 1) % AHEAD;
    ahead.count--;
    return entry;
}

int rioMdcRefers(const rio *r, size_t len) {
    return len > MOST_VALUE_BYTES && rioIsMdc(r) && r->io.mdc.may_refer;
}

int rioMdcRefer(rio *r, const void *bytes, size_t len) {
    if (!mdcFlush(r) || mdc_fwrite(bytes, len, 1, fileOf(r), MDC_REF) != 1) {
        r->flags |= RIO_FLAG_WRITE_ERROR;
        return 0;
    }
    r->processed_bytes += len;
    return 1;
}

int rdbIsMdcName(const char *filename) {
    size_t len = strlen(filename);
    return len > 4 && strcmp(filename + len - 4, ".mdc") == 0;
}

int rdbIsMdcFile(const char *filename) {
    char magic[8] = {0};
    FILE *file = fopen(filename, "r");
    if (file == NULL) return 0;
    size_t read = fread(magic, 1, sizeof magic, file);
    fclose(file);
    if (read == sizeof magic && memcmp(magic, "QUIREMDC", sizeof magic) == 0) return 1;
    return rdbIsMdcName(filename) && memcmp(magic, "REDIS", 5) != 0;
}

int rdbSaveMdc(int req, char *filename, rdbSaveInfo *rsi) {
    rio rdb;
    int error = 0;
    unsigned flags = server.in_fork_child != CHILD_TYPE_NONE ? MDC_RELEASE : 0;
    mdc_file *file = mdc_checkpoint_start(filename, flags);
    if (file == NULL) {
        serverLog(LL_WARNING, "Failed beginning the checkpoint: %s", quire_last_error());
        return C_ERR;
    }
    long long began = ustime();
    initWithMdc(&rdb, file);
    startSaving(RDBFLAGS_NONE);
    if (rdbSaveRio(req, &rdb, &error, RDBFLAGS_NONE, rsi) == C_ERR || !mdcFlush(&rdb)) {
        serverLog(LL_WARNING, "Write error saving the checkpoint: %s", quire_last_error());
        mdc_checkpoint_cancel(file);
        stopSaving(0);
        return C_ERR;
    }
    long long logged = ustime();
    if (mdc_checkpoint_end(file) != QUIRE_OK) {
        serverLog(LL_WARNING, "Error ending the checkpoint: %s", quire_last_error());
        stopSaving(0);
        return C_ERR;
    }
    serverLog(LL_NOTICE, "Checkpoint saved on disk: logged in %.3f s, dumped in %.3f s", (logged - began) / 1e6,
              (ustime() - logged) / 1e6);
    server.dirty = 0;
    server.lastsave = time(NULL);
    server.lastbgsave_status = C_OK;
    stopSaving(1);
    return C_OK;
}

int rdbLoadMdc(char *filename, rdbSaveInfo *rsi, int rdbflags) {
    rio rdb;
    struct stat status;
    mdc_file *file = mdc_restore_start(filename, 0);
    if (file == NULL) {
        serverLog(LL_WARNING, "Failed opening the checkpoint: %s", quire_last_error());
        errno = EINVAL;
        return C_ERR;
    }
    startLoadingFile(stat(filename, &status) == 0 ? status.st_size : 0, filename, rdbflags);
    initWithMdc(&rdb, file);
    int loaded = rdbLoadRio(&rdb, rdbflags, rsi);
    mdc_restore_end(file);
    stopLoading(loaded == C_OK);
    return loaded;
}
