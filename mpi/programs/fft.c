/* 3-D Fourier transform after NAS FT: each rank has a slab, and all exchange parts of them to turn the axes.
 *
 *     fft [--side 64] [--iterations 6]
 *
 * Verified: the transform of a wave is one point; the inverse of the transform is where it began; energy stays from
 * iteration to iteration as it has to. The checksum is the same for all numbers of ranks. */
#include "common.h"

#include <complex.h>
#include <math.h>

typedef double complex number;

static int side, thick;
static number *roots, *row;
static uint64_t bytes;
static double communicating;

static size_t cells(void) { return (size_t)side * side * thick; }

/* One row in place; its length is a power of two. */
static void transform_row(number *at, int inverse) {
    for (int i = 1, j = 0; i < side; i++) {
        int bit = side >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j |= bit;
        if (i < j) {
            number kept = at[i];
            at[i] = at[j], at[j] = kept;
        }
    }
    for (int half = 1; half < side; half *= 2)
        for (int i = 0; i < side; i += 2 * half)
            for (int k = 0; k < half; k++) {
                number root = roots[k * (side / 2 / half)];
                number low = at[i + k], high = at[i + k + half] * (inverse ? conj(root) : root);
                at[i + k] = low + high, at[i + k + half] = low - high;
            }
}

/* The second axis of each plane: rows are copied out and back. */
static void transform_middle(number *at, int inverse) {
    for (int z = 0; z < thick; z++)
        for (int x = 0; x < side; x++) {
            number *plane = at + (size_t)z * side * side + x;
            for (int y = 0; y < side; y++) row[y] = plane[(size_t)y * side];
            transform_row(row, inverse);
            for (int y = 0; y < side; y++) plane[(size_t)y * side] = row[y];
        }
}

static void transform_first(number *at, int inverse) {
    for (size_t i = 0; i < (size_t)side * thick; i++) transform_row(at + i * side, inverse);
}

/* Turns [z][y][x], split by z, into [x][y][z], split by x; done twice, it is where it was. */
static void turn(number *at, number *spare) {
    size_t block = (size_t)thick * thick * side;
    for (int to = 0; to < ranks; to++)
        for (int z = 0; z < thick; z++)
            for (int y = 0; y < side; y++)
                for (int x = 0; x < thick; x++)
                    spare[to * block + ((size_t)x * side + y) * thick + z] =
                        at[((size_t)z * side + y) * side + to * thick + x];
    double from = MPI_Wtime();
    int count = (int)(block * 2);
    MPI_Alltoall(spare, count, MPI_DOUBLE, at, count, MPI_DOUBLE, MPI_COMM_WORLD);
    communicating += MPI_Wtime() - from;
    bytes += block * sizeof(number) * (ranks - 1);
    memcpy(spare, at, cells() * sizeof(number));
    for (int source = 0; source < ranks; source++)
        for (size_t xy = 0; xy < (size_t)thick * side; xy++)
            memcpy(at + xy * side + source * thick, spare + source * block + xy * thick, thick * sizeof(number));
}

/* There: x, y, then z with the axes turned. Back: the other way round, divided by the number of cells. */
static void transform(number *at, number *spare, int inverse) {
    if (inverse) {
        transform_first(at, 1);
        turn(at, spare);
        transform_middle(at, 1);
        transform_first(at, 1);
        double all = (double)side * side * side;
        for (size_t i = 0; i < cells(); i++) at[i] /= all;
    } else {
        transform_first(at, 0);
        transform_middle(at, 0);
        turn(at, spare);
        transform_first(at, 0);
    }
}

