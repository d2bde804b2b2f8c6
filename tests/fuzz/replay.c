// SPDX-License-Identifier: Apache-2.0
/*
 * replay FOLDER: feeds each file of a corpus to a fuzz target. A folder without files is an error:
 * a test that read nothing has tested nothing.
 */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path, off_t size)
{
    /* exactly as large as the input: a read past its end is seen by ASan and valgrind */
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    FILE *file = fopen(path, "rbe");
    size_t n = 0;

    if (data && file)
        n = fread(data, 1, (size_t)size, file);
    if (file)
        (void)fclose(file);
    if (!data || !file || n != (size_t)size) {
        perror(path);
        free(data);
        return 1;
    }
    (void)LLVMFuzzerTestOneInput(data, n);
    free(data);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    int n = 0;
    int bad = 0;

    if (!dir) {
        perror(argc == 2 ? argv[1] : "usage: replay FOLDER");
        return 2;
    }
    for (const struct dirent *e; (e = readdir(dir));) {
        char path[PATH_MAX];
        struct stat st;

        if (snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name) >= (int)sizeof path ||
            stat(path, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        bad += replay(path, st.st_size);
        n++;
    }
    (void)closedir(dir);
    printf("%d inputs, %d unreadable\n", n, bad);
    return n == 0 || bad ? 1 : 0;
}
