#include "data/ma.h"

#include "data/ma_internal.h"

#include <math.h>

const char *const cod_ma_group_names[COD_MA_GROUPS] = {"blocks", "bands", "patches"};
const int cod_ma_feature_counts[COD_MA_GROUPS] = {COD_MA_BLOCK_FEATURES, COD_MA_BAND_FEATURES, COD_MA_PATCH_FEATURES};

cod_status cod_ma_model_check(const cod_ma_model *model)
{
    for (int g = 0; g < COD_MA_GROUPS; g++) {
        const cod_ma_forest *forest = &model->forests[g];
        const char *name = cod_ma_group_names[g];
        if (forest->tree_count == 0 || forest->node_count == 0 || forest->node_count > INT32_MAX)
            return cod_fail(COD_ERR_FORMAT, "the forest of %s has no tree", name);
        for (size_t t = 0; t < forest->tree_count; t++)
            if (forest->roots[t] < 0 || (size_t)forest->roots[t] >= forest->node_count)
                return cod_fail(COD_ERR_FORMAT, "tree %zu of %s begins at node %d, of %zu", t, name, forest->roots[t],
                                forest->node_count);
        for (size_t n = 0; n < forest->node_count; n++) {
            const cod_ma_node *node = &forest->nodes[n];
            if (!isfinite(node->value))
                return cod_fail(COD_ERR_FORMAT, "node %zu of %s has a value that is not finite", n, name);
            if (node->feature < -1 || node->feature >= cod_ma_feature_counts[g])
                return cod_fail(COD_ERR_FORMAT, "node %zu of %s asks for feature %d; they are 0 to %d", n, name,
                                node->feature, cod_ma_feature_counts[g] - 1);
            if (node->feature >= 0 && (node->left <= (int32_t)n || (size_t)node->left + 1 >= forest->node_count))
                return cod_fail(COD_ERR_FORMAT, "node %zu of %s leads to node %d, not to one of those behind it", n,
                                name, node->left);
        }
    }
    for (int i = 0; i < 1 + COD_MA_GROUPS; i++)
        if (!isfinite(model->linear[i]))
            return cod_fail(COD_ERR_FORMAT, "a factor of the forests is not finite");
    return COD_OK;
}

double cod_ma_forest_predict(const cod_ma_forest *forest, const double *features)
{
    double sum = 0;
    for (size_t t = 0; t < forest->tree_count; t++) {
        const cod_ma_node *node = &forest->nodes[forest->roots[t]];
        while (node->feature >= 0)
            node = &forest->nodes[node->left + (features[node->feature] <= node->value ? 0 : 1)];
        sum += node->value;
    }
    return sum / (double)forest->tree_count;
}

double cod_ma_predict(const cod_ma_model *model, const cod_ma_features *features)
{
    const double *of_group[COD_MA_GROUPS] = {features->blocks, features->bands, features->patches};
    double score = model->linear[0];
    for (int g = 0; g < COD_MA_GROUPS; g++)
        score += model->linear[1 + g] * cod_ma_forest_predict(&model->forests[g], of_group[g]);
    return score;
}

static cod_status take_gray(const cod_image *image, int64_t crop, cod_plane *gray)
{
    COD_REQUIRE(image->bits == 8 && image->channels >= 3, "Ma's score is of 8-bit RGB pictures");
    COD_REQUIRE(crop >= 0, "a border of %lld pixels cannot be left out", (long long)crop);
    const int64_t width = image->width - 2 * crop, height = image->height - 2 * crop;
    COD_REQUIRE(width >= COD_MA_SIDE && height >= COD_MA_SIDE,
                "%lldx%lld pixels are too few for Ma's score: %dx%d must remain inside a border of %lld",
                (long long)image->width, (long long)image->height, COD_MA_SIDE, COD_MA_SIDE, (long long)crop);
    double least = 255, most = 0;
    COD_TRY(cod_plane_init_gray(image, crop, height, width, gray));
    for (int64_t i = 0; i < height * width; i++) {
        least = fmin(least, gray->values[i]);
        most = fmax(most, gray->values[i]);
    }
    COD_REQUIRE(least < most, "a flat picture has no score by Ma: all gray values are %g", least);
    return COD_OK;
}

/** The value of MATLAB's imfilter with its 3x3 Gaussian of sigma 0.5 at a pixel; beyond the border there are zeros. */
static double smoothed(const cod_plane *plane, int64_t y, int64_t x)
{
    const double side = exp(-2), sum = 1 + 2 * side, weights[3] = {side / sum, 1 / sum, side / sum};
    double value = 0;
    for (int64_t i = -1; i <= 1; i++)
        for (int64_t j = -1; j <= 1; j++)
            if (y + i < plane->height && x + j < plane->width)
                value += weights[i + 1] * weights[j + 1] * plane->values[(y + i) * plane->width + x + j];
    return value;
}

/** Every second pixel of the smoothed plane, from the second one on. */
static cod_status halve(const cod_plane *plane, cod_plane *half)
{
    COD_TRY(cod_plane_init(plane->height / 2, plane->width / 2, half));
    for (int64_t y = 0; y < half->height; y++)
        for (int64_t x = 0; x < half->width; x++)
            half->values[y * half->width + x] = smoothed(plane, 2 * y + 1, 2 * x + 1);
    return COD_OK;
}

static cod_status compute(cod_plane scales[COD_MA_SCALES], cod_ma_features *features)
{
    COD_TRY(cod_ma_band_features(&scales[0], features->bands));
    for (int64_t i = 0; i < scales[0].height * scales[0].width; i++)
        scales[0].values[i] /= 255;
    for (int s = 1; s < COD_MA_SCALES; s++)
        COD_TRY(halve(&scales[s - 1], &scales[s]));
    COD_TRY(cod_ma_block_features(scales, features->blocks));
    return cod_ma_patch_features(scales, features->patches);
}

cod_status cod_ma_features_of(const cod_image *image, int64_t crop, cod_ma_features *features)
{
    cod_plane scales[COD_MA_SCALES] = {{0}};
    cod_status status = take_gray(image, crop, &scales[0]);
    COD_THEN(status, compute(scales, features));
    for (int s = 0; s < COD_MA_SCALES; s++)
        cod_plane_clear(&scales[s]);
    return status;
}

cod_status cod_ma(const cod_image *image, int64_t crop, const cod_ma_model *model, double *score)
{
    cod_ma_features features;
    COD_TRY(cod_ma_features_of(image, crop, &features));
    *score = cod_ma_predict(model, &features);
    return COD_OK;
}
