// SPDX-License-Identifier: Apache-2.0
/*
 * embed LIBPYTHON MS SCRIPT: burns so much CPU time as a plain C program, then loads that library
 * and runs the script in it: a Python that comes late.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    void (*initialize)(int);
    int (*run)(const char *);
    double end;
    char text[512];
    void *lib;

    if (argc != 4)
        return 2;
    end = cpu_s() + atof(argv[2]) / 1e3;
    while (cpu_s() < end)
        ;
    lib = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!lib) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    *(void **)&initialize = dlsym(lib, "Py_InitializeEx");
    *(void **)&run = dlsym(lib, "PyRun_SimpleString");
    if (!initialize || !run)
        return 4;
    initialize(0);
    snprintf(text, sizeof text,
             "import sys\nsys.argv = ['%s', '1']\nexec(compile(open('%s').read(), '%s', 'exec'))",
             argv[3], argv[3], argv[3]);
    return run(text) ? 5 : 0;
}
