// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "server/api_private.h"

/* speedscope's own JSON: one sampled profile without an order in time, a sample per stack. */

/* The units that it knows; others are plain numbers to it. */
static const char *unit_of(struct str unit)
{
    return str_eq(unit, STR("nanoseconds")) ? "nanoseconds"
           : str_eq(unit, STR("bytes"))     ? "bytes"
                                            : "none";
}

static void put_frames(struct json_out *j, const struct query_flame *f, bool lost)
{
    json_key(j, "shared");
    json_object_begin(j);
    json_key(j, "frames");
    json_array_begin(j);
    for (uint32_t i = 0; i < f->n_func; i++) {
        struct str file = f->func[i].file.n ? f->func[i].file : f->func[i].bin;

        json_object_begin(j);
        api_put_text(j, "name", f->func[i].name);
        if (file.n)
            api_put_text(j, "file", file);
        json_object_end(j);
    }
    if (lost) {
        json_object_begin(j);
        api_put_text(j, "name", STR("[lost]"));
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
}

/* Root first; weight of the root itself, which has no frame, keeps the root's own name. */
static void put_stack(struct json_out *j, const struct query_flame *f, const uint32_t *path,
                      uint32_t depth)
{
    json_array_begin(j);
    for (uint32_t d = depth ? 1 : 0; d <= depth; d++)
        json_i64(j, f->node_func[path[d]]);
    json_array_end(j);
}

static void put_profile(struct api_call *c, const struct query_flame *f, uint32_t *path,
                        unit_i128 lost)
{
    const struct query_head *h = query_head(c->query);
    struct json_out *j = &c->json;

    json_object_begin(j);
    api_put_text(j, "type", STR("sampled"));
    api_put_text(j, "name", h->type.name);
    json_key(j, "unit");
    json_cstr(j, unit_of(h->type.unit));
    json_key(j, "startValue");
    json_i64(j, 0);
    json_key(j, "endValue");
    api_put_number(c, (f->n ? f->total[0] : 0) + lost);
    json_key(j, "samples");
    json_array_begin(j);
    for (uint32_t i = 0; i < f->n; i++) {
        path[f->depth[i]] = i;
        if (f->self[i] > 0)
            put_stack(j, f, path, f->depth[i]);
    }
    if (lost > 0) {
        json_array_begin(j);
        json_u64(j, f->n_func);
        json_array_end(j);
    }
    json_array_end(j);
    json_key(j, "weights");
    json_array_begin(j);
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->self[i] > 0)
            api_put_number(c, f->self[i]);
    }
    if (lost > 0)
        api_put_number(c, lost);
    json_array_end(j);
    json_object_end(j);
}

int api_write_speedscope(struct api_call *c, const struct query_flame *f, unit_i128 lost,
                         struct query_err *e)
{
    uint32_t *path = arena_calloc(&c->arena, (size_t)f->n + 1, sizeof *path);
    struct json_out *j = &c->json;
    struct buf head;

    if (!path)
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL, "out of memory");
    c->numbers_as_strings = false;
    buf_init(&head, 1 << 20);
    api_text_head(&head, query_head(c->query), &f->sum);
    json_object_begin(j);
    api_put_text(j, "$schema", STR("https://www.speedscope.app/file-format-schema.json"));
    put_frames(j, f, lost > 0);
    json_key(j, "profiles");
    json_array_begin(j);
    put_profile(c, f, path, lost);
    json_array_end(j);
    api_put_text(j, "name", buf_view(&head)); /* type, range, coverage, loss */
    json_key(j, "activeProfileIndex");
    json_i64(j, 0);
    json_key(j, "exporter");
    json_cstr(j, "strata");
    json_object_end(j);
    buf_deinit(&head);
    return 0;
}
