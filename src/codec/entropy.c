/* The libraries that compress a chunk's payload: LZ4 for speed, zstd's Huffman coder for fewer bytes. */
#define ZSTD_STATIC_LINKING_ONLY /* for the name of ZSTD_c_literalCompressionMode, which shared libraries have, too */
#include "codec/codec_internal.h"

#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

struct codec_compressor {
    ZSTD_CCtx *encoder;
    ZSTD_DCtx *decoder;
};

cod_status codec_compressor_create(codec_compressor **out)
{
    codec_compressor *c = calloc(1, sizeof *c);
    COD_REQUIRE_MEMORY(c);
    c->encoder = ZSTD_createCCtx();
    c->decoder = ZSTD_createDCtx();
    /*
     * Codes of weights hardly repeat: what pays is Huffman coding. Matches are looked for at few places, and long ones
     * only.
     */
    const struct {
        ZSTD_cParameter parameter;
        int value;
    } settings[] = {{ZSTD_c_compressionLevel, 1},
                    {ZSTD_c_strategy, ZSTD_fast},
                    {ZSTD_c_literalCompressionMode, ZSTD_ps_enable}, /* else none with a targetLength */
                    {ZSTD_c_targetLength, 64},                       /* bytes from one place to the next */
                    {ZSTD_c_windowLog, 17},
                    {ZSTD_c_hashLog, 10},
                    {ZSTD_c_minMatch, 7},
                    {ZSTD_c_contentSizeFlag, 0},
                    {ZSTD_c_checksumFlag, 0}};
    size_t code = 0;
    for (size_t i = 0; c->encoder != NULL && i < sizeof settings / sizeof settings[0] && !ZSTD_isError(code); i++)
        code = ZSTD_CCtx_setParameter(c->encoder, settings[i].parameter, settings[i].value);
    if (c->encoder == NULL || c->decoder == NULL || ZSTD_isError(code)) {
        codec_compressor_destroy(c);
        return cod_fail(COD_ERR_MEMORY, "zstd cannot be set up: %s",
                        ZSTD_isError(code) ? ZSTD_getErrorName(code) : "out of memory");
    }
    *out = c;
    return COD_OK;
}

void codec_compressor_destroy(codec_compressor *compressor)
{
    if (compressor == NULL)
        return;
    ZSTD_freeCCtx(compressor->encoder);
    ZSTD_freeDCtx(compressor->decoder);
    free(compressor);
}

uint64_t codec_compress(codec_compressor *compressor, cod_codec_entropy entropy, const unsigned char *in,
                        uint64_t bytes, unsigned char *out, uint64_t room)
{
    if (entropy == COD_CODEC_LZ4) {
        const int packed = LZ4_compress_default((const char *)in, (char *)out, (int)bytes, (int)room);
        return packed > 0 ? (uint64_t)packed : 0;
    }
    const size_t packed = ZSTD_compress2(compressor->encoder, out, room, in, bytes);
    return ZSTD_isError(packed) ? 0 : packed;
}

uint64_t codec_decompress(codec_compressor *compressor, cod_codec_entropy entropy, const unsigned char *in,
                          uint64_t bytes, unsigned char *out, uint64_t room)
{
    if (entropy == COD_CODEC_LZ4) {
        const int raw = LZ4_decompress_safe((const char *)in, (char *)out, (int)bytes, (int)room);
        return raw > 0 ? (uint64_t)raw : 0;
    }
    const size_t raw = ZSTD_decompressDCtx(compressor->decoder, out, room, in, bytes);
    return ZSTD_isError(raw) ? 0 : raw;
}

void cod_codec_library(char *text, size_t bytes)
{
    snprintf(text, bytes, "LZ4 %s, zstd %s", LZ4_versionString(), ZSTD_versionString());
}
