/**
 * @file
 * What every cmocka test includes: cmocka in its required order, tests that list themselves, and checks that speak our
 * language.
 */
#ifndef COD_TESTS_SUPPORT_TEST_H
#define COD_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/status.h"

/**
 * Defines a test, as in `TEST(zero_is_even) { … }`. A program runs its tests in the order in which they stand in its
 * file, and needs no main() of its own.
 */
#define TEST(name) TEST_WITH(name, NULL, NULL)

/** A test with a set-up and a tear-down of cmocka, either of which may be NULL. */
#define TEST_WITH(name, setup, teardown)                                                                               \
    static void name(void **state);                                                                                    \
    __attribute__((constructor)) static void list_##name(void)                                                         \
    {                                                                                                                  \
        const struct CMUnitTest test = {#name, name, setup, teardown, NULL};                                           \
        cod_test_list(test, __LINE__);                                                                                 \
    }                                                                                                                  \
    static void name(__attribute__((unused)) void **state)

/** The set-up of cmocka before a program's first test, and the tear-down behind its last one; either may be NULL. */
#define TEST_GROUP(setup, teardown)                                                                                    \
    __attribute__((constructor)) static void list_fixtures(void)                                                       \
    {                                                                                                                  \
        cod_test_list_fixtures(setup, teardown);                                                                       \
    }

void cod_test_list(struct CMUnitTest test, int line);
void cod_test_list_fixtures(CMFixtureFunction setup, CMFixtureFunction teardown);

/** Runs the tests that are listed, for a main() that does more; the program's exit code. */
int cod_test_run(void);

/** Fails the test with the recorded reason unless `call` succeeds. */
#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        const cod_status assert_ok_status_ = (call);                                                                   \
        if (assert_ok_status_ != COD_OK)                                                                               \
            fail_msg("%s failed (%s): %s [%s]", #call, cod_status_name(assert_ok_status_), cod_error_message(),        \
                     cod_error_place());                                                                               \
    } while (0)

/** Fails the test unless `call` fails with `code` and a message that contains `part`. */
#define assert_fails(code, part, call)                                                                                 \
    do {                                                                                                               \
        const cod_status assert_fails_status_ = (call);                                                                \
        if (assert_fails_status_ != (code))                                                                            \
            fail_msg("%s gave %s, not %s", #call, cod_status_name(assert_fails_status_), cod_status_name(code));       \
        cod_test_assert_contains(cod_error_message(), (part));                                                         \
    } while (0)

void cod_test_assert_contains(const char *text, const char *part);

/**
 * Fails the test where `findings` counts any: one of cod_late_violations(), cod_paranoid_violations() and
 * cod_emulated_faults(), which count since their last call and word the first. `where`, as for printf(), stands before.
 */
__attribute__((format(printf, 2, 3))) void cod_test_assert_none(size_t (*findings)(char *first, size_t bytes),
                                                                const char *where, ...);

/** Path of a file below COD_DATA, or NULL when it is not there; the test then calls skip(). Static buffer. */
const char *cod_test_data(const char *relative);

#endif
