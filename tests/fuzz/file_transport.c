/*
 * What a peer has in the shared folder: its header, and the file of one version.
 *
 * An input is three bytes, the header's file and the version's. Byte 0: bit 0 the run has a key, bit 1 the header's
 * checksum is put right first, bit 2 both seals are. Bytes 1 and 2, little-endian: bytes of the version's file, at most
 * all.
 */
/* The reader without its thread, and what makes the seals. */
#include "../../src/exchange/file_folder.c"
#include "../../src/exchange/file_thread.c"

#include "fuzz.h"

#include "core/hash.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { SEALED = 1, SUM_RIGHT = 2, SEALS_RIGHT = 4, VERSION = 4, SLOT_BYTES = 128 };

fuzz_kind fuzz_kinds[] = {{"headers", 0}, {"versions", 0}, {"sealed versions", 0}, {NULL, 0}};

cod_status __wrap_cod_untrusted_folder_open(const char *root, const char *below, cod_untrusted_absence absence,
                                            cod_untrusted_folder **out);
cod_status __real_cod_untrusted_folder_open(const char *root, const char *below, cod_untrusted_absence absence,
                                            cod_untrusted_folder **out);
void __wrap_cod_untrusted_folder_close(cod_untrusted_folder *folder);

/** Opens the one folder that there is once, as that would take most of the time, and no input changes it. */
cod_status __wrap_cod_untrusted_folder_open(const char *root, const char *below, cod_untrusted_absence absence,
                                            cod_untrusted_folder **out)
{
    static cod_untrusted_folder *opened;
    const cod_status status = opened == NULL ? __real_cod_untrusted_folder_open(root, below, absence, &opened) : COD_OK;
    *out = opened;
    return status;
}

void __wrap_cod_untrusted_folder_close(cod_untrusted_folder *folder)
{
    (void)folder;
}

static const cod_slot_identity identity = {.run = 1, .model = 2, .group = 1, .shards = 1, .count = 9, .exact_from = 9};

static file *transport(bool sealed)
{
    static file t[2];
    static file_pull pulls[2];
    static publisher publishers[2][2];
    file *me = &t[sealed];
    if (me->window_bytes == 0) {
        me->layout = (cod_slot_layout){.slots = 2, .groups = 2, .slot_bytes = SLOT_BYTES};
        me->window_bytes = cod_slot_data_at(&me->layout, 0);
        snprintf(me->folder, sizeof me->folder, "%s/x", fuzz_folder());
        me->sealed = sealed;
        me->pulls = &pulls[sealed];
        me->pull_count = 1;
        me->publishers = publishers[sealed];
        me->writer.header.identity = identity;
        pthread_mutex_init(&me->mutex, NULL);
    }
    return me;
}

/** Writes a file of the peer's folder. @param output  its descriptor, -1 at first */
static void put(int *output, const char *name, const uint8_t *data, size_t bytes)
{
    if (*output < 0) {
        char path[300];
        cod_untrusted_folder *folder = NULL;
        FUZZ_DEMAND(file_open_shard(transport(false), identity.group, 0, COD_UNTRUSTED_CREATE, &folder) == COD_OK);
        cod_untrusted_folder_close(folder);
        snprintf(path, sizeof path, "%s/x/group-1/shard-0/%s", fuzz_folder(), name);
        *output = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    }
    FUZZ_DEMAND(ftruncate(*output, 0) == 0 && pwrite(*output, data, bytes, 0) == (ssize_t)bytes);
}

/** Puts the seal at the end of a file right, if it is long enough to have one. */
static void put_seal_right(const file *t, uint64_t version, uint8_t *data, size_t bytes)
{
    unsigned char place[40];
    if (bytes < COD_SEAL_BYTES)
        return;
    place_of(&identity, version, place);
    cod_seal_make(&t->key, place, sizeof place, data, bytes - COD_SEAL_BYTES, data + bytes - COD_SEAL_BYTES);
}

