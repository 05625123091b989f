/*
 * Files of JSON lines that an earlier run left: events that are replayed, and metrics that are compared with.
 *
 * An input is such a file; both readers get it.
 */
#include "fuzz.h"

#include "distill/control.h"
#include "exchange/replay.h"

#include <math.h>

fuzz_kind fuzz_kinds[] = {{"files of events", 0}, {"files of metrics", 0}, {NULL, 0}};

static void read_events(const char *folder)
{
    cod_exchange_event *events = NULL;
    size_t count = 0;
    if (!fuzz_taken(cod_replay_read(folder, 0, &events, &count)))
        return;
    fuzz_kinds[0].taken += count > 0;
    for (size_t i = 0; i < count; i++)
        FUZZ_DEMAND(events[i].step >= 0 && events[i].group >= -1 && events[i].version >= 1);
    free(events);
}

static void read_metrics(const char *folder)
{
    cod_control control;
    if (!fuzz_taken(cod_control_read(folder, "loss", true, &control)))
        return;
    fuzz_kinds[1].taken += control.count > 0;
    for (size_t i = 0; i < control.count; i++)
        FUZZ_DEMAND(control.points[i].step >= 0 && isfinite(control.points[i].figure));
    cod_control_clear(&control);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    fuzz_memory(input, bytes);
    read_events("folder");
    read_metrics("folder");
    fuzz_memory(NULL, 0);
    return 0;
}

int fuzz_write(const char *folder)
{
    (void)folder;
    return 0;
}
