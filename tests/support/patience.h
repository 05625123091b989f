/**
 * @file
 * How long tests wait for what must come. Only a hang reaches the limit, whatever else the machine is busy with.
 */
#ifndef COD_TESTS_SUPPORT_PATIENCE_H
#define COD_TESTS_SUPPORT_PATIENCE_H

enum { COD_TEST_PATIENCE_S = 300, COD_TEST_PATIENCE_MS = 1000 * COD_TEST_PATIENCE_S };

#endif
