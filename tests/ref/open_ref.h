/**
 * @file
 * The device of tests of `ref`, opened before a program's first test and closed behind its last one.
 */
#ifndef COD_TESTS_REF_OPEN_REF_H
#define COD_TESTS_REF_OPEN_REF_H

#include "support/test.h"

#include "ref/ref.h"
#include "support/ops.h"

static cod_test_device ref = {.backend = &cod_ref_backend};

static int open_ref(void **state)
{
    (void)state;
    return ref.backend->open(NULL, &ref.device) == COD_OK ? 0 : -1;
}

static int close_ref(void **state)
{
    (void)state;
    ref.backend->close(ref.device);
    return 0;
}

TEST_GROUP(open_ref, close_ref)

#endif
