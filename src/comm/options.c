#include "comm/comm.h"

#include "core/device.h"

#define FIELD(name) offsetof(cod_comm_options, name)

static const char *const group_words[] = {"by_node", NULL};
static const char *const bind_modes[] = {"auto", "none", NULL};

static const cod_option options[] = {
    {"groups", COD_OPTION_STRING, FIELD(groups), "1", 0, 0, group_words,
     "Number of groups; by_node for one group on each node; or a list such as [{ranks: 4}, {ranks: 2, model: {name: "
     "compact}, device: cpu}]. In a list, `model` overrides options of section model for that group, and `device` "
     "overrides cluster.device."},
    {"ranks_per_group", COD_OPTION_INT, FIELD(ranks_per_group), "1", 1, 65536, NULL,
     "Ranks in each group, if `groups` is a number."},
    {"device", COD_OPTION_CHOICE, FIELD(device), "auto", 0, 0, cod_device_names,
     "Where each rank computes. cpu: on the processor. cuda: on a GPU; the n-th GPU rank of a node takes GPU n modulo "
     "the node's number of GPUs. auto: on GPUs if every rank of the group has one that can be used, otherwise on the "
     "processor."},
    {"threads", COD_OPTION_INT, FIELD(threads), "0", 0, 4096, NULL,
     "Computing threads of each rank. 0 = one for each core that the rank may use."},
    {"bind", COD_OPTION_CHOICE, FIELD(bind), "auto", 0, 0, bind_modes,
     "auto: pins each rank to an equal share of the cores that the ranks of its node were given, unless the launcher "
     "has already pinned them to different cores. none: leaves the ranks as the launcher placed them."},
    {"teardown_timeout_s", COD_OPTION_FLOAT, FIELD(teardown_timeout_s), "60", 0, 86400, NULL,
     "How many seconds another rank may show no sign of life, while a finished rank waits for it, before the whole job "
     "ends. A rank shows none when it does not answer or its training thread stands still; one that is only slow is "
     "waited for."},
    {"progress_interval_ms", COD_OPTION_FLOAT, FIELD(progress_interval_ms), "1", 0.01, 1000, NULL,
     "Milliseconds between two checks for messages while no gradients are being averaged. A shorter interval answers "
     "peers sooner and takes more processor time."},
};

const cod_option_table cod_comm_option_table = {
    .section = "cluster",
    .help = "Which ranks form which groups, and how messages move.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .struct_bytes = sizeof(cod_comm_options),
};
