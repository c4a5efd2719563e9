/* Checkpoints by libquire for redis-server: what rdb.c calls. */
#ifndef QUIRE_RIO_H
#define QUIRE_RIO_H

#include "server.h"

/* Whether saves to this file are MDC checkpoints: its name ends in ".mdc". */
int rdbIsMdcName(const char *filename);
/* Whether a load of this file is a restore: by its first bytes, and by its name unless an RDB file has that. */
int rdbIsMdcFile(const char *filename);
/* What rdbSave() and rdbLoad() are for such files. */
int rdbSaveMdc(int req, char *filename, rdbSaveInfo *rsi);
int rdbLoadMdc(char *filename, rdbSaveInfo *rsi, int rdbflags);

/* Whether a stream is a checkpoint. */
int rioIsMdc(const rio *r);
/* Says whether strings may be passed by reference until the next call: those of an object of this type in the database may, in a
 * forked child. A negative type forbids it. */
void rioMdcAllowReferences(rio *r, int type);
/* The next entry of a database, as dictNext() gives it. */
dictEntry *rioMdcNext(rio *r, dictIterator *iterator);
/* Whether a string of so many bytes goes by reference, and how it goes. */
int rioMdcRefers(const rio *r, size_t len);
int rioMdcRefer(rio *r, const void *bytes, size_t len);

#endif
