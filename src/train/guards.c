#include "train/guards.h"

#include "core/log.h"

#include <math.h>
#include <stdio.h>

void cod_guards_init(cod_guards *guards, const cod_recipe *recipe)
{
    *guards = (cod_guards){.recipe = recipe};
}

static double value_of(const cod_recipe_guard *guard, cod_guards_mean *mean, const void *context)
{
    const double figure = mean(context, guard->figure);
    switch (guard->relation) {
    case COD_GUARD_DIFFERENCE:
        return figure - mean(context, guard->other);
    case COD_GUARD_RATIO:
        return figure / mean(context, guard->other);
    default:
        return figure;
    }
}

/** "at most 4", "at least 0.1", "0.1 to 4" */
static void describe_band(const cod_recipe_guard *guard, char text[64])
{
    if (isinf(guard->least))
        snprintf(text, 64, "at most %g", guard->most);
    else if (isinf(guard->most))
        snprintf(text, 64, "at least %g", guard->least);
    else
        snprintf(text, 64, "%g to %g", guard->least, guard->most);
}

void cod_guards_describe(const cod_guards *guards, const cod_recipe_guard *guard, char *text, size_t bytes)
{
    static const char *const signs[] = {"", " - ", " / "};
    const size_t index = (size_t)(guard - guards->recipe->guards);
    char band[64];
    describe_band(guard, band);
    snprintf(text, bytes, "%s%s%s is %.4g, expected %s, since step %lld: %s", guard->figure, signs[guard->relation],
             guard->other != NULL ? guard->other : "", guards->value[index], band, (long long)guards->since[index],
             guard->advice);
}

static void tell_out(const cod_guards *guards, const cod_recipe_guard *guard, int group)
{
    char text[1024];
    cod_guards_describe(guards, guard, text, sizeof text);
    cod_log_warn("group %d: guard %s: %s%s", group, guard->name, text,
                 guard->spoils ? "; until it is back no checkpoint is saved and no model is kept as the best" : "");
}

void cod_guards_look(cod_guards *guards, int64_t step, int group, cod_guards_mean *mean, const void *context)
{
    for (size_t i = 0; i < guards->recipe->guard_count; i++) {
        const cod_recipe_guard *guard = &guards->recipe->guards[i];
        const double value = value_of(guard, mean, context);
        const bool was_out = guards->since[i] > 0, is_out = value < guard->least || value > guard->most;
        if (isnan(value))
            continue;
        guards->value[i] = value;
        guards->since[i] = !is_out ? 0 : was_out ? guards->since[i] : step;
        if (is_out && !was_out && group >= 0)
            tell_out(guards, guard, group);
        if (was_out && !is_out && group >= 0)
            cod_log_info("group %d: guard %s: back in its band at step %lld, with %.4g", group, guard->name,
                         (long long)step, value);
    }
}

const cod_recipe_guard *cod_guards_spoilt(const cod_guards *guards)
{
    for (size_t i = 0; i < guards->recipe->guard_count; i++)
        if (guards->since[i] > 0 && guards->recipe->guards[i].spoils)
            return &guards->recipe->guards[i];
    return NULL;
}
