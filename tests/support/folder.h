/**
 * @file
 * A folder for a test program's files; it goes away with the program, also after failed tests.
 */
#ifndef COD_TESTS_SUPPORT_FOLDER_H
#define COD_TESTS_SUPPORT_FOLDER_H

/** cmocka's set-up and tear-down of a group or a test: an empty folder, and all of it removed. */
int cod_test_folder_make(void **state);
int cod_test_folder_remove(void **state);

/** A test with such a folder of its own. */
#define TEST_IN_FOLDER(name) TEST_WITH(name, cod_test_folder_make, cod_test_folder_remove)

/** Path of a name in the folder, "" for the folder, which it makes if there is none; valid for the next 7 calls. */
const char *cod_test_at(const char *name);

#endif
