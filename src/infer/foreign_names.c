#include "foreign_names_internal.h"

#include <stdio.h>
#include <string.h>

/** A beginning of names and what stands for it now. */
typedef struct beginning {
    const char *old, *now;
} beginning;

/** xinntao/ESRGAN's RRDBNet_arch.py. */
static const beginning esrgan[] = {
    {"trunk_conv.", "conv_body."}, {"upconv1.", "conv_up1."}, {"upconv2.", "conv_up2."}, {"HRconv.", "conv_hr."}};

/**
 * Its first release is a list of layers; 2, 4, 5, 7 and 9 hold no weights. The last of layer 1's own list is the
 * trunk's convolution.
 */
static const beginning esrgan_first[] = {{"model.0.", "conv_first."},
                                         {"model.3.", "conv_up1."},
                                         {"model.6.", "conv_up2."},
                                         {"model.8.", "conv_hr."},
                                         {"model.10.", "conv_last."}};

cod_naming cod_naming_of(const char *name)
{
    int dense, convolution;
    if (sscanf(name, "RRDB_trunk.%*d.RDB%d.conv%d.", &dense, &convolution) == 2)
        return COD_NAMING_ESRGAN;
    return sscanf(name, "model.1.sub.%*d.RDB%d.conv%d.", &dense, &convolution) == 2 ? COD_NAMING_ESRGAN_FIRST
                                                                                    : COD_NAMING_PLAIN;
}

static const char *replace(const beginning *table, size_t count, const char *name, cod_arena *arena)
{
    for (size_t i = 0; i < count; i++) {
        const size_t length = strlen(table[i].old);
        if (strncmp(name, table[i].old, length) != 0)
            continue;
        char text[128];
        snprintf(text, sizeof text, "%s%.64s", table[i].now, name + length);
        return cod_arena_strdup(arena, text);
    }
    return name;
}

const char *cod_name_translate(cod_naming naming, const char *name, cod_arena *arena)
{
    static const char *const trunks[] = {[COD_NAMING_ESRGAN] = "RRDB_trunk.%d.RDB%d.conv%d.%63s",
                                         [COD_NAMING_ESRGAN_FIRST] = "model.1.sub.%d.RDB%d.conv%d.0.%63s"};
    int block, dense, convolution;
    char rest[64], text[128];
    if (naming == COD_NAMING_PLAIN)
        return name;
    if (sscanf(name, trunks[naming], &block, &dense, &convolution, rest) == 4) {
        snprintf(text, sizeof text, "body.%d.rdb%d.conv%d.%s", block, dense, convolution, rest);
        return cod_arena_strdup(arena, text);
    }
    if (naming == COD_NAMING_ESRGAN)
        return replace(esrgan, sizeof esrgan / sizeof esrgan[0], name, arena);
    if (sscanf(name, "model.1.sub.%d.%63[a-z]", &block, rest) == 2) {
        snprintf(text, sizeof text, "conv_body.%s", rest);
        return cod_arena_strdup(arena, text);
    }
    return replace(esrgan_first, sizeof esrgan_first / sizeof esrgan_first[0], name, arena);
}
