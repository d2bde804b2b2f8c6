// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "agent/file/binary.h"
#include "agent/file/debugfile.h"
#include "base/str.h"

/*
 * Separate debug files: by build id (DIR/.build-id/ab/cdef.debug), else by .gnu_debuglink beside
 * the binary, in .debug/ beside it, and below each DIR; first in the root of the process that maps
 * the binary, then in ours. A file is used only if it proves to belong to the binary (debugfile.h);
 * what does not is counted by reason. Opens paths, reads nothing itself (reader.h). Any thread.
 */
struct debugfind_where {
    struct str path;  /* of the binary, as its process sees it */
    int target;       /* the root of that process, or -1: ours */
    const char *dirs; /* separated by ':'; "" or NULL: no debug files at all */
};

/* A descriptor of the binary's debug file, or -1. counts[DEBUGFILE_N]: what was found is added. */
int debugfind(const struct debugfile_facts *f, const struct debugfind_where *w, uint64_t *counts);

/* The same for the file that its debug file (facts f, found at path) shares with others. */
int debugfind_alt(const struct debugfile_facts *f, const struct debugfind_where *w,
                  uint64_t *counts);

/* Facts of b, and its debug file as above. */
int debugfind_of(const struct binary *b, const char *dirs, struct debugfile_facts *ret,
                 uint64_t *counts);
