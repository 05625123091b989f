/* Guards: stretches outside a band, relations of figures, and which guard says that the model is no good. */
#include "support/test.h"

#include "core/log.h"
#include "train/guards.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static char lines[4096];

static void keep_line(void *context, cod_log_level level, const char *line)
{
    (void)context;
    const size_t used = strlen(lines);
    snprintf(lines + used, sizeof lines - used, "%s %s\n", level == COD_LOG_WARN ? "warn" : "info", line);
}

enum { LOSS, LEAD, NOISE };
static const cod_recipe recipe = {
    .guards = {{.name = "loss", .figure = "a", .least = 1, .most = 2, .advice = "lower it"},
               {.name = "lead",
                .figure = "a",
                .other = "b",
                .relation = COD_GUARD_DIFFERENCE,
                .least = -INFINITY,
                .most = 5,
                .advice = "wait"},
               {.name = "noise",
                .figure = "a",
                .other = "b",
                .relation = COD_GUARD_RATIO,
                .least = 0.1,
                .most = INFINITY,
                .advice = "begin anew",
                .spoils = true}},
    .guard_count = 3};

static double mean(const void *context, const char *name)
{
    const double *figures = context;
    return figures[strcmp(name, "b") == 0];
}

/** Looks with these figures; what is logged is in `lines`. */
static void look(cod_guards *guards, int64_t step, double a, double b)
{
    lines[0] = '\0';
    cod_guards_look(guards, step, 3, mean, (const double[]){a, b});
}

TEST(a_stretch_warns_once)
{
    cod_guards guards;
    cod_guards_init(&guards, &recipe);
    look(&guards, 10, 1.5, 1);
    assert_string_equal(lines, "");
    look(&guards, 20, 2.5, 1);
    assert_string_equal(lines, "warn group 3: guard loss: a is 2.5, expected 1 to 2, since step 20: lower it\n");
    look(&guards, 30, 0.5, 1); /* outside on the other side: the same stretch */
    assert_string_equal(lines, "");
    assert_int_equal(guards.since[LOSS], 20);
    look(&guards, 40, 2, 1); /* the band includes its ends */
    assert_string_equal(lines, "info group 3: guard loss: back in its band at step 40, with 2\n");
    look(&guards, 50, 2.5, 1);
    cod_test_assert_contains(lines, "since step 50");
}

TEST(relations_are_of_two_figures)
{
    cod_guards guards;
    cod_guards_init(&guards, &recipe);
    look(&guards, 1, 1, -4);
    assert_int_equal(guards.since[LEAD], 0);
    assert_int_equal(guards.since[NOISE], 1);
    cod_test_assert_contains(lines,
                             "guard noise: a / b is -0.25, expected at least 0.1, since step 1: begin anew; until");
    look(&guards, 2, 1, -4.5);
    assert_string_equal(lines, "warn group 3: guard lead: a - b is 5.5, expected at most 5, since step 2: wait\n");
    look(&guards, 3, 1, 0); /* infinite, and within */
    assert_int_equal(guards.since[NOISE], 0);
}

TEST(what_is_not_known_changes_nothing)
{
    cod_guards guards;
    cod_guards_init(&guards, &recipe);
    look(&guards, 1, 1.5, 20);
    assert_int_equal(guards.since[NOISE], 1);
    look(&guards, 2, 1.5, NAN);
    assert_string_equal(lines, "");
    assert_int_equal(guards.since[NOISE], 1);
    assert_float_equal(guards.value[NOISE], 0.075, 1e-12);
}

TEST(some_guards_say_that_the_model_is_no_good)
{
    cod_guards guards;
    char text[200];
    cod_guards_init(&guards, &recipe);
    look(&guards, 1, 9, 1);
    assert_true(guards.since[LOSS] > 0 && guards.since[LEAD] > 0);
    assert_null(cod_guards_spoilt(&guards));
    look(&guards, 2, 1, 20);
    assert_ptr_equal(cod_guards_spoilt(&guards), &recipe.guards[NOISE]);
    cod_guards_describe(&guards, &recipe.guards[NOISE], text, sizeof text);
    assert_string_equal(text, "a / b is 0.05, expected at least 0.1, since step 2: begin anew");
    look(&guards, 3, 1, 2);
    assert_null(cod_guards_spoilt(&guards));
}

TEST(one_rank_speaks_for_its_group)
{
    cod_guards guards;
    cod_guards_init(&guards, &recipe);
    lines[0] = '\0';
    cod_guards_look(&guards, 7, -1, mean, (const double[]){9, 1});
    assert_int_equal(guards.since[LOSS], 7);
    cod_guards_look(&guards, 8, -1, mean, (const double[]){1, 1});
    assert_string_equal(lines, "");
}

int main(void)
{
    cod_log_set_sink(keep_line, NULL, COD_LOG_INFO);
    return cod_test_run();
}
