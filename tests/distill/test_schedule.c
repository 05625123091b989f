/* How much a teacher weighs: never by a jump, and nothing before burn-in. */
#include "support/test.h"

#include "distill/schedule.h"
#include "distill/teaching.h"

#include <math.h>

enum { PERIOD = 10, LIMIT = 200, RAMP = 40, PEERS = 3 };

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

/** A teaching of some peers of age 0, at a step after burn-in and ramp. */
typedef struct lessons {
    cod_peer items[PEERS], *chosen[PEERS];
    cod_distill_options options;
    cod_peers peers;
    cod_teaching teaching;
    cod_train_session session;
    cod_train_context context;
} lessons;

static void lessons_open(lessons *l, int teachers_per_step, int every)
{
    *l = (lessons){.options = distill};
    l->options.teachers_per_step = teachers_per_step;
    l->options.every = every;
    for (int i = 0; i < PEERS; i++)
        l->items[i] = (cod_peer){.version = 1, .age = {.step = 1000, .since = 500, .age_s = NAN}};
    l->peers = (cod_peers){.items = l->items, .count = PEERS, .options = &exchange};
    l->teaching = (cod_teaching){
        .options = &l->options, .peers = &l->peers, .off_step = -1, .lesson_every = 1, .chosen = l->chosen};
    l->session.recipe.sets[0].schedule = (cod_schedule){.rate = 1};
    l->context = (cod_train_context){.session = &l->session, .step = 1000};
}

static bool choose_at(lessons *l, int64_t step)
{
    l->context.step = step;
    l->teaching.count = 0;
    return cod_teaching_choose(&l->teaching, &l->context);
}

/** What metrics show of a teacher that has grown too old is 0, and not what it had when it last taught. */
TEST(a_teacher_past_its_age_is_shown_without_weight)
{
    lessons l;
    lessons_open(&l, PEERS, 2);
    l.items[1].age.step = 5000;
    assert_false(choose_at(&l, 1001));
    assert_true(choose_at(&l, 1002));
    assert_true(l.teaching.count == PEERS && l.items[0].weight == 0.5 && l.items[1].weight == 0.5);
    l.items[2].age.step = 5000;
    assert_true(choose_at(&l, 5000));
    assert_true(l.teaching.count == PEERS - 1 && l.chosen[0] == &l.items[1] && l.chosen[1] == &l.items[2]);
    assert_true(l.items[0].weight == 0 && l.items[1].weight == 0.5);
}

/** A step has as many teachers as are set, however many peers there are, and each peer has its turn as often. */
TEST(peers_take_turns)
{
    for (int wanted = 1; wanted <= PEERS; wanted++)
        for (int every = 1; every <= 3; every++) {
            lessons l;
            int taught[PEERS] = {0};
            lessons_open(&l, wanted, every);
            for (int64_t step = 1000; step < 1000 + PEERS * every; step++) {
                assert_int_equal(choose_at(&l, step), step % every == 0);
                assert_int_equal(l.teaching.count, step % every == 0 ? wanted : 0);
                for (int i = 0; i < l.teaching.count; i++)
                    taught[l.chosen[i] - l.items]++;
            }
            for (int i = 0; i < PEERS; i++)
                assert_int_equal(taught[i], wanted);
        }
}

/** The loss of a teacher without a weight is looked at every fifty steps, one peer after the other. */
TEST(a_teacher_that_does_not_teach_is_measured)
{
    lessons l;
    lessons_open(&l, 1, 1);
    for (int64_t step = 1000; step < 1200; step++) { /* they teach */
        choose_at(&l, step);
        assert_null(l.teaching.measured);
    }
    l.options.burn_in = 10000;
    for (int64_t step = 1000; step < 1200; step++) {
        choose_at(&l, step);
        assert_int_equal(l.teaching.count, 0);
        assert_ptr_equal(l.teaching.measured, step % 50 == 0 ? &l.items[step / 50 % PEERS] : NULL);
    }
    l.items[0].version = 0; /* of which nothing was pulled */
    choose_at(&l, 3000);
    assert_ptr_equal(l.teaching.measured, &l.items[1]);
}

TEST(the_weight_falls_with_the_learning_rate)
{
    const cod_teacher_age age = {.step = 1000, .since = 500};
    cod_distill_options fading = distill;
    fading.fade = true;
    assert_true(cod_teacher_weight(&fading, &exchange, &age, 1000, 0.3) == 0.15);
    assert_true(cod_teacher_weight(&distill, &exchange, &age, 1000, 0.3) == 0.5);
}