static double sum_of(double own) {
    double sum = 0;
    MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

static double energy(const number *at) {
    double own = 0;
    for (size_t i = 0; i < cells(); i++) own += creal(at[i]) * creal(at[i]) + cimag(at[i]) * cimag(at[i]);
    return sum_of(own);
}

/* A cell's value, by its place in the whole: the same for all numbers of ranks. */
static number value(uint64_t place) {
    uint64_t a = (place + 1) * 0x9e3779b97f4a7c15u;
    a = (a ^ a >> 29) * 0xbf58476d1ce4e5b9u;
    uint64_t b = (a ^ a >> 32) * 0x94d049bb133111ebu;
    return (double)(a >> 11) * 0x1p-53 - 0.5 + I * ((double)(b >> 11) * 0x1p-53 - 0.5);
}

/* The wave exp(2 pi i (3x + 5y + 7z) / side) becomes one point. Returns the number of wrong cells. */
static uint64_t check_wave(number *at, number *spare) {
    size_t i = 0;
    for (int z = 0; z < thick; z++)
        for (int y = 0; y < side; y++)
            for (int x = 0; x < side; x++)
                at[i++] = cexp(2 * M_PI * I * ((3 * x + 5 * y + 7 * (z + rank * thick)) % side) / side);
    transform(at, spare, 0);
    double all = (double)side * side * side;
    uint64_t wrong = 0;
    i = 0;
    for (int x = 0; x < thick; x++)
        for (int y = 0; y < side; y++)
            for (int z = 0; z < side; z++) {
                int point = x + rank * thick == 3 % side && y == 5 % side && z == 7 % side;
                wrong += cabs(at[i++] - (point ? all : 0)) > 1e-9 * all;
            }
    return wrong;
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    side = atoi(option(argc, argv, "--side", "64"));
    int iterations = atoi(option(argc, argv, "--iterations", "6"));
    if (side < 8 || side > 1024 || side & (side - 1) || side % ranks) fail("a side is a power of two, a multiple of ranks");
    thick = side / ranks;
    number *spectrum = malloc(cells() * sizeof(number)), *at = malloc(cells() * sizeof(number));
    number *spare = malloc(cells() * sizeof(number));
    roots = malloc(side * sizeof(number)), row = malloc(side * sizeof(number));
    if (!spectrum || !at || !spare || !roots || !row) fail("no memory");
    for (int i = 0; i < side; i++) roots[i] = cexp(-2 * M_PI * I * i / side);

    uint64_t wrong = check_wave(at, spare), base = (uint64_t)rank * cells();
    for (size_t i = 0; i < cells(); i++) spectrum[i] = value(base + i);
    double before = energy(spectrum), all = (double)side * side * side;
    transform(spectrum, spare, 0);
    wrong += fabs(energy(spectrum) / all / before - 1) > 1e-9;
    memcpy(at, spectrum, cells() * sizeof(number));
    transform(at, spare, 1);
    for (size_t i = 0; i < cells(); i++) wrong += cabs(at[i] - value(base + i)) > 1e-9;

    MPI_Barrier(MPI_COMM_WORLD);
    communicating = 0, bytes = 0;
    double began = MPI_Wtime(), checksum[2] = {0, 0};
    for (int iteration = 1; iteration <= iterations; iteration++) {
        /* Each wave is damped by its number, as heat is, and all of it goes back into space. */
        size_t i = 0;
        for (int x = 0; x < thick; x++)
            for (int y = 0; y < side; y++)
                for (int z = 0; z < side; z++, i++) {
                    int whole[3] = {x + rank * thick, y, z};
                    double square = 0;
                    for (int axis = 0; axis < 3; axis++) {
                        int wave = whole[axis] > side / 2 ? whole[axis] - side : whole[axis];
                        square += (double)wave * wave;
                    }
                    spectrum[i] *= exp(-4e-6 * M_PI * M_PI * square);
                }
        memcpy(at, spectrum, cells() * sizeof(number));
        transform(at, spare, 1);
        wrong += fabs(energy(at) * all / energy(spectrum) - 1) > 1e-9;
        /* Every 61st cell of the whole, so that it does not matter which rank has it. */
        for (size_t cell = (61 - base % 61) % 61; cell < cells(); cell += 61) {
            double weight = 1.0 + (double)((base + cell) / 61 % 7);
            checksum[0] += creal(at[cell]) * weight, checksum[1] += cimag(at[cell]) * weight;
        }
    }
    double slowest[2] = {MPI_Wtime() - began, communicating};
    MPI_Allreduce(MPI_IN_PLACE, slowest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    double real = sum_of(checksum[0]), imaginary = sum_of(checksum[1]);
    uint64_t all_bytes = over_ranks(bytes), all_wrong = over_ranks(wrong);
    if (rank == 0)
        printf("{\"program\":\"fft\",\"side\":%d,\"ranks\":%d,\"iterations\":%d,\"seconds\":%.6f,\"communicating\":%.6f,"
               "\"mop_s\":%.3f,\"bytes\":%llu,\"checksum\":\"%.6f %.6f\",\"wrong\":%llu}\n",
               side, ranks, iterations, slowest[0], slowest[1], iterations * all * 5 * 3 * log2(side) / slowest[0] / 1e6,
               (unsigned long long)all_bytes, real, imaginary, (unsigned long long)all_wrong);
    free(spectrum), free(at), free(spare), free(roots), free(row);
    return end(wrong);
}
