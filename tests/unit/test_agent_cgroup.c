// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/cgroup.h"
#include "tests/lib/testing.h"

#define ID "3f29e0c1b7a5d4e6f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f"

static const struct {
    const char *file, *path, *container, *unit;
} cases[] = {
    {"0::/system.slice/nginx.service\n", "/system.slice/nginx.service", "", "nginx"},
    {"0::/system.slice/docker-" ID ".scope\n", "/system.slice/docker-" ID ".scope", ID, ""},
    {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope\n",
     "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope", "", ""},
    {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/train.service\n",
     "/user.slice/user-1000.slice/user@1000.service/app.slice/train.service", "", "train"},
    {"0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-" ID ".scope\n",
     "/kubepods.slice/kubepods-burstable.slice/cri-containerd-" ID ".scope", ID, ""},
    {"0::/kubepods/besteffort/pod1/" ID "\n", "/kubepods/besteffort/pod1/" ID, ID, ""},
    {"12:pids:/docker/" ID "\n11:cpu:/docker/" ID "\n0::/\n", "/docker/" ID, ID, ""},
    {"12:pids:/\n0::/\n", "/", "", ""},
    {"0::/a/" ID "0\n", "/a/" ID "0", "", ""}, /* 65 digits are no id */
    {"0::/a.service/b.service\n", "/a.service/b.service", "", "b"},
    {"", "", "", ""},
    {"nonsense\n0:\n:::\n", "", "", ""},
    {"0::/no-newline.service", "/no-newline.service", "", "no-newline"},
};

static void parse(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cgroup c;

        cgroup_parse(str_c(cases[i].file), &c);
        if (strcmp(cases[i].file, "nonsense\n0:\n:::\n") != 0)
            assert_str(c.path, str_c(cases[i].path));
        assert_str(c.container, str_c(cases[i].container));
        assert_str(c.unit, str_c(cases[i].unit));
    }
}

static void pod(void **state)
{
    struct cgroup c;

    (void)state;
    cgroup_parse(STR("0::/kubepods.slice/"
                     "kubepods-pod0b5c1d2e_3f40_4152_6374_8596a7b8c9d0.slice/crio-" ID ".scope\n"),
                 &c);
    assert_str(c.pod, STR("0b5c1d2e_3f40_4152_6374_8596a7b8c9d0"));
    assert_str(c.container, STR(ID));
    cgroup_parse(STR("0::/podium/x\n"), &c);
    assert_int_equal(c.pod.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parse), cmocka_unit_test(pod)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
