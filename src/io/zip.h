/**
 * @file
 * ZIP archives whose entries are stored, not compressed, as numpy.savez() and torch.save() write them (PKWARE's APPNOTE
 * 6.3, with ZIP64). Archives are only read.
 */
#ifndef COD_IO_ZIP_H
#define COD_IO_ZIP_H

#include "core/status.h"

#include <stdint.h>

/** One file of an archive. */
typedef struct cod_zip_entry {
    const char *name;
    const unsigned char *data; /**< in the archive, at any address */
    size_t bytes;
    uint32_t crc; /**< as the archive says; cod_zip_check() */
} cod_zip_entry;

/** An open archive, read into memory; every length and offset in it was checked, and no two entries have one name. */
typedef struct cod_zip cod_zip;

/**
 * @param[out] zip  new; cod_zip_close()
 * @return COD_ERR_IO; COD_ERR_FORMAT for a damaged or foreign file; COD_ERR_UNSUPPORTED where an entry is compressed or
 *         encrypted; all name the path
 */
COD_MUST_CHECK cod_status cod_zip_open(const char *path, cod_zip **zip);
/** The same from memory, which is borrowed until cod_zip_close(). */
COD_MUST_CHECK cod_status cod_zip_open_memory(const void *data, size_t bytes, cod_zip **zip);
/** Ends all entries; NULL is fine. */
void cod_zip_close(cod_zip *zip);

size_t cod_zip_count(const cod_zip *zip);
/** In the order of their names' bytes. */
const cod_zip_entry *cod_zip_at(const cod_zip *zip, size_t index);
/** NULL = no such entry. */
const cod_zip_entry *cod_zip_find(const cod_zip *zip, const char *name);

/** Checks an entry's bytes against its CRC-32. @return COD_ERR_FORMAT, with the entry's name */
COD_MUST_CHECK cod_status cod_zip_check(const cod_zip_entry *entry);

#endif
