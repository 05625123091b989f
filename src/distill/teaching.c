#include "distill/teaching.h"

#include "core/queue.h"

#include <stdlib.h>

/**
 * Steps between two looks at a teacher that does not teach: a forward in so many steps is a cost that nobody notices.
 */
enum { MEASURE_EVERY = 50 };

cod_status cod_teaching_init(cod_teaching *teaching, const cod_distill_options *options, cod_peers *peers,
                             const cod_train_context *context)
{
    /* A gate decides by the losses of now. */
    const bool late = !cod_backend_runs_at_once(context->session->backend) && !options->gate;
    const cod_sub_step *lesson = cod_recipe_distilling(&context->session->recipe);
    *teaching = (cod_teaching){.options = options,
                               .peers = peers,
                               .off_step = -1,
                               .lesson = lesson,
                               .lesson_every = lesson != NULL && lesson->every > 1 ? lesson->every : 1,
                               .delay = late ? 1 : 0};
    for (int i = 0; i < COD_TEACHER_SLOTS; i++) {
        teaching->ran[i].peers = calloc((size_t)peers->count + 1, sizeof *teaching->ran[i].peers);
        COD_REQUIRE_MEMORY(teaching->ran[i].peers);
    }
    teaching->chosen = calloc((size_t)peers->count + 1, sizeof *teaching->chosen);
    COD_REQUIRE_MEMORY(teaching->chosen);
    const cod_train_session *session = context->session;
    const cod_view prior = cod_executable_input(session->executable, COD_PRIOR_TEACHER_INPUT);
    if (prior.buffer == NULL)
        return COD_OK;
    teaching->prior = calloc(cod_prior_classes(session), sizeof *teaching->prior);
    COD_REQUIRE_MEMORY(teaching->prior);
    return cod_prior_input_init(&teaching->prior_input, session->backend, session->device, prior);
}

void cod_teaching_clear(cod_teaching *teaching)
{
    for (int i = 0; i < COD_TEACHER_SLOTS; i++)
        free(teaching->ran[i].peers);
    free(teaching->chosen);
    free(teaching->prior);
    cod_prior_input_clear(&teaching->prior_input);
    *teaching = (cod_teaching){0};
}

/** What is left of the weights once distilling was found to lose. */
static double left_at(const cod_teaching *teaching, int64_t step)
{
    const int64_t ramp = teaching->options->ramp, since = step - teaching->off_step;
    if (teaching->off_step < 0)
        return 1;
    return since < ramp ? 1 - (double)since / (double)ramp : 0;
}

static double weight_now(const cod_teaching *teaching, const cod_peer *p, const cod_train_context *context)
{
    const cod_train_session *session = context->session;
    const double rate = cod_train_session_rate(session, 0, context->step) / session->recipe.sets[0].schedule.rate;
    return left_at(teaching, context->step) *
           cod_teacher_weight(teaching->options, teaching->peers->options, &p->age, context->step, rate);
}

/**
 * The next in turn that has a version but is not run on the mini-batch: before burn-in, too old, or teaching on other
 * inputs.
 */
static cod_peer *to_measure(const cod_teaching *teaching, const cod_train_context *context)
{
    const cod_peers *peers = teaching->peers;
    const int64_t lesson = context->step / teaching->lesson_every;
    if (lesson % MEASURE_EVERY != 0)
        return NULL;
    for (int i = 0; i < peers->count; i++) {
        cod_peer *p = &peers->items[(lesson / MEASURE_EVERY + i) % peers->count];
        const bool elsewhere = teaching->options->inputs != COD_DISTILL_INPUTS_BATCH;
        if (p->version > 0 && (elsewhere || weight_now(teaching, p, context) == 0))
            return p;
    }
    return NULL;
}

void cod_teaching_begin(cod_teaching *teaching)
{
    cod_peers_grow_old(teaching->peers);
    teaching->count = 0;
    teaching->measured = NULL;
}

