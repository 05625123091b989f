#include "comm/comm.h"

#include "core/device.h"

#define FIELD(name) offsetof(cod_comm_options, name)

static const char *const bind_modes[] = {"auto", "none", NULL};

static const cod_option options[] = {
    {"groups", COD_OPTION_STRING, FIELD(groups), "1", 0, 0, NULL,
     "Number of groups; or by_node, one group a node; or a list such as [{ranks: 4}, {ranks: 2, model: {name: "
     "compact}, device: cpu}], "
     "where `model` takes the options of section model over the run's, and `device` is as cluster.device."},
    {"ranks_per_group", COD_OPTION_INT, FIELD(ranks_per_group), "1", 1, 65536, NULL,
     "Ranks of each group, where `groups` is a number."},
    {"device", COD_OPTION_CHOICE, FIELD(device), "auto", 0, 0, cod_device_names,
     "What computes: cpu; cuda, a GPU for each rank, by its place among the GPU ranks of its node, modulo the node's "
     "GPUs; "
     "auto, a GPU where all ranks of a group have one that can be used, else the processor."},
    {"threads", COD_OPTION_INT, FIELD(threads), "0", 0, 4096, NULL,
     "Computing threads of each rank; 0 = as many as the rank has cores."},
    {"bind", COD_OPTION_CHOICE, FIELD(bind), "auto", 0, 0, bind_modes,
     "auto confines each rank to its own equal share of the cores that the ranks of its node were given, unless the "
     "launcher has bound them apart already; none leaves them as they are."},
    {"teardown_timeout_s", COD_OPTION_FLOAT, FIELD(teardown_timeout_s), "60", 0, 86400, NULL,
     "Seconds that a finished rank waits for the others before it ends the job."},
    {"progress_interval_ms", COD_OPTION_FLOAT, FIELD(progress_interval_ms), "1", 0.01, 1000, NULL,
     "Milliseconds between two looks for messages when no gradient is under way."},
};

const cod_option_table cod_comm_option_table = {
    .section = "cluster",
    .help = "Which ranks form which groups, and how messages move.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .struct_bytes = sizeof(cod_comm_options),
};