static void look_and_pull(file *t, const uint8_t *version, size_t bytes)
{
    file_pull *p = &t->pulls[0];
    publisher *who = &t->publishers[identity.group];
    cod_slot_header header;
    *p = (file_pull){.phase = PULL_WANTED, .expected = identity, .version = VERSION};
    p->room = malloc(sizeof *p->room + SLOT_BYTES + COD_SEAL_BYTES); /* to the byte, unlike cod_room_create() */
    FUZZ_DEMAND(p->room != NULL);
    atomic_init(&p->room->users, 1);
    *who = (publisher){.expected = identity};
    pthread_mutex_lock(&t->mutex);
    look(t, identity.group);
    const bool sound =
        who->window != NULL && file_check_window(t, who->window, who->damage, &identity, &header) == COD_OK;
    pull(t, p);
    pthread_mutex_unlock(&t->mutex);
    cod_slot_stamp stamp, written;
    const bool stamped = sound && cod_slot_read_stamp(who->window, &written);
    const uint64_t left = file_newest_left(t, &stamp);
    fuzz_kinds[0].taken += sound;
    FUZZ_DEMAND(left <= COD_SLOT_VERSION_MAX && (!stamped || left >= header.newest));
    if (p->phase == PULL_HERE) {
        fuzz_kinds[t->sealed ? 2 : 1].taken++;
        FUZZ_DEMAND(sound && p->entry.version == VERSION && p->entry.bytes <= SLOT_BYTES &&
                    file_sealed_bytes(t, p->entry.bytes) == bytes && memcmp(p->room->data, version, bytes) == 0);
    }
    free(who->window);
    free(p->room);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    static int outputs[2] = {-1, -1};
    if (bytes < 3)
        return 0;
    file *t = transport((input[0] & SEALED) != 0);
    uint8_t *data = malloc(bytes - 3 + (bytes == 3));
    FUZZ_DEMAND(data != NULL);
    memcpy(data, input + 3, bytes - 3);
    size_t version_bytes = input[1] | (size_t)input[2] << 8;
    version_bytes = version_bytes < bytes - 3 ? version_bytes : bytes - 3;
    const size_t header_bytes = bytes - 3 - version_bytes;
    uint8_t *version = data + header_bytes;
    if ((input[0] & SUM_RIGHT) != 0 && header_bytes >= COD_SLOT_HEADER_BYTES)
        cod_store_u64(data, cod_hash(data + 8, COD_SLOT_HEADER_BYTES - 8, 0));
    if ((input[0] & SEALS_RIGHT) != 0 && t->sealed) {
        put_seal_right(t, 0, data, header_bytes);
        put_seal_right(t, VERSION, version, version_bytes);
    }
    put(&outputs[0], FILE_HEADER_NAME, data, header_bytes);
    put(&outputs[1], "4.bin", version, version_bytes);
    look_and_pull(t, version, version_bytes);
    free(data);
    return 0;
}

static cod_status no_sync(void *context)
{
    (void)context;
    return COD_OK;
}

/** One input without a key, one with: a header of versions 3 and 4, and version 4. */
int fuzz_write(const char *folder)
{
    static _Alignas(64) unsigned char memory[1 << 12];
    static uint8_t input[1 << 13];
    cod_slot_writer writer;
    const cod_slot_layout layout = transport(false)->layout;
    int failed = cod_slot_writer_init(&writer, memory, &identity, &layout, no_sync, NULL) != COD_OK;
    for (uint64_t v = VERSION - 1; v <= VERSION; v++) {
        uint64_t oldest;
        unsigned char *room;
        const uint32_t slot = cod_slot_next(&writer, &oldest);
        const cod_slot_entry entry = {.version = v, .bytes = SLOT_BYTES - v, .reference = v == VERSION ? v - 1 : 0};
        failed |= cod_slot_open(&writer, slot, &room) != COD_OK || cod_slot_close(&writer, slot, &entry) != COD_OK;
    }
    for (int sealed = 0; sealed <= 1; sealed++) {
        file *t = transport(sealed != 0);
        const size_t header_bytes = file_sealed_bytes(t, t->window_bytes);
        const size_t version_bytes = file_sealed_bytes(t, SLOT_BYTES - VERSION);
        input[0] = (uint8_t)(sealed ? SEALED : 0);
        input[1] = (uint8_t)version_bytes;
        memcpy(input + 3, memory, t->window_bytes);
        memset(input + 3 + t->window_bytes, VERSION, sizeof input - 3 - t->window_bytes);
        if (sealed) {
            put_seal_right(t, 0, input + 3, header_bytes);
            put_seal_right(t, VERSION, input + 3 + header_bytes, version_bytes);
        }
        failed |= fuzz_write_file(folder, sealed ? "sealed" : "plain", input, 3 + header_bytes + version_bytes);
    }
    return failed;
}
