// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/local.h"

/* Shared by record.c (options, life), record_out.c (where it goes, what is said) and
 * record_types.c (the types beside cpu). */
enum {
    RECORD_OURS = 125, /* rights, options, nothing written */
    RECORD_ARGS = 256,
    RECORD_TYPE = 32,
};

struct record {
    struct cli_server server; /* url NULL: none */
    bool server_named, no_server, quiet, no_native;
    const char *file, *format; /* of -o; NULL: none */
    char **cmd;
    char type[RECORD_TYPE];  /* that a file of one type holds: the first of -t, or cpu */
    char *pass[RECORD_ARGS]; /* options of the agent, as given */
    int n_pass;
    const char *pid; /* the first -p */
    uint64_t rate;
    char name[128];             /* of the capture */
    char kept[PROGRAM_PATH];    /* where the capture file stays; "": it does not */
    char capture[PROGRAM_PATH]; /* where it is while it is made */
    char tmp[PROGRAM_PATH];     /* "": none */
    struct private live;        /* shows it while it is made, and after */
    bool shared;                /* a server that was there before takes it */
};

/* Names, files and servers, before anything is recorded. errors: said in err */
[[nodiscard]] int record_prepare(struct record *r, struct err *err);
/* Formats, summary, link. The capture is whole. errors: what is left, and where, is in err */
[[nodiscard]] int record_deliver(struct record *r, struct err *err);

/* record_types.c. */
bool record_has_type(const struct capture_sent *c, const char *type);
/* Is the type that the file is to hold in the capture? errors: -ENODATA */
[[nodiscard]] int record_type_check(const struct record *r, const struct capture_sent *c,
                                    struct err *err);
/* How long the recording took; a line for each type beside cpu that there is something of, and how
 * they are looked at. errors: as cli_get() */
[[nodiscard]] int record_put_types(struct buf *b, const struct cli_server *s,
                                   const struct record *r, const struct capture_sent *c,
                                   struct err *err);
/* Which type the file holds, and which it leaves out. */
void record_put_held(struct buf *b, const struct record *r, const struct capture_sent *c);

/* The capture is not whole: leave what there is where it can be found. */
void record_leave_partial(struct record *r);
