#include "distill/toward.h"

#include "distill/codistill.h"
#include "train/prior.h"

cod_loss_kind cod_toward_kind(int choice, cod_loss_kind task)
{
    switch (choice) {
    case COD_DISTILL_LOSS_L1:
        return COD_LOSS_L1;
    case COD_DISTILL_LOSS_MSE:
        return COD_LOSS_MSE;
    case COD_DISTILL_LOSS_CHARBONNIER:
        return COD_LOSS_CHARBONNIER;
    case COD_DISTILL_LOSS_KL:
        return COD_LOSS_KL;
    default:
        return task;
    }
}

static void add(cod_toward *toward, cod_value loss, double weight)
{
    toward->items[toward->count].loss = loss;
    toward->items[toward->count++].weight = weight;
}

void cod_toward_add_outputs(cod_toward *toward, const cod_train_session *session, cod_value teacher, cod_loss_spec spec)
{
    const cod_model *model = &session->recipe.model;
    spec.weight = session->loss_factor;
    add(toward, cod_prior_distill_loss(session->priors, model->graph, "distill", model->output, teacher, spec), 1);
}

cod_status cod_toward_add_features(cod_toward *toward, const cod_train_session *session, cod_value teacher,
                                   cod_loss_spec spec)
{
    const cod_recipe *recipe = &session->recipe;
    const cod_recipe_setting setting = {.config = session->config,
                                        .group = session->group,
                                        .priors = session->priors,
                                        .loss_factor = session->loss_factor};
    cod_value features[COD_RECIPE_MAX_FEATURES];
    COD_REQUIRE(recipe->feature_count > 0,
                "distill.loss: features: the content loss of recipe '%s' compares pixels, so that there is no network "
                "whose features could be compared: set gan.content, or distill.loss: l1",
                recipe->kind->name);
    COD_TRY(recipe->kind->add_features(&setting, recipe, teacher, features));
    for (size_t i = 0; i < recipe->feature_count; i++) {
        const cod_recipe_feature *feature = &recipe->features[i];
        spec.kind = feature->loss;
        spec.weight = (float)feature->weight * session->loss_factor;
        add(toward, cod_graph_loss(recipe->model.graph, "distill", feature->made, features[i], spec), feature->weight);
    }
    return COD_OK;
}

cod_status cod_toward_put(const cod_toward *toward, const cod_train_session *session, cod_readback *readback,
                          size_t slot, size_t first)
{
    for (size_t i = 0; i < toward->count; i++) {
        const cod_view loss = cod_executable_loss_view(session->executable, toward->items[i].loss);
        COD_TRY(cod_readback_put(readback, slot, first + i, &loss));
    }
    return COD_OK;
}

cod_status cod_toward_get(const cod_toward *toward, cod_readback *readback, size_t slot, size_t first, double *sum)
{
    *sum = 0;
    for (size_t i = 0; i < toward->count; i++) {
        double value;
        COD_TRY(cod_readback_get(readback, slot, first + i, &value));
        *sum += toward->items[i].weight * value;
    }
    return COD_OK;
}
