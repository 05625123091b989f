/**
 * @file
 * Files of torch.save(): a dictionary of tensors, or dictionaries within one, in a ZIP archive (PyTorch 1.6 and later)
 * or in the older format. They are only read, without Python: of the pickle in them only numbers, texts, lists,
 * dictionaries and tensors are built. Objects of NumPy, of dates and paths, and of training frameworks are passed over.
 * A file with any other class is refused, with the class's name, and nothing is executed.
 */
#ifndef COD_IO_TORCH_FILE_H
#define COD_IO_TORCH_FILE_H

#include "io/safetensors.h"

typedef struct cod_torch_tensor {
    const char *section; /**< keys of the dictionaries that hold it, joined by dots: "params_ema"; "" = the outermost */
    cod_st_tensor tensor; /**< its own key and its data, row-major whatever the file's strides are */
} cod_torch_tensor;

/**
 * An open file; every length, offset and stride in it was checked, and no two tensors of a section have one name. An
 * archive's bytes agree with their CRC-32; the older form has no checksums.
 */
typedef struct cod_torch_file cod_torch_file;

/**
 * @param[out] file  new; cod_torch_close()
 * @return COD_ERR_IO; COD_ERR_FORMAT for a damaged or foreign file; COD_ERR_UNSUPPORTED, with the name, where it holds
 *         objects of another class; all name the path
 */
COD_MUST_CHECK cod_status cod_torch_open(const char *path, cod_torch_file **file);
/** The same from memory, which is borrowed until cod_torch_close(). */
COD_MUST_CHECK cod_status cod_torch_open_memory(const void *data, size_t bytes, cod_torch_file **file);
/** Ends all tensors; NULL is fine. */
void cod_torch_close(cod_torch_file *file);

/** Tensors in the file's order; those of one section follow each other unless another section lies between them. */
size_t cod_torch_tensor_count(const cod_torch_file *file);
const cod_torch_tensor *cod_torch_tensor_at(const cod_torch_file *file, size_t index);

#endif
