// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/lib/disk.h"

/*
 * What disk.c notes: a tree of files and folders, each as it is now and as it lasts (kept), and the
 * list of changes that do not last yet. Not for tests; one thread at a time.
 */
struct node;

struct node_entry {
    char *name;
    struct node *node;
};

struct node_names {
    struct node_entry *v;
    uint32_t n;
};

struct node_bytes {
    unsigned char *p;
    size_t n, room;
};

struct node {
    struct node *next; /* all of them */
    ino_t ino;         /* of the file that stands for it; 0: none */
    bool dir, skip;    /* skip: no part of the disk */
    struct node_names names, kept_names;
    struct node_bytes data, kept;
};

struct node *model_root(void);
void model_begin(void);
void model_end(void);

struct node *model_find(const struct node *dir, const char *name);
struct node *model_of(ino_t ino);
/* A file or folder was made: the change is pending. */
struct node *model_make(struct node *dir, const char *name, bool is_dir, ino_t ino);

/* Changes, noted as pending. */
void model_write(struct node *f, uint64_t at, const void *p, size_t n);
void model_truncate(struct node *f, uint64_t n);
void model_name(struct node *dir, const char *name, struct node *node); /* NULL: removed */
void model_rename(struct node *from, const char *a, struct node *to, const char *b);

/* old: also what was pending at the last image. */
void model_sync(struct node *n, bool old);
/* Its sync failed: no later one makes what is pending in a file last; of a folder it does. */
void model_lose(struct node *n);

/* Images: the pending changes are chosen from and forgotten, or kept as they are. */
void model_cut(const char *dir, enum disk_keep keep, uint64_t seed);
void model_kill(const char *dir);
bool model_equals(const char *dir);
