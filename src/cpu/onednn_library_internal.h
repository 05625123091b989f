/**
 * @file
 * What the files that call oneDNN share.
 */
#ifndef COD_CPU_ONEDNN_LIBRARY_INTERNAL_H
#define COD_CPU_ONEDNN_LIBRARY_INTERNAL_H

#include "cpu/onednn_internal.h"

#include <oneapi/dnnl/dnnl.h>

struct cpu_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/** @param call  the text of the call, for the message */
COD_MUST_CHECK cod_status cpu_dnnl_check(dnnl_status_t status, const char *call);
#define COD_DNNL(call) cpu_dnnl_check((call), #call)

dnnl_data_type_t cpu_dnnl_type(cod_dtype dtype);

#endif
