/* How much a teacher weighs: never by a jump, and nothing before burn-in. */
#include "support/test.h"

#include "distill/schedule.h"
#include "distill/teaching.h"

#include <math.h>

enum { PERIOD = 10, LIMIT = 200, RAMP = 40 };

static const cod_exchange_options exchange = {.period = PERIOD, .max_staleness_steps = LIMIT};
static const cod_distill_options distill = {.weight = 0.5, .burn_in = 100, .ramp = RAMP, .every = 1};

static double weight(const cod_teacher_age *age, int64_t step)
{
    return cod_teacher_weight(&distill, &exchange, age, step, 1);
}

/** The largest change from one step to the next. */
static double largest_jump(const cod_teacher_age *age, int64_t from, int64_t to)
{
    double largest = 0;
    for (int64_t step = from; step < to; step++)
        largest = fmax(largest, fabs(weight(age, step + 1) - weight(age, step)));
    return largest;
}

TEST(a_first_teacher_ramps_in_after_burn_in)
{
    const cod_teacher_age early = {.step = 100, .since = 60}, late = {.step = 150, .since = 150},
                          none = {.step = 0, .since = -1};
    assert_true(weight(&none, 1000) == 0);
    for (int64_t step = 60; step < 100; step++)
        assert_true(weight(&early, step) == 0);
    assert_true(fabs(weight(&early, 100) - 0.5 / RAMP) < 1e-12);
    assert_true(fabs(weight(&early, 100 + RAMP - 1) - 0.5) < 1e-12);
    assert_true(fabs(weight(&late, 150) - 0.5 / RAMP) < 1e-12);
    assert_true(largest_jump(&early, 60, 300) < 1.01 * 0.5 / RAMP);
    assert_true(largest_jump(&late, 150, 350) < 1.01 * 0.5 / RAMP);
}

TEST(a_teacher_that_grows_old_ramps_out)
{
    const cod_teacher_age age = {.step = 1000, .since = 500};
    assert_true(weight(&age, 1000 + LIMIT) == 0.5);
    assert_true(fabs(weight(&age, 1000 + LIMIT + LIMIT / 8) - 0.25) < 1e-12);
    assert_true(weight(&age, 1000 + LIMIT + LIMIT / 4) == 0);
    assert_true(largest_jump(&age, 1000, 1000 + 2 * LIMIT) < 1.01 * 0.5 / (0.25 * LIMIT));
    /* A peer that is ahead is not old. */
    assert_true(weight(&age, 900) == 0.5);
    const cod_exchange_options unset = {.period = PERIOD};
    assert_true(cod_teacher_freshness(&unset, &age, 1000 + 20 * PERIOD) == 1);
    assert_true(cod_teacher_freshness(&unset, &age, 1000 + 25 * PERIOD) == 0);
}

TEST(seconds_count_where_they_are_limited)
{
    const cod_exchange_options limited = {.period = PERIOD, .max_staleness_steps = LIMIT, .max_staleness_s = 8};
    cod_teacher_age age = {.step = 1000, .since = 500, .age_s = NAN};
    assert_true(cod_teacher_freshness(&limited, &age, 1000) == 1);
    double before = 1;
    for (int ms = 0; ms <= 12000; ms++) {
        age.age_s = 1e-3 * ms;
        const double now = cod_teacher_freshness(&limited, &age, 1000);
        assert_true(ms > 8000 || now == 1);
        assert_true(ms < 10000 || now == 0);
        assert_true(before - now >= 0 && before - now < 0.00051);
        assert_true(cod_teacher_freshness(&exchange, &age, 1000) == 1);
        before = now;
    }
    age.age_s = 1; /* the nearer limit counts */
    assert_true(cod_teacher_freshness(&limited, &age, 1000 + LIMIT + LIMIT / 8) == 0.5);
}

/** As a pull does it: whoever had faded out comes back from zero, whoever had not goes on. */
TEST(a_returning_peer_ramps_in)
{
    cod_teacher_age age = {.step = 1000, .since = 500};
    const int64_t gone = 1000 + 2 * LIMIT;
    double before = weight(&age, gone);
    assert_true(before == 0);
    cod_teacher_age_renew(&age, &exchange, gone - 5, gone);
    for (int64_t step = gone; step < gone + 2 * RAMP; step++) {
        assert_true(fabs(weight(&age, step) - before) < 1.01 * 0.5 / RAMP);
        before = weight(&age, step);
    }
    assert_true(before == 0.5);
    cod_teacher_age_renew(&age, &exchange, gone + 2 * RAMP, gone + 2 * RAMP);
    assert_true(weight(&age, gone + 2 * RAMP) == 0.5);
}

/** What metrics show of a teacher that has grown too old is 0, and not what it had when it last taught. */
TEST(a_teacher_past_its_age_is_shown_without_weight)
{
    enum { PEERS = 2 };
    cod_peer items[PEERS] = {{.version = 1, .age = {.step = 1000, .since = 500, .age_s = NAN}},
                             {.version = 1, .age = {.step = 5000, .since = 500, .age_s = NAN}}};
    cod_peer *chosen[PEERS];
    cod_distill_options every_other = distill;
    cod_peers peers = {.items = items, .count = PEERS, .options = &exchange};
    cod_teaching teaching = {
        .options = &every_other, .peers = &peers, .off_step = -1, .lesson_every = 1, .chosen = chosen};
    cod_train_session session = {0};
    cod_train_context context = {.session = &session, .step = 1001};
    session.recipe.sets[0].schedule = (cod_schedule){.rate = 1};
    every_other.teachers_per_step = PEERS;
    every_other.every = 2;
    assert_false(cod_teaching_choose(&teaching, &context));
    context.step = 1002;
    assert_true(cod_teaching_choose(&teaching, &context));
    assert_true(teaching.count == PEERS && items[0].weight == 0.5 && items[1].weight == 0.5);
    context.step = 5000;
    teaching.count = 0;
    assert_true(cod_teaching_choose(&teaching, &context));
    assert_true(teaching.count == 1 && chosen[0] == &items[1]);
    assert_true(items[0].weight == 0 && items[1].weight == 0.5);
}

TEST(the_weight_falls_with_the_learning_rate)
{
    const cod_teacher_age age = {.step = 1000, .since = 500};
    cod_distill_options fading = distill;
    fading.fade = true;
    assert_true(cod_teacher_weight(&fading, &exchange, &age, 1000, 0.3) == 0.15);
    assert_true(cod_teacher_weight(&distill, &exchange, &age, 1000, 0.3) == 0.5);
}
