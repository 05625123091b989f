/*
 * What a checkpoint holds of an exchange: versions and their steps, and the slots of each fragment.
 *
 * An input is a byte, the numbers and the slots. Byte 0: bit 0 the slots are files in a folder, not a window; bit 1
 * there are two fragments; bit 2 own versions are kept exact.
 */
#include "fuzz.h"

#include "core/host_memory.h"
#include "core/memory.h"
#include "exchange/exchange_internal.h"
#include "exchange/file.h"

/* A transport over a window that no other process sees. */
#include "../../src/exchange/rma.c"

enum { FILES = 1, FRAGMENTS = 2, EXACT = 4, FORMS = 8 };
enum { GROUPS = 2, MINE = 1, VALUES = 560, STATES = 6, CHUNK = 256, PERIOD = 10, SLOTS = 2, LIFE = 9 };
enum { MOST_BYTES = 1 << 14 };

fuzz_kind fuzz_kinds[] = {
    {"windows", 0}, {"folders", 0}, {"windows of two fragments", 0}, {"folders of two", 0}, {NULL, 0}};

cod_status __wrap_cod_window_sync(cod_window *window);
cod_status __wrap_cod_window_sync(cod_window *window)
{
    (void)window;
    return COD_OK;
}

/** An exchange of two groups of one rank. */
typedef struct fixture {
    cod_exchange exchange;
    cod_exchange_model models[GROUPS];
    cod_group_members members[GROUPS];
    cod_transport *transports[2];
    rma windows[2];
} fixture;

static void open_transport(fixture *f, int fragment, bool files)
{
    const cod_slot_layout layout = exchange_layout(&f->exchange.setup);
    const cod_slot_identity identity = exchange_identity(&f->exchange.setup, MINE, fragment, 0);
    rma *window = &f->windows[fragment];
    char folder[128];
    snprintf(folder, sizeof folder, "%s/%p", fuzz_folder(), (void *)f);
    const cod_file_options options = {.folder = folder,
                                      .key_file = "",
                                      .patience_s = 60,
                                      .life = LIFE,
                                      .begun_ms = 1,
                                      .anew = true,
                                      .rooms = &f->exchange.puller.rooms};
    if (files) {
        FUZZ_DEMAND(cod_file_transport_create(&options, &identity, &layout, &f->transports[fragment]) == COD_OK);
        return;
    }
    void *memory = NULL;
    FUZZ_DEMAND(cod_aligned_alloc(&memory, cod_slot_window_bytes(&layout)) == COD_OK);
    memset(memory, 0, cod_slot_window_bytes(&layout));
    window->base.ops = &ops;
    window->layout = layout;
    FUZZ_DEMAND(cod_slot_writer_init(&window->writer, memory, &identity, &layout, sync_window, window) == COD_OK);
    f->transports[fragment] = &window->base;
}

static fixture *open_fixture(unsigned form)
{
    static const int world_ranks[] = {0, 1};
    static fixture *opened[FORMS];
    if (opened[form] != NULL)
        return opened[form];
    fixture *f = opened[form] = calloc(1, sizeof *f);
    FUZZ_DEMAND(f != NULL);
    for (int g = 0; g < GROUPS; g++) {
        f->models[g] = (cod_exchange_model){.count = VALUES, .state_count = STATES, .hash = 5};
        f->members[g] = (cod_group_members){.size = 1, .world_ranks = &world_ranks[g]};
    }
    const int fragments = (form & FRAGMENTS) != 0 ? 2 : 1;
    const cod_exchange_options options = {.period = PERIOD,
                                          .fragments = fragments,
                                          .codec = COD_EXCHANGE_DELTA,
                                          .quality_db = 43,
                                          .rounding = 0.5,
                                          .key_every = 4,
                                          .merge_against =
                                              (form & EXACT) != 0 ? COD_AGAINST_EXACT : COD_AGAINST_DECODED,
                                          .chunk_values = CHUNK,
                                          .slots = SLOTS,
                                          .pull_timeout_s = 60};
    cod_exchange *e = &f->exchange;
    e->setup = (exchange_setup){.options = options,
                                .groups = GROUPS,
                                .mine = MINE,
                                .size = 1,
                                .holders = {.count = 1},
                                .models = f->models,
                                .members = f->members,
                                .run = 3,
                                .life = LIFE,
                                .fragments = fragments,
                                .publishes = true,
                                .transports = f->transports};
    FUZZ_DEMAND(exchange_publisher_init(&e->publisher, &e->setup) == COD_OK);
    FUZZ_DEMAND(exchange_puller_init(&e->puller, &e->setup, &e->publisher.coder) == COD_OK);
    FUZZ_DEMAND(exchange_make_values(e) == COD_OK);
    for (int k = 0; k < fragments; k++)
        open_transport(f, k, (form & FILES) != 0);
    return f;
}

