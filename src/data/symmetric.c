#include "data/symmetric_internal.h"

#include <math.h>
#include <string.h>

/** Makes a[p][q] 0. */
static void rotate(int n, double *a, double *vectors, int p, int q)
{
    const double apq = a[p * n + q], theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
    const double t = copysign(1, theta) / (fabs(theta) + sqrt(theta * theta + 1));
    const double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int k = 0; k < n; k++) {
        const double akp = a[k * n + p], akq = a[k * n + q];
        a[k * n + p] = c * akp - s * akq;
        a[k * n + q] = s * akp + c * akq;
    }
    for (int k = 0; k < n; k++) {
        const double apk = a[p * n + k], aqk = a[q * n + k];
        a[p * n + k] = c * apk - s * aqk;
        a[q * n + k] = s * apk + c * aqk;
        const double vkp = vectors[k * n + p], vkq = vectors[k * n + q];
        vectors[k * n + p] = c * vkp - s * vkq;
        vectors[k * n + q] = s * vkp + c * vkq;
    }
    a[p * n + q] = a[q * n + p] = 0;
}

void cod_diagonalise(int size, double *a, double *vectors)
{
    enum { SWEEPS = 60 };
    memset(vectors, 0, (size_t)size * (size_t)size * sizeof *vectors);
    for (int i = 0; i < size; i++)
        vectors[i * size + i] = 1;
    for (int sweep = 0, done = 0; sweep < SWEEPS && !done; sweep++) {
        done = 1;
        for (int p = 0; p < size; p++)
            for (int q = p + 1; q < size; q++)
                if (a[p * size + q] != 0) {
                    done = 0;
                    rotate(size, a, vectors, p, q);
                }
    }
}

double cod_pinv_tolerance(int size, double largest)
{
    return size * (nextafter(largest, INFINITY) - largest);
}
