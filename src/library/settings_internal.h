/**
 * @file
 * The settings of a handle, from texts "key=value".
 */
#ifndef COD_LIBRARY_SETTINGS_INTERNAL_H
#define COD_LIBRARY_SETTINGS_INTERNAL_H

#include "exchange/exchange.h"

typedef struct library_settings {
    int64_t group, groups;
    const char *name; /**< of the run */
    cod_exchange_options exchange;
    cod_arena texts; /**< what the texts above lie in */
} library_settings;

/** Reads them; the first mistake is named with what would be right. Clear it after a failure, too. */
COD_MUST_CHECK cod_status library_settings_init(library_settings *settings, const char *const *texts, size_t count);
void library_settings_clear(library_settings *settings);

#endif
