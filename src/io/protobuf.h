/**
 * @file
 * Writer of the protocol-buffers wire format (protobuf.dev/programming-guides/encoding), for ONNX and TensorBoard.
 */
#ifndef COD_IO_PROTOBUF_H
#define COD_IO_PROTOBUF_H

#include "core/status.h"

#include <stdint.h>

enum { COD_PROTO_DEPTH_MAX = 16 };

/**
 * A message being written; zeroed = an empty one. A failure is kept: look at `status` at the end. cod_proto_clear()
 * frees it. Nested messages stand between cod_proto_open() and cod_proto_close().
 */
typedef struct cod_proto {
    unsigned char *data;
    size_t bytes, capacity;
    size_t starts[COD_PROTO_DEPTH_MAX];
    int depth;
    cod_status status;
} cod_proto;

/** int32, int64, uint32, uint64, bool and enum fields. */
void cod_proto_int(cod_proto *proto, uint32_t field, int64_t value);
void cod_proto_float(cod_proto *proto, uint32_t field, float value);
void cod_proto_double(cod_proto *proto, uint32_t field, double value);
void cod_proto_bytes(cod_proto *proto, uint32_t field, const void *data, size_t bytes);
void cod_proto_string(cod_proto *proto, uint32_t field, const char *text);
/** A repeated int64 field, packed. */
void cod_proto_ints(cod_proto *proto, uint32_t field, const int64_t *values, size_t count);

/** Starts a nested message. */
void cod_proto_open(cod_proto *proto, uint32_t field);
/** Ends the innermost nested message. */
void cod_proto_close(cod_proto *proto);

void cod_proto_clear(cod_proto *proto);

#endif