static const cod_exchange_array *array_of(const cod_exchange_array *arrays, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(arrays[i].name, name) == 0)
            return &arrays[i];
    abort();
}

static bool is_finite_step(int64_t version, int64_t step)
{
    return version >= 0 && step >= 0 && (version == 0) == (step == 0);
}

/** What a run asks of an exchange next. */
static void look_at(fixture *f)
{
    cod_exchange *e = &f->exchange;
    const exchange_publisher *p = &e->publisher;
    FUZZ_DEMAND(is_finite_step((int64_t)p->version, p->step));
    for (int k = 0; k < e->setup.fragments; k++) {
        cod_exchange_checkpoint held;
        const uint64_t reference = p->chains[k].reference;
        cod_exchange_read_checkpoint(e, 0, k, &held);
        FUZZ_DEMAND(is_finite_step((int64_t)held.version, held.step) && held.pulled_at >= 0);
        FUZZ_DEMAND(held.own == NULL || held.own->bytes == held.range.count * sizeof(float));
        FUZZ_DEMAND(reference == 0 || exchange_decoded_of(p, reference)->bytes == held.range.count * sizeof(float));
        FUZZ_DEMAND(exchange_newest_own(p, k) <= p->version);
    }
}

/** A peer reads what the slots have now. */
static void read_as_peer(fixture *f)
{
    for (int k = 0; k < f->exchange.setup.fragments; k++) {
        const rma *window = &f->windows[k];
        const cod_slot_identity identity = exchange_identity(&f->exchange.setup, MINE, k, 0);
        cod_slot_header header;
        bool torn;
        if (window->writer.memory == NULL)
            continue;
        FUZZ_DEMAND(cod_slot_read_header(window->writer.memory, &identity, &window->layout, &header, &torn) == COD_OK);
        FUZZ_DEMAND(!torn);
        for (uint32_t i = 0; i < SLOTS; i++)
            FUZZ_DEMAND(cod_load_u64(window->writer.memory + cod_slot_sequence_at(&window->layout, i)) ==
                        header.entries[i].sequence);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    const cod_exchange_array *arrays;
    size_t count;
    if (bytes < 1)
        return 0;
    fixture *f = open_fixture(input[0] % FORMS);
    FUZZ_DEMAND(cod_exchange_state(&f->exchange, &arrays, &count) == COD_OK);
    const cod_exchange_array *numbers = array_of(arrays, count, "exchange.numbers.0");
    if (bytes - 1 < numbers->bytes)
        return 0;
    memcpy(numbers->data, input + 1, numbers->bytes);
    const size_t slot_bytes = bytes - 1 - numbers->bytes;
    uint8_t *slots = malloc(slot_bytes + (slot_bytes == 0)); /* of the exact length, so that a sanitizer sees more */
    FUZZ_DEMAND(slots != NULL);
    memcpy(slots, input + 1 + numbers->bytes, slot_bytes);
    if (fuzz_taken(cod_exchange_restored(&f->exchange, slots, slot_bytes))) {
        fuzz_kinds[input[0] % 4].taken++;
        look_at(f);
        read_as_peer(f);
        FUZZ_DEMAND(cod_exchange_state(&f->exchange, &arrays, &count) == COD_OK);
        FUZZ_DEMAND(memcmp(array_of(arrays, count, "exchange.numbers.0")->data, input + 1, numbers->bytes) == 0);
    }
    free(slots);
    /* Numbers that were refused are left there, as the run ends then. */
    FUZZ_DEMAND((input[0] & FILES) != 0 || cod_exchange_state(&f->exchange, &arrays, &count) == COD_OK);
    return 0;
}

/** Publications of a run, and a peer's version of each fragment that is held. */
static cod_status publish(fixture *f, int publications)
{
    cod_exchange *e = &f->exchange;
    for (int v = 1; v <= publications; v++) {
        cod_exchange_part part;
        const int64_t step = v * cod_exchange_spacing(&e->setup.options);
        COD_TRY(exchange_publisher_snapshot(&e->publisher, step, &part));
        for (uint64_t i = 0; i < part.count; i++)
            exchange_floats(part.values)[i] = (float)(v * v) + (float)i / 100;
        COD_TRY(exchange_publisher_begin(&e->publisher, step, 0));
        COD_TRY(exchange_publisher_finish(&e->publisher));
        for (int k = 0; k < e->setup.fragments; k++) /* waits until a file is written */
            f->transports[k]->ops->oldest(f->transports[k]);
        held_peer *peer = &e->puller.peers[v % e->setup.fragments];
        peer->version = (uint64_t)v;
        peer->step = step;
        peer->pulled_at = step + 1;
        peer->published_ms = 77;
    }
    return COD_OK;
}

/** Places of numbers that are saved, of two fragments. */
enum { VERSION = 1, STEP, REFERENCE, SINCE_KEY, OWN = STEP + 5, PEER = OWN + 2 * COD_EXCHANGE_OWN_KEPT };

/** An input with one 8-byte word of it changed. */
static int write_changed(const char *folder, const char *name, uint8_t *input, size_t bytes, size_t at, uint64_t word)
{
    uint8_t before[sizeof word];
    memcpy(before, input + at, sizeof before);
    memcpy(input + at, &word, sizeof word);
    const int failed = fuzz_write_file(folder, name, input, bytes);
    memcpy(input + at, before, sizeof before);
    return failed;
}

/** What no run saves: versions of other fragments, of no step, past the newest; words that the header does not have. */
static int write_hostile(const char *folder, uint8_t *input, size_t bytes, size_t slots_at)
{
    enum { NUMBERS = 1, HEADS = 2 * sizeof(uint64_t) };
    const size_t header = slots_at + HEADS,
                 entry = header + offsetof(cod_slot_header, entries) + offsetof(cod_slot_entry, version);
    return write_changed(folder, "step-of-no-version", input, bytes, NUMBERS + 8 * STEP, 11) |
           write_changed(folder, "version-too-large", input, bytes, NUMBERS + 8 * VERSION, UINT64_MAX) |
           write_changed(folder, "reference-of-other", input, bytes, NUMBERS + 8 * REFERENCE, 3) |
           write_changed(folder, "own-of-other", input, bytes, NUMBERS + 8 * OWN, 3) |
           write_changed(folder, "peer-of-other", input, bytes, NUMBERS + 8 * PEER, 3) |
           write_changed(folder, "peer-before-all", input, bytes, NUMBERS + 8 * (PEER + 1), UINT64_C(1) << 63) |
           write_changed(folder, "entry-too-new", input, bytes, entry, UINT64_C(1) << 60) |
           write_changed(folder, "word-of-another", input, bytes,
                         header + sizeof(cod_slot_header) + COD_SLOT_HEADER_BYTES, 77);
}

static int write_form(const char *folder, unsigned form, int publications)
{
    static uint8_t input[MOST_BYTES];
    const cod_exchange_array *arrays;
    size_t count;
    char name[64];
    fixture *f = open_fixture(form);
    if (publish(f, publications) != COD_OK || cod_exchange_state(&f->exchange, &arrays, &count) != COD_OK)
        return 1;
    const cod_exchange_array *numbers = array_of(arrays, count, "exchange.numbers.0"),
                             *slots = array_of(arrays, count, COD_EXCHANGE_SLOTS);
    if (1 + numbers->bytes + slots->bytes > sizeof input)
        return 1;
    input[0] = (uint8_t)form;
    memcpy(input + 1, numbers->data, numbers->bytes);
    memcpy(input + 1 + numbers->bytes, slots->data, slots->bytes);
    snprintf(name, sizeof name, "%s-%s-%d%s", (form & FILES) != 0 ? "folder" : "window",
             (form & FRAGMENTS) != 0 ? "fragments" : "whole", publications, (form & EXACT) != 0 ? "-exact" : "");
    const size_t bytes = 1 + numbers->bytes + slots->bytes;
    return fuzz_write_file(folder, name, input, bytes) |
           (form == FRAGMENTS && write_hostile(folder, input, bytes, 1 + numbers->bytes));
}

int fuzz_write(const char *folder)
{
    int failed = 0;
    for (unsigned form = 0; form < FORMS; form++)
        failed |= write_form(folder, form, 3);
    return failed | write_form(folder, 0, 0);
}
