// SPDX-License-Identifier: Apache-2.0
#include "query/query_private.h"

/*
 * A function is its scope and its name, but what has them may differ in file, kind and binary: two
 * static functions of two files, say. A pattern that sees one of these is tried on what a frame has
 * itself. So where such a pattern is asked, weights stay by the nodes of the tries, and the tree
 * that patterns are tried on keeps such frames apart; the tree that is shown has them as one again.
 */

void query_ask_detail(struct query *q, enum query_detail detail, const struct str *pattern,
                      uint32_t n)
{
    q->detail = detail;
    q->own = q->filters.own;
    for (uint32_t i = 0; i < n; i++)
        q->own |= query_search_own(pattern[i]);
}

uint8_t query_shown_apart(const struct query *q)
{
    switch (q->detail) {
    case QUERY_OF_FILES:
    case QUERY_OF_LINES:
    case QUERY_OF_FRAMES:
        return QUERY_BY_FILE;
    case QUERY_OF_FUNCTIONS:
    case QUERY_OF_ADDRESSES:
    default:
        return 0;
    }
}

uint8_t query_tried_apart(const struct query *q)
{
    return q->own ? QUERY_BY_FILE | QUERY_BY_KIND : query_shown_apart(q);
}
