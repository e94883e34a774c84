/* Runs the entry of statistics.c in a process of its own: under AddressSanitizer, or as a program of another machine.
 *
 * It reads requests from its input and writes the answers, numbers as they lie in memory; each tensor lies in memory of
 * exactly its size, behind as many bytes as are said, so that reading beyond it is noticed.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int64_t sonde_statistics(int64_t, const char *const *, const char *const *, const int64_t *, const int32_t *,
                         const uint32_t *, double *, double *, int32_t *, float *, int64_t);

static void *get(size_t size)
{
    void *memory = malloc(size ? size : 1);
    if (size && fread(memory, size, 1, stdin) != 1)
        exit(2);
    return memory;
}

static char *get_tensor(int64_t offset, int64_t size)
{
    char *memory = malloc(offset + size ? offset + size : 1);
    if (size && fread(memory + offset, size, 1, stdin) != 1)
        exit(2);
    return memory + offset;
}

static void put(void *memory, size_t size)
{
    fwrite(memory, 1, size, stdout);
    free(memory);
}

int main(void)
{
    int64_t head[3]; /* tensors, whether there are differences, threads */
    while (fread(head, sizeof head, 1, stdin) == 1) {
        int64_t num = head[0];
        int64_t *numels = get(num * 8), *offsets = get(num * 8);
        int32_t *dtypes = get(num * 4);
        uint32_t *seeds = get(num * 4);
        char **new = malloc(num * sizeof *new + 1), **old = head[1] ? malloc(num * sizeof *old + 1) : 0;
        for (int64_t i = 0; i < num; i++) {
            int64_t size = numels[i] * (dtypes[i] == 3 ? 8 : dtypes[i] == 0 ? 4 : 2);
            new[i] = get_tensor(offsets[i], size);
            if (old)
                old[i] = get_tensor(offsets[i], size);
        }
        double *rows = malloc(num * 56 + 1), *norms = malloc(num * 8 + 1);
        int32_t *histograms = malloc(num * 8192 + 1);
        float *sketches = malloc(num * 1024 + 1);
        if (sonde_statistics(num, (const char *const *)new, (const char *const *)old, numels, dtypes, seeds, rows,
                             norms, histograms, sketches, head[2]))
            return 3;
        for (int64_t i = 0; i < num; i++) {
            free(new[i] - offsets[i]);
            if (old)
                free(old[i] - offsets[i]);
        }
        free(new);
        free(old);
        free(numels);
        free(offsets);
        free(dtypes);
        free(seeds);
        put(rows, num * 56);
        put(norms, num * 8);
        put(histograms, num * 8192);
        put(sketches, num * 1024);
        fflush(stdout);
    }
    return 0;
}
