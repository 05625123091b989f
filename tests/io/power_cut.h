/**
 * @file
 * What a power cut would take: folders that this thread made and whose names it has not flushed since.
 *
 * In place of the C library's mkdir(), mkdirat(), fsync() and unlink().
 */
#ifndef COD_TESTS_IO_POWER_CUT_H
#define COD_TESTS_IO_POWER_CUT_H

/** Counts from here on. */
void cod_test_power_begin(void);
/** Folders made since. */
int cod_test_power_made(void);
/** Those of them that a power cut would take now. */
int cod_test_power_unsafe(void);
/** Files that were removed while there was such a folder. */
int cod_test_power_early(void);

#endif
