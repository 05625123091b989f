#include "io/protobuf.h"

#include "io_internal.h"

#include <stdbool.h>
#include <stdlib.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5, VARINT_BYTES_MAX = 10 };

static size_t encode_varint(uint64_t value, unsigned char out[VARINT_BYTES_MAX])
{
    size_t count = 0;
    for (; value >= 0x80; value >>= 7)
        out[count++] = (unsigned char)(value | 0x80);
    out[count++] = (unsigned char)value;
    return count;
}

static bool reserve(cod_proto *proto, size_t more)
{
    if (proto->status != COD_OK)
        return false;
    void *data = proto->data;
    proto->status = cod_io_reserve(&data, &proto->capacity, proto->bytes, more);
    proto->data = data;
    return proto->status == COD_OK;
}

static void put(cod_proto *proto, const void *data, size_t bytes)
{
    if (bytes == 0 || !reserve(proto, bytes))
        return;
    memcpy(proto->data + proto->bytes, data, bytes);
    proto->bytes += bytes;
}

static void put_varint(cod_proto *proto, uint64_t value)
{
    unsigned char bytes[VARINT_BYTES_MAX];
    put(proto, bytes, encode_varint(value, bytes));
}

static void put_tag(cod_proto *proto, uint32_t field, unsigned wire)
{
    put_varint(proto, (uint64_t)field << 3 | wire);
}

/** Little-endian, whatever the host is. */
static void put_fixed(cod_proto *proto, uint64_t value, size_t bytes)
{
    unsigned char out[8];
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
    put(proto, out, bytes);
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void cod_proto_int(cod_proto *proto, uint32_t field, int64_t value)
{
    put_tag(proto, field, WIRE_VARINT);
    put_varint(proto, (uint64_t)value);
}

void cod_proto_float(cod_proto *proto, uint32_t field, float value)
{
    put_tag(proto, field, WIRE_FIXED32);
    put_fixed(proto, float_bits(value), 4);
}

void cod_proto_double(cod_proto *proto, uint32_t field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_tag(proto, field, WIRE_FIXED64);
    put_fixed(proto, bits, 8);
}

void cod_proto_bytes(cod_proto *proto, uint32_t field, const void *data, size_t bytes)
{
    put_tag(proto, field, WIRE_BYTES);
    put_varint(proto, bytes);
    put(proto, data, bytes);
}

void cod_proto_string(cod_proto *proto, uint32_t field, const char *text)
{
    cod_proto_bytes(proto, field, text, strlen(text));
}

void cod_proto_ints(cod_proto *proto, uint32_t field, const int64_t *values, size_t count)
{
    cod_proto_open(proto, field);
    for (size_t i = 0; i < count; i++)
        put_varint(proto, (uint64_t)values[i]);
    cod_proto_close(proto);
}

void cod_proto_open(cod_proto *proto, uint32_t field)
{
    put_tag(proto, field, WIRE_BYTES);
    if (proto->status == COD_OK && proto->depth == COD_PROTO_DEPTH_MAX)
        proto->status = cod_fail(COD_ERR_ARGUMENT, "messages nested deeper than %d", COD_PROTO_DEPTH_MAX);
    if (proto->status == COD_OK)
        proto->starts[proto->depth++] = proto->bytes;
}

/** The length goes before the content, and its own length is known only now: the content makes room for it. */
void cod_proto_close(cod_proto *proto)
{
    if (proto->status == COD_OK && proto->depth == 0)
        proto->status = cod_fail(COD_ERR_ARGUMENT, "no nested message is open");
    if (!reserve(proto, VARINT_BYTES_MAX))
        return;
    const size_t start = proto->starts[--proto->depth], length = proto->bytes - start;
    if (length > INT32_MAX) {
        proto->status = cod_fail(COD_ERR_UNSUPPORTED, "a message of %zu bytes; the format ends at 2 GiB", length);
        return;
    }
    unsigned char prefix[VARINT_BYTES_MAX];
    const size_t prefix_bytes = encode_varint(length, prefix);
    memmove(proto->data + start + prefix_bytes, proto->data + start, length);
    memcpy(proto->data + start, prefix, prefix_bytes);
    proto->bytes += prefix_bytes;
}

void cod_proto_clear(cod_proto *proto)
{
    free(proto->data);
    *proto = (cod_proto){0};
}