bool cod_teaching_choose(cod_teaching *teaching, const cod_train_context *context)
{
    const cod_peers *peers = teaching->peers;
    const int64_t lesson = context->step / teaching->lesson_every;
    const int64_t turn = lesson / teaching->options->every * teaching->options->teachers_per_step;
    teaching->measured = to_measure(teaching, context);
    if (lesson % teaching->options->every != 0)
        return false;
    for (int i = 0; i < peers->count && teaching->count < teaching->options->teachers_per_step; i++) {
        cod_peer *p = &peers->items[(turn + i) % peers->count];
        p->weight = weight_now(teaching, p, context);
        if (p->weight > 0)
            teaching->chosen[teaching->count++] = p;
    }
    return true;
}

/** As cod_teacher_give() mixes the prediction. */
static void mix_prior(cod_teaching *teaching, const cod_train_context *context, const cod_peer *p, float share)
{
    const size_t classes = teaching->prior != NULL ? cod_prior_classes(context->session) : 0;
    const float *prior = cod_prior_of(context->session, p->group);
    for (size_t k = 0; k < classes; k++)
        teaching->prior[k] = (1 - share) * teaching->prior[k] + share * prior[k];
}

cod_status cod_teaching_predict(cod_teaching *teaching, const cod_train_context *context, double *weight)
{
    /* Only the mini-batch has a truth to tell a loss by. */
    const bool told = teaching->options->inputs == COD_DISTILL_INPUTS_BATCH, gated = told && teaching->options->gate;
    const size_t slot = told ? cod_teaching_slot(teaching, context->step) : COD_TEACHER_NO_SLOT;
    double sum = 0;
    *weight = 0;
    COD_TRY(cod_branch_fork(&teaching->peers->branch));
    for (int i = 0; i < teaching->count; i++) {
        cod_peer *p = teaching->chosen[i];
        COD_TRY(cod_teacher_run(p->teacher, slot));
        if (gated)
            COD_TRY(cod_teacher_loss(p->teacher, slot, &p->teacher_loss));
        if (teaching->options->gate && p->teacher_loss > teaching->student_loss)
            continue;
        sum += p->weight;
        *weight = p->weight > *weight ? p->weight : *weight;
        const float share = (float)(p->weight / sum);
        COD_TRY(cod_teacher_give(p->teacher, share));
        mix_prior(teaching, context, p, share);
    }
    return cod_prior_input_write(&teaching->prior_input, teaching->prior);
}

cod_status cod_teaching_measure(cod_teaching *teaching, int64_t step)
{
    cod_branch *branch = &teaching->peers->branch;
    if (teaching->measured == NULL)
        return COD_OK;
    COD_TRY(cod_branch_fork(branch));
    COD_TRY(cod_teacher_run(teaching->measured->teacher, cod_teaching_slot(teaching, step)));
    return cod_branch_wait(branch); /* the mini-batch and the teacher's weights may be written again */
}

void cod_teaching_remember(cod_teaching *teaching, int64_t step)
{
    const size_t slot = cod_teaching_slot(teaching, step);
    cod_peer **peers = teaching->ran[slot].peers;
    int count = 0;
    for (int i = 0; i < teaching->count && teaching->options->inputs == COD_DISTILL_INPUTS_BATCH; i++)
        peers[count++] = teaching->chosen[i];
    if (teaching->measured != NULL)
        peers[count++] = teaching->measured;
    teaching->ran[slot].count = count;
}

cod_status cod_teaching_note(cod_teaching *teaching, int64_t step, double student_loss)
{
    const size_t slot = cod_teaching_slot(teaching, step);
    teaching->student_loss =
        teaching->student_loss == 0 ? student_loss : 0.99 * teaching->student_loss + 0.01 * student_loss;
    for (int i = 0; i < teaching->ran[slot].count; i++) {
        cod_peer *p = teaching->ran[slot].peers[i];
        COD_TRY(cod_teacher_loss(p->teacher, slot, &p->teacher_loss));
        p->student_loss = student_loss;
    }
    return COD_OK;
}
