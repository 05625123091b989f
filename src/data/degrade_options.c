#include "data/degrade_options.h"

#include "data/blur_kernel.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FIELD(name)  offsetof(cod_degrade_options, name)
#define FIRST(name)  offsetof(cod_degrade_options, passes[0].name)
#define SECOND(name) offsetof(cod_degrade_options, passes[1].name)

static const char all_kernels[] = "iso, aniso, generalized_iso, generalized_aniso, plateau_iso, plateau_aniso",
                  kernel_shares[] = "0.45, 0.25, 0.12, 0.03, 0.12, 0.03";

static const cod_option options[] = {
    {"order", COD_OPTION_INT, FIELD(order), "2", 1, 2, NULL,
     "Number of times that a picture is blurred, resized, made noisy and compressed: 2 as in Real-ESRGAN, or 1, which "
     "ignores the options that end in 2. Both finish with a resize to 1/scale and the final sinc filter."},
    {"context", COD_OPTION_INT, FIELD(context), "16", 0, 256, NULL,
     "Low-resolution pixels by which the degraded square is larger than the training crop, which is cut out of it at "
     "random. Degradation then sees beyond the borders of the crop, and JPEG blocks can start anywhere. Real-ESRGAN "
     "uses 36; more takes more time."},
    {"blur_kernel_size", COD_OPTION_INT, FIRST(blur_kernel_size), "21", COD_BLUR_MIN_SIDE, COD_BLUR_MAX_SIDE, NULL,
     "Largest side of a blur kernel in pixels. Each side is drawn from the odd numbers from 7 to this."},
    {"kernel_list", COD_OPTION_STRING_LIST, FIRST(kernel_list), all_kernels, 0, 0, NULL,
     "Blur kernels to choose from: iso and aniso (Gaussian), generalized_iso and generalized_aniso (generalised "
     "Gaussian), plateau_iso and plateau_aniso."},
    {"kernel_prob", COD_OPTION_FLOAT_LIST, FIRST(kernel_prob), kernel_shares, 0, 1e6, NULL,
     "Relative odds of the kernels in kernel_list, in the same order."},
    {"sinc_prob", COD_OPTION_FLOAT, FIRST(sinc_prob), "0.1", 0, 1, NULL,
     "Probability that a sinc kernel, which causes ringing, replaces the kernel from kernel_list."},
    {"blur_sigma", COD_OPTION_FLOAT_LIST, FIRST(blur_sigma), "0.2, 3", 0.01, 100, NULL,
     "Range of a kernel's standard deviation in pixels; anisotropic kernels draw one for each axis."},
    {"betag_range", COD_OPTION_FLOAT_LIST, FIRST(betag_range), "0.5, 4", 0.01, 100, NULL,
     "Range of the shape parameter of generalised Gaussian kernels; 1 is a Gaussian. Values below and above 1 are "
     "equally likely."},
    {"betap_range", COD_OPTION_FLOAT_LIST, FIRST(betap_range), "1, 2", 0.01, 100, NULL,
     "Range of the shape parameter of plateau kernels. Values below and above 1 are equally likely."},
    {"resize_prob", COD_OPTION_FLOAT_LIST, FIRST(resize_prob), "0.2, 0.7, 0.1", 0, 1e6, NULL,
     "Relative odds of enlarging the picture, of shrinking it and of keeping its size. Area, bilinear or bicubic "
     "resampling is chosen at random."},
    {"resize_range", COD_OPTION_FLOAT_LIST, FIRST(resize_range), "0.15, 1.5", 0.05, 4, NULL,
     "Smallest and largest factor of that resize."},
    {"gaussian_noise_prob", COD_OPTION_FLOAT, FIRST(gaussian_noise_prob), "0.5", 0, 1, NULL,
     "Probability of Gaussian noise; otherwise Poisson noise is added."},
    {"noise_range", COD_OPTION_FLOAT_LIST, FIRST(noise_range), "1, 30", 0, 255, NULL,
     "Range of the standard deviation of Gaussian noise, for pixel values from 0 to 255."},
    {"poisson_scale_range", COD_OPTION_FLOAT_LIST, FIRST(poisson_scale_range), "0.05, 3", 0, 100, NULL,
     "Range of the factor that multiplies Poisson noise."},
    {"gray_noise_prob", COD_OPTION_FLOAT, FIRST(gray_noise_prob), "0.4", 0, 1, NULL,
     "Probability that all channels of a pixel get the same noise."},
    {"jpeg_range", COD_OPTION_INT_LIST, FIRST(jpeg_range), "30, 95", 1, 100, NULL, "Range of JPEG quality."},
    {"second_blur_prob", COD_OPTION_FLOAT, FIELD(second_blur_prob), "0.8", 0, 1, NULL,
     "Probability that the second pass blurs."},
    {"blur_kernel_size2", COD_OPTION_INT, SECOND(blur_kernel_size), "21", COD_BLUR_MIN_SIDE, COD_BLUR_MAX_SIDE, NULL,
     "blur_kernel_size of the second pass."},
    {"kernel_list2", COD_OPTION_STRING_LIST, SECOND(kernel_list), all_kernels, 0, 0, NULL,
     "kernel_list of the second pass."},
    {"kernel_prob2", COD_OPTION_FLOAT_LIST, SECOND(kernel_prob), kernel_shares, 0, 1e6, NULL,
     "kernel_prob of the second pass."},
    {"sinc_prob2", COD_OPTION_FLOAT, SECOND(sinc_prob), "0.1", 0, 1, NULL, "sinc_prob of the second pass."},
    {"blur_sigma2", COD_OPTION_FLOAT_LIST, SECOND(blur_sigma), "0.2, 1.5", 0.01, 100, NULL,
     "blur_sigma of the second pass."},
    {"betag_range2", COD_OPTION_FLOAT_LIST, SECOND(betag_range), "0.5, 4", 0.01, 100, NULL,
     "betag_range of the second pass."},
    {"betap_range2", COD_OPTION_FLOAT_LIST, SECOND(betap_range), "1, 2", 0.01, 100, NULL,
     "betap_range of the second pass."},
    {"resize_prob2", COD_OPTION_FLOAT_LIST, SECOND(resize_prob), "0.3, 0.4, 0.3", 0, 1e6, NULL,
     "resize_prob of the second pass."},
    {"resize_range2", COD_OPTION_FLOAT_LIST, SECOND(resize_range), "0.3, 1.2", 0.05, 4, NULL,
     "resize_range of the second pass, relative to the size of the low-resolution picture."},
    {"gaussian_noise_prob2", COD_OPTION_FLOAT, SECOND(gaussian_noise_prob), "0.5", 0, 1, NULL,
     "gaussian_noise_prob of the second pass."},
    {"noise_range2", COD_OPTION_FLOAT_LIST, SECOND(noise_range), "1, 25", 0, 255, NULL,
     "noise_range of the second pass."},
    {"poisson_scale_range2", COD_OPTION_FLOAT_LIST, SECOND(poisson_scale_range), "0.05, 2.5", 0, 100, NULL,
     "poisson_scale_range of the second pass."},
    {"gray_noise_prob2", COD_OPTION_FLOAT, SECOND(gray_noise_prob), "0.4", 0, 1, NULL,
     "gray_noise_prob of the second pass."},
    {"jpeg_range2", COD_OPTION_INT_LIST, SECOND(jpeg_range), "30, 95", 1, 100, NULL, "jpeg_range of the second pass."},
    {"final_sinc_prob", COD_OPTION_FLOAT, FIELD(final_sinc_prob), "0.8", 0, 1, NULL,
     "Probability that a sinc filter follows the resize to 1/scale. With order 2, both come before or after the last "
     "JPEG compression, equally often."},
};

