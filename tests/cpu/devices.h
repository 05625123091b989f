/**
 * @file
 * The devices that tests of the CPU backend compare, and its scratch memory under suspicion.
 */
#ifndef COD_TESTS_CPU_DEVICES_H
#define COD_TESTS_CPU_DEVICES_H

#include "support/ops.h"

/** ref; cpu with two threads; cpu with one thread under the paranoid wrapper. */
extern cod_test_device test_ref, test_cpu, test_paranoid;

/**
 * Whether COD_TEST_FEW is set: the test runs with sanitizers, or on an instruction set that is not the machine's
 * widest. The kernels of all sets have one source, so that few cases show what differs: widths of vectors, remainders,
 * and what oneDNN chooses.
 */
bool test_few(void);

int test_devices_open(void **state);
int test_devices_close(void **state);

/**
 * Fills the device's scratch with NaN, as plans may not read what they have not written, and puts a guard behind it;
 * where `on` is a plain cpu device.
 */
COD_MUST_CHECK cod_status test_scratch_arm(cod_test_device on);
/** COD_ERR_BACKEND where the guard was written to since. */
COD_MUST_CHECK cod_status test_scratch_check(cod_test_device on);

#endif
