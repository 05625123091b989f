/**
 * @file
 * LPIPS, the distance of two pictures in the features of a network trained on photographs (Zhang et al., "The
 * unreasonable effectiveness of deep features as a perceptual metric", CVPR 2018), on SqueezeNet 1.1. Lower is more
 * alike; equal pictures have 0.
 *
 * With f the unit vectors of features at a pixel (divided by their norm plus 1e-10) and w >= 0 the linear weights of a
 * stage:
 *
 *     LPIPS = sum over 7 stages of the mean over pixels of the sum over channels of w (f(a) - f(b))²          (equation 1)
 *
 * Without the file of linear weights, w = 1 for every channel: "unweighted", what the package lpips computes with
 * lpips=False. Published values are of torchvision's SqueezeNet with the weights of that package; all others compare
 * only with their like.
 */
#ifndef COD_INFER_LPIPS_H
#define COD_INFER_LPIPS_H

#include "core/backend.h"
#include "data/image.h"
#include "nn/squeezenet.h"

typedef struct cod_lpips cod_lpips;

/**
 * Loads the network onto a device, which is borrowed; it computes in f32.
 *
 * @param features  safetensors file with SqueezeNet 1.1's feature layers, by torchvision's or Caffe's names
 *   (nn/squeezenet.h)
 * @param weights   safetensors file with "lin0.model.1.weight" [1, 64, 1, 1] … "lin6.model.1.weight", as the package lpips calls them in its
 *                  squeeze.pth; NULL or "" = unweighted
 * @param[out] out  new; cod_lpips_destroy()
 * @return COD_ERR_IO or COD_ERR_FORMAT, with the path and the tensor at fault
 */
COD_MUST_CHECK cod_status cod_lpips_create(const char *features, const char *weights, const cod_backend *backend,
                                           cod_device *device, cod_lpips **out);
void cod_lpips_destroy(cod_lpips *lpips);

bool cod_lpips_is_weighted(const cod_lpips *lpips);

/**
 * Compares two 8-bit pictures of equal size, of three channels or more, alpha ignored.
 *
 * @param crop  pixels that are left out at each border
 * @return COD_ERR_ARGUMENT unless sizes agree and 25 pixels to a side remain (cod_squeezenet_side())
 */
COD_MUST_CHECK cod_status cod_lpips_compare(cod_lpips *lpips, const cod_image *a, const cod_image *b, int64_t crop,
                                            double *distance);

/** Whether the files are there and fit, without a device. @return as cod_lpips_create() */
COD_MUST_CHECK cod_status cod_lpips_check_files(const char *features, const char *weights);

#endif