const cod_option_table cod_degrade_option_table = {
    .section = "degradation",
    .help = "How training pictures are degraded when data.degradation is real_esrgan (Wang et al. 2021). Names and "
            "defaults are BasicSR's. `codistill data` writes examples.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .struct_bytes = sizeof(cod_degrade_options),
};

/** Receiver of the problems found in a pass. */
typedef struct examination {
    cod_data_complaint complain;
    void *context;
    const char *suffix; /**< of the pass's keys */
} examination;

static void complain(const examination *e, const char *key, const char *fmt, ...) COD_PRINTF(3, 4);
static void complain(const examination *e, const char *key, const char *fmt, ...)
{
    char full[64], text[256];
    va_list args;
    snprintf(full, sizeof full, "%s%s", key, e->suffix);
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    e->complain(e->context, full, text);
}

static void examine_range(const examination *e, const char *key, size_t count, double least, double most)
{
    if (count != 2)
        complain(e, key, "wants two numbers, the least and the most, such as [%s], not %zu",
                 strcmp(key, "jpeg_range") == 0 ? "30, 95" : "0.5, 2", count);
    else if (least > most)
        complain(e, key, "%g, the least, is above %g, the most", least, most);
}

static void examine_floats(const examination *e, const char *key, const cod_float_list *range)
{
    const bool whole = range->count == 2;
    examine_range(e, key, range->count, whole ? range->items[0] : 0, whole ? range->items[1] : 0);
}

