#include "cuda/tune.h"

#include "core/trace.h"

#include <string.h>

static bool find_remembered(const cuda_choices *choices, const cuda_tuning *tuning, size_t *chosen)
{
    const char *name = cuda_choices_find(choices, tuning->key);
    for (size_t i = 0; name != NULL && i < tuning->count; i++) {
        if (strcmp(tuning->names[i], name) == 0) {
            *chosen = i;
            return true;
        }
    }
    return false;
}

cod_status cuda_tune(cuda_choices *choices, const cuda_tuning *tuning, cuda_tuned *out)
{
    const double begin = cod_clock_s();
    *out = (cuda_tuned){.us = 1e30, .first_us = 1e30};
    out->remembered = find_remembered(choices, tuning, &out->chosen);
    if (out->remembered)
        return COD_OK;
    for (size_t i = 0; i < tuning->count; i++) {
        double us = 1e30;
        if (i > 0 && cod_clock_s() - begin >= tuning->budget_s)
            break;
        const cod_status status = tuning->time(tuning->context, i, out->us, &us);
        if (status == COD_ERR_UNSUPPORTED) {
            out->unfit++;
            continue;
        }
        out->seconds = cod_clock_s() - begin;
        if (status != COD_OK)
            return cod_fail_prefix(status, "timing '%s'", tuning->names[i]);
        out->timed++;
        if (i == 0)
            out->first_us = us;
        if (us < out->us) {
            out->us = us;
            out->chosen = i;
        }
    }
    out->seconds = cod_clock_s() - begin;
    if (out->us >= 1e30)
        return cod_fail(COD_ERR_UNSUPPORTED, "none of %zu candidates could be timed", tuning->count);
    return cuda_choices_add(choices, tuning->key, tuning->names[out->chosen], out->us);
}
