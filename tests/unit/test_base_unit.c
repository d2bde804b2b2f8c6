// SPDX-License-Identifier: Apache-2.0
#include "base/unit.h"
#include "tests/lib/testing.h"

/* The table once more, by hand: ids are on disk, so no edit may move one. */
static void rows(void **state)
{
    static const struct {
        const char *name, *unit;
        enum ptype_kind kind;
    } t[] = {
        {"cpu", "nanoseconds", KIND_SUM},
        {"offcpu", "nanoseconds", KIND_SUM},
        {"runq", "nanoseconds", KIND_SUM},
        {"gil_held", "nanoseconds", KIND_SUM},
        {"gil_wait", "nanoseconds", KIND_SUM},
        {"gpu_kernel", "nanoseconds", KIND_SUM},
        {"gpu_busy", "nanoseconds", KIND_SUM},
        {"gpu_idle", "nanoseconds", KIND_SUM},
        {"alloc", "bytes", KIND_SUM},
        {"alloc_objects", "count", KIND_SUM},
        {"live", "bytes", KIND_LEVEL},
        {"live_objects", "count", KIND_LEVEL},
        {"gpu_alloc", "bytes", KIND_SUM},
        {"gpu_live", "bytes", KIND_LEVEL},
        {"gpu_copy", "nanoseconds", KIND_SUM},
        {"gpu_copy_bytes", "bytes", KIND_SUM},
        {"gpu_exclusive", "nanoseconds", KIND_SUM},
        {"gpu_tensor_alloc", "bytes", KIND_SUM},
        {"gpu_tensor_live", "bytes", KIND_LEVEL},
        {"pinned_alloc", "bytes", KIND_SUM},
        {"pinned_live", "bytes", KIND_LEVEL},
    };
    const size_t n = sizeof t / sizeof t[0];

    (void)state;
    assert_int_equal(n, 21);
    assert_int_equal(PTYPE_BUILTIN_END, n + 1);
    for (size_t i = 0; i < n; i++) {
        const struct ptype *p = ptype_builtin((ptype_id)(i + 1));

        assert_non_null(p);
        assert_int_equal(p->id, i + 1);
        assert_string_equal(p->name, t[i].name);
        assert_string_equal(p->unit, t[i].unit);
        assert_int_equal(p->kind, t[i].kind);
        assert_ptr_equal(ptype_builtin_by_name(t[i].name, t[i].unit), p);
    }
    assert_null(ptype_builtin(PTYPE_NONE));
    assert_null(ptype_builtin(PTYPE_BUILTIN_END));
    assert_null(ptype_builtin(PTYPE_IMPORTED_FIRST));
    assert_null(ptype_builtin_by_name("cpu", "count"));
    assert_null(ptype_builtin_by_name("CPU", "nanoseconds"));
}

static void overflow_leaves_the_target(void **state)
{
    cpu_ns a = {INT64_MAX - 1};
    live_bytes l = {INT64_MAX};
    cpu_ns_total total = {};
    live_bytes_mean mean = {};

    (void)state;
    assert_true(cpu_ns_add(&a, (cpu_ns){1}));
    assert_int_equal(a.v, INT64_MAX);
    assert_false(cpu_ns_add(&a, (cpu_ns){1}));
    assert_int_equal(a.v, INT64_MAX);
    assert_false(cpu_ns_sub((cpu_ns){INT64_MIN}, (cpu_ns){1}, &a));
    assert_int_equal(a.v, INT64_MAX);
    assert_false(live_bytes_add_at(&l, (live_bytes){1}));
    assert_int_equal(l.v, INT64_MAX);

    cpu_ns_total_put(&total, (cpu_ns){INT64_MAX});
    cpu_ns_total_put(&total, (cpu_ns){INT64_MAX});
    a.v = 5;
    assert_false(cpu_ns_total_get(total, &a));
    assert_int_equal(a.v, 5);
    cpu_ns_total_put(&total, (cpu_ns){-INT64_MAX});
    assert_true(cpu_ns_total_get(total, &a)); /* the sum in between was kept exactly */
    assert_int_equal(a.v, INT64_MAX);

    live_bytes_mean_put(&mean, (live_bytes){INT64_C(1) << 62}, INT64_MAX);
    live_bytes_mean_put(&mean, (live_bytes){INT64_C(1) << 62}, INT64_MAX);
    l.v = 5;
    assert_true(live_bytes_mean_get(mean, INT64_MAX, &l) == false);
    assert_int_equal(l.v, 5);
}

static void means(void **state)
{
    live_bytes_mean mean = {};
    live_bytes l = {};

    (void)state;
    live_bytes_mean_put(&mean, (live_bytes){100}, 1000);
    live_bytes_mean_put(&mean, (live_bytes){200}, 3000);
    assert_true(live_bytes_mean_get(mean, 4000, &l));
    assert_int_equal(l.v, 175);
    assert_true(live_bytes_mean_get(mean, 8000, &l)); /* half of the covered time it held nothing */
    assert_int_equal(l.v, 87);
}

static void edges(void **state)
{
    struct qty q = qty_from_gpu_busy_ns((gpu_busy_ns){7});
    gpu_busy_ns g = {};
    cpu_ns c = {3};

    (void)state;
    assert_int_equal(q.type, PTYPE_GPU_BUSY);
    assert_true(qty_as_gpu_busy_ns(q, &g));
    assert_int_equal(g.v, 7);
    assert_false(qty_as_cpu_ns(q, &c)); /* the same unit, another type */
    assert_int_equal(c.v, 3);
    assert_int_equal(cpu_ns_cmp((cpu_ns){1}, (cpu_ns){2}), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(overflow_leaves_the_target),
        cmocka_unit_test(means),
        cmocka_unit_test(edges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