/** Checks a range whose numbers below and above 1 are drawn separately. */
static void examine_around_one(const examination *e, const char *key, const cod_float_list *range)
{
    examine_floats(e, key, range);
    if (range->count == 2 && (range->items[0] > 1 || range->items[1] < 1))
        complain(e, key, "must contain 1, but goes from %g to %g: numbers below 1 and above 1 are drawn separately",
                 range->items[0], range->items[1]);
}

static void examine_shares(const examination *e, const char *key, const cod_float_list *shares)
{
    double sum = 0;
    for (size_t i = 0; i < shares->count; i++)
        sum += shares->items[i];
    if (sum <= 0)
        complain(e, key, "nothing can be chosen: at least one must be above 0");
}

static void examine_kernels(const examination *e, const cod_degrade_pass_options *pass)
{
    const size_t known = COD_BLUR_SINC;
    for (size_t i = 0; i < pass->kernel_list.count; i++) {
        const char *name = pass->kernel_list.items[i];
        size_t family = 0;
        while (family < known && strcmp(name, cod_blur_family_names[family]) != 0)
            family++;
        const char *near = cod_suggest(name, cod_blur_family_names, known);
        if (family == known && near != NULL)
            complain(e, "kernel_list", "'%s' is no blur kernel; did you mean '%s'?", name, near);
        else if (family == known)
            complain(e, "kernel_list", "'%s' is no blur kernel; there are: %s", name, all_kernels);
    }
    if (pass->kernel_prob.count != pass->kernel_list.count)
        complain(e, "kernel_prob", "%zu given for %zu kernels in kernel_list%s", pass->kernel_prob.count,
                 pass->kernel_list.count, e->suffix);
    else
        examine_shares(e, "kernel_prob", &pass->kernel_prob);
}

static void examine_pass(const examination *e, const cod_degrade_pass_options *pass)
{
    const bool whole = pass->jpeg_range.count == 2;
    if (pass->blur_kernel_size % 2 == 0)
        complain(e, "blur_kernel_size", "%lld is even, but a kernel has a middle: an odd number from %d to %d",
                 (long long)pass->blur_kernel_size, COD_BLUR_MIN_SIDE, COD_BLUR_MAX_SIDE);
    examine_kernels(e, pass);
    examine_floats(e, "blur_sigma", &pass->blur_sigma);
    examine_around_one(e, "betag_range", &pass->betag_range);
    examine_around_one(e, "betap_range", &pass->betap_range);
    if (pass->resize_prob.count != 3)
        complain(e, "resize_prob", "wants three numbers, for up, down and keep, not %zu", pass->resize_prob.count);
    else
        examine_shares(e, "resize_prob", &pass->resize_prob);
    examine_around_one(e, "resize_range", &pass->resize_range);
    examine_floats(e, "noise_range", &pass->noise_range);
    examine_floats(e, "poisson_scale_range", &pass->poisson_scale_range);
    examine_range(e, "jpeg_range", pass->jpeg_range.count, whole ? (double)pass->jpeg_range.items[0] : 0,
                  whole ? (double)pass->jpeg_range.items[1] : 0);
}

void cod_degrade_options_examine(const cod_degrade_options *o, cod_data_complaint complaint, void *context)
{
    static const char *const suffixes[] = {"", "2"};
    for (int i = 0; i < 2; i++)
        examine_pass(&(examination){complaint, context, suffixes[i]}, &o->passes[i]);
}

static void keep_first(void *context, const char *key, const char *text)
{
    cod_status *status = context;
    if (*status == COD_OK)
        *status = cod_fail(COD_ERR_ARGUMENT, "degradation.%s: %s", key, text);
}

cod_status cod_degrade_options_check(const cod_degrade_options *o)
{
    cod_status status = COD_OK;
    cod_degrade_options_examine(o, keep_first, &status);
    return status;
}
