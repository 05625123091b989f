#include "infer/niqe_model.h"

#include "io/zip.h"

#include <math.h>
#include <string.h>

/**
 * Where the values begin in the bytes of a .npy file (numpy.lib.format, version 1.0) of `count` float64, in whatever
 * order.
 */
static cod_status find_values(const cod_zip_entry *entry, size_t count, const unsigned char **values)
{
    enum { HEAD = 10 };
    static const unsigned char magic[8] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    char header[256] = "";
    if (entry->bytes < HEAD || memcmp(entry->data, magic, sizeof magic) != 0)
        return cod_fail(COD_ERR_FORMAT, "'%s' in it is no array of NumPy", entry->name);
    const size_t header_bytes = entry->data[8] + (size_t)entry->data[9] * 256;
    if (header_bytes >= sizeof header || header_bytes > entry->bytes - HEAD)
        return cod_fail(COD_ERR_FORMAT, "'%s' in it is cut off", entry->name);
    memcpy(header, entry->data + HEAD, header_bytes);
    if (strstr(header, "'descr': '<f8'") == NULL)
        return cod_fail(COD_ERR_UNSUPPORTED, "'%s' in it is no array of float64", entry->name);
    if (entry->bytes - HEAD - header_bytes != count * sizeof(double))
        return cod_fail(COD_ERR_FORMAT, "'%s' in it has %zu bytes of values, not those of %zu float64", entry->name,
                        entry->bytes - HEAD - header_bytes, count);
    *values = entry->data + HEAD + header_bytes;
    return COD_OK;
}

static cod_status read_array(const cod_zip *zip, const char *name, double *out, size_t count)
{
    const cod_zip_entry *entry = cod_zip_find(zip, name);
    const unsigned char *values = NULL;
    if (entry == NULL)
        return cod_fail(COD_ERR_FORMAT, "'%s' is not in it", name);
    COD_TRY(cod_zip_check(entry));
    COD_TRY(find_values(entry, count, &values));
    for (size_t i = 0; i < count; i++, values += sizeof(double)) {
        uint64_t bits = 0;
        for (int b = 7; b >= 0; b--)
            bits = bits << 8 | values[b];
        memcpy(&out[i], &bits, sizeof out[i]);
        if (!isfinite(out[i]))
            return cod_fail(COD_ERR_FORMAT, "'%s' in it has a value that is not finite", name);
    }
    return COD_OK;
}

/** The covariance may be in C or in Fortran order: it is symmetric. */
static cod_status read_model(const cod_zip *zip, cod_niqe_model *model)
{
    enum { F = COD_NIQE_FEATURES };
    COD_TRY(read_array(zip, "mu_pris_param.npy", model->mean, F));
    COD_TRY(read_array(zip, "cov_pris_param.npy", model->covariance, F * F));
    for (int i = 0; i < F; i++)
        for (int j = 0; j < i; j++)
            if (model->covariance[i * F + j] != model->covariance[j * F + i])
                return cod_fail(COD_ERR_FORMAT, "its covariance is not symmetric");
    return COD_OK;
}

static cod_status read_file(const char *path, cod_niqe_model *model)
{
    cod_zip *zip = NULL;
    COD_TRY(cod_zip_open(path, &zip));
    const cod_status status = read_model(zip, model);
    cod_zip_close(zip);
    return status == COD_OK ? COD_OK : cod_fail_prefix(status, "'%s'", path);
}

cod_status cod_niqe_model_load(const char *path, cod_niqe_model *model)
{
    const cod_status status = read_file(path, model);
    return status == COD_OK ? COD_OK
                            : cod_fail_prefix(status, "NIQE's model (niqe_pris_params.npz, as BasicSR has it)");
}
