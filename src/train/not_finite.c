#include "train/not_finite_internal.h"

#include "train/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Adds to a list of names. */
static void append(char *text, size_t bytes, const char *separator, const char *name)
{
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used > 0 ? separator : "", name);
}

/**
 * The first tensor of each set with a value that is not finite: "head.0.weight, discriminator.conv0_0.weight" or
 * "none".
 */
static void find_bad_tensors(const cod_train_session *session, bool gradients, char *text, size_t bytes)
{
    const cod_weights *weights = &session->weights;
    const size_t count = gradients ? weights->layout.trainable : cod_weights_count(weights);
    float *values = malloc(count * sizeof *values);
    cod_sets named = 0;
    text[0] = '\0';
    if (values != NULL && (gradients ? weights->backend->download(weights->device, NULL, values, weights->grads, 0,
                                                                  count * sizeof *values)
                                     : cod_weights_download(weights, values)) == COD_OK) {
        for (size_t p = 0; p < cod_graph_param_count(weights->graph); p++) {
            const cod_param *param = cod_graph_param(weights->graph, p);
            const size_t end = param->offset + (size_t)cod_shape_count(param->shape);
            bool bad = false;
            for (size_t i = param->offset; i < end && i < count && !bad; i++)
                bad = !isfinite(values[i]);
            if (!bad || (named & cod_set_of(param->set)) != 0)
                continue;
            char name[256];
            const char *set = cod_graph_set_name(weights->graph, param->set);
            snprintf(name, sizeof name, "%s%s%s", param->set > 0 ? set : "", param->set > 0 ? "." : "", param->name);
            append(text, bytes, ", ", name);
            named |= cod_set_of(param->set);
        }
    }
    if (text[0] == '\0')
        snprintf(text, bytes, "none");
    free(values);
}

/** The options that set the rates of the recipe's networks: "train.rate or gan.rate". */
static void list_rates(const cod_train_session *session, char *text, size_t bytes)
{
    snprintf(text, bytes, "train.rate");
    for (int s = 0; s < COD_GRAPH_MAX_SETS; s++) {
        const char *option = session->recipe.sets[s].rate_option;
        if (option != NULL && strstr(text, option) == NULL)
            append(text, bytes, " or ", option);
    }
}

cod_status trainer_report_not_finite(const cod_train_session *session, const char *what, int64_t step)
{
    char weights[512], grads[512], good[80], rates[128];
    find_bad_tensors(session, false, weights, sizeof weights);
    find_bad_tensors(session, true, grads, sizeof grads);
    list_rates(session, rates, sizeof rates);
    cod_train_describe_checkpoint(session->config, session->group, step, good);
    return cod_fail(COD_ERR_NUMERIC,
                    "the %s became NaN or infinite at step %lld (first bad weight: %s; first bad gradient: %s); %s; "
                    "try a lower %s, train.clip_norm, or train.warmup",
                    what, (long long)step, weights, grads, good, rates);
}
