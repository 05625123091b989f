#include "core/duration.h"

#include <math.h>
#include <stdio.h>

cod_duration_text cod_duration(double seconds)
{
    static const double longest = 1e12;
    cod_duration_text out;
    const long long s = llround(fmin(fmax(seconds, 0), longest)); /* fmax() takes NaN as absent */
    snprintf(out.text, sizeof out.text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return out;
}
