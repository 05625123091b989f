#include "infer/perceptual_input.h"

#include <stdio.h>
#include <string.h>

cod_status cod_perceptual_input_find(const cod_st_file *file, cod_vgg_input *input)
{
    const char *said = cod_st_metadata(file, "input");
    for (int i = 0; said != NULL && cod_vgg_input_names[i] != NULL; i++)
        if (strcmp(said, cod_vgg_input_names[i]) == 0) {
            *input = (cod_vgg_input)i;
            return COD_OK;
        }
    if (said != NULL)
        return cod_fail(COD_ERR_FORMAT,
                        "the metadata say that pictures are presented as '%.40s'; torchvision and "
                        "caffe are known",
                        said);
    *input = COD_VGG_TORCHVISION;
    for (size_t i = 0; i < cod_st_metadata_count(file); i++)
        if (strstr(cod_st_metadata_at(file, i)->value, "103.939") != NULL)
            *input = COD_VGG_CAFFE;
    return COD_OK;
}

cod_status cod_perceptual_check_shape(const cod_st_tensor *tensor, const char *network, int rank, const int64_t *shape)
{
    char found[128] = "", wanted[128] = "";
    bool equal = tensor->rank == rank;
    for (int i = 0; i < tensor->rank; i++) {
        equal = equal && tensor->shape[i] == shape[i];
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%lld", i ? ", " : "",
                 (long long)tensor->shape[i]);
    }
    for (int i = 0; i < rank; i++)
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s%lld", i ? ", " : "", (long long)shape[i]);
    return equal ? COD_OK
                 : cod_fail(COD_ERR_FORMAT, "tensor '%s' is [%s], %s's is [%s]", tensor->name, found, network, wanted);
}
