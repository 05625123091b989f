/**
 * @file
 * The identity of a data set: which files it is read from, by name, size and contents. A run can be resumed, and runs
 * can be compared, only on the same data.
 */
#ifndef COD_DATA_IDENTITY_H
#define COD_DATA_IDENTITY_H

#include "data/options.h"

#include <stdint.h>

enum { COD_DATA_CHANGE_BYTES = 512 };

/**
 * Lists the files of a data set, one line each in the order in which they are used: the option that names their root
 * and its index ("path 0"), the name below the root, the size in bytes, and a hash of the contents, with tabulators
 * between them. Where the root lies, and when its files were written, does not count, so a copy of the data is the same
 * data. Bytes of a name that would break a line are written as \xNN.
 *
 * The hash is of 16 blocks of 4 KiB spread evenly over the file: of all bytes of a file of up to 64 KiB. It is 0 for
 * all files of a data set of more than 20,000. Generated data have one line, with what determines them.
 *
 * @param[out] list  new; free()
 * @return COD_ERR_IO when a root cannot be read, or a file for another reason than that it is missing or forbidden
 */
COD_MUST_CHECK cod_status cod_data_list_files(const cod_data_options *options, char **list);

/** Hash of a list, in 16 hexadecimal digits. */
void cod_data_list_key(const char *list, char key[17]);

/**
 * Says in what a list differs from an earlier one: "2 added (c.png, d.png), 1 removed (a.png), 1 changed (b.png)". ""
 * when they are equal.
 */
void cod_data_list_compare(const char *before, const char *now, char text[COD_DATA_CHANGE_BYTES]);

#endif
