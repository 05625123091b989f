/**
 * @file
 * A publisher and a reader of the file transport in one folder of the test's, for groups 0 and 1 of one rank each.
 */
#ifndef COD_TESTS_EXCHANGE_FILE_PAIR_H
#define COD_TESTS_EXCHANGE_FILE_PAIR_H

#include "exchange/file.h"
#include "support/patience.h"

enum { SLOTS = 3, GROUPS = 2, BYTES = 4096, PULLS = 3 };

extern const cod_slot_layout pair_layout;

cod_slot_identity pair_identity(uint32_t group, uint64_t run);
/** All transports of a group have the same; they are never freed. */
cod_rooms *pair_rooms(uint32_t group);
cod_status pair_try_open(uint32_t group, uint64_t run, bool anew, const char *key_file, cod_transport **out);
cod_transport *pair_open_one(uint32_t group, uint64_t run, bool anew);
/** Publishes BYTES - version bytes, all `version`, and waits until they are there or given up. */
void pair_publish(cod_transport *t, uint64_t version);
/** Asks once, or looks for the answer. */
cod_status pair_offer(cod_transport *t, bool *answered, uint64_t *version);
/** Asks until something is offered or refused, or time is up. */
cod_status pair_offered(cod_transport *t, uint64_t *version);
cod_status pair_pulled(cod_transport *t, uint64_t version, cod_pull_state *state, cod_pulled *out);
/** A publisher with versions 1 to `count`, and a reader. */
void pair_open(cod_transport **publisher, cod_transport **reader, uint64_t count);
void pair_close(cod_transport *publisher, cod_transport *reader);

#endif
