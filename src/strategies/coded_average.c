#include "strategies/coded_average.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

cod_status cod_coded_average_init(cod_coded_average *average, cod_between *between, const cod_codec_options *options,
                                  size_t count, size_t exact_from, uint64_t run)
{
    size_t first, part;
    *average = (cod_coded_average){.between = between, .run = run, .count = count};
    if (between->across == NULL || !cod_between_part(between, count, &first, &part))
        return COD_OK;
    average->range = (cod_codec_range){.first = first, .count = part, .exact_from = exact_from};
    average->bytes = cod_codec_bound(options, &average->range);
    average->sent = malloc(average->bytes + 1);
    average->received = malloc(average->bytes * (size_t)cod_group_size(between->across) + 1);
    COD_REQUIRE_MEMORY(average->sent);
    COD_REQUIRE_MEMORY(average->received);
    COD_TRY(cod_aligned_alloc((void **)&average->decoded, (part + 1) * sizeof(float)));
    return cod_codec_init(&average->codec, options);
}

void cod_coded_average_clear(cod_coded_average *average)
{
    cod_codec_clear(&average->codec);
    free(average->sent);
    free(average->received);
    cod_aligned_free(average->decoded);
    *average = (cod_coded_average){0};
}

/** A fixed-length coding: every group's part has the same bytes, so that one gather moves them. */
static cod_status encode(cod_coded_average *average, const float *values, uint64_t version)
{
    cod_codec *codec = &average->codec;
    const cod_codec_key key = {average->run, (uint64_t)cod_group_rank(average->between->across), version};
    memset(average->sent, 0, average->bytes);
    cod_codec_begin(codec, &average->range, &key);
    COD_TRY(cod_codec_encode(codec, values, NULL, UINT64_MAX, average->sent, average->bytes, NULL));
    COD_REQUIRE(codec->bytes == average->bytes, "a part has %llu coded bytes, not %llu",
                (unsigned long long)codec->bytes, (unsigned long long)average->bytes);
    return COD_OK;
}

/** Adds up what all groups sent, each by its share of the ranks, in the order of the groups. */
static cod_status decode(cod_coded_average *average, float *values, uint64_t version)
{
    const cod_group *group = average->between->group;
    const size_t part = (size_t)average->range.count;
    int ranks = 0;
    for (int g = 0; g < cod_group_count(group); g++)
        ranks += cod_group_members_of(group, g).size;
    memset(values, 0, part * sizeof *values);
    for (int g = 0; g < cod_group_count(group); g++) {
        const cod_codec_key key = {average->run, (uint64_t)g, version};
        const float share = (float)((double)cod_group_members_of(group, g).size / ranks);
        cod_codec_begin(&average->codec, &average->range, &key);
        COD_TRY(cod_codec_decode(&average->codec, average->received + (size_t)g * average->bytes, average->bytes, NULL,
                                 UINT64_MAX, average->decoded));
        for (size_t i = 0; i < part; i++)
            values[i] += share * average->decoded[i];
    }
    return COD_OK;
}

cod_status cod_coded_average_run(cod_coded_average *average, float *values, uint64_t version)
{
    const cod_between *between = average->between;
    float *part = values + average->range.first;
    if (between->across == NULL)
        return COD_OK;
    if (average->range.count > 0) {
        COD_TRY(encode(average, part, version));
        COD_TRY(cod_group_gather(between->across, average->sent, average->bytes, average->received));
        COD_TRY(decode(average, part, version));
    }
    return cod_between_share(average->between, values, average->count);
}

double cod_coded_average_sent_bytes(const cod_codec_options *options, size_t count, size_t exact_from, size_t groups)
{
    const cod_codec_range range = {.count = count, .exact_from = exact_from};
    return groups > 1 ? (double)cod_codec_bound(options, &range) * (double)(groups - 1) : 0;
}
