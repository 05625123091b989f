#include "data/gaussian_internal.h"

#include <math.h>

void cod_gaussian_weights(int side, double sigma, double *weights)
{
    double sum = 0;
    for (int i = 0; i < side; i++)
        sum += weights[i] = exp(-(i - side / 2) * (i - side / 2) / (2 * sigma * sigma));
    for (int i = 0; i < side; i++)
        weights[i] /= sum;
}
