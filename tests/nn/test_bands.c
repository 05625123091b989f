/* Running in bands: every row must be what it is when the picture is run whole. */
#include "support/test.h"

#include "cpu/cpu.h"
#include "nn/net.h"
#include "ref/ref.h"
#include "support/paranoid.h"

#include <math.h>
#include <stdlib.h>

static const char PROGRAM[] = "infer", INPUT[] = "input";

/** A model and what is compiled from it. */
typedef struct fixture {
    cod_arena arena;
    cod_model model;
    test_net whole, banded;
    int64_t width, height, band, scale;
} fixture;

static cod_status compile(test_net *net, const cod_backend *backend, const cod_model *model, cod_dtype dtype,
                          int64_t width, int64_t height, bool bands)
{
    const cod_input_shape shape = {INPUT, {1, height, width, 3}};
    const cod_compile_options options = {.activation = dtype, .inputs = &shape, .input_count = 1, .bands = bands};
    const cod_program_spec spec = {.name = PROGRAM, .outputs = {model->output}};
    return net_init(net, backend, model->graph, &options, &spec, 1, 7);
}

static void open_model(fixture *f, const cod_backend *backend, cod_dtype dtype)
{
    assert_ok(compile(&f->whole, backend, &f->model, dtype, f->width, f->height, false));
    assert_ok(compile(&f->banded, backend, &f->model, dtype, f->width, f->band, true));
    f->scale = cod_executable_output(f->whole.executable, f->model.output).shape.w / f->width;
}

static void close_model(fixture *f)
{
    net_clear(&f->whole);
    net_clear(&f->banded);
    cod_model_clear(&f->model);
    cod_arena_clear(&f->arena);
}

static double pixel(int64_t i, int picture)
{
    return 0.5 + 0.5 * sin(12.9898 * (double)(i + 1) + picture);
}

/** The picture's output by bands. @param[out] out  new; free() */
static double *run_bands(const fixture *f, int picture)
{
    const int64_t row = f->width * 3, rows = f->band * f->scale, out_row = row * f->scale;
    cod_program *program = cod_executable_program(f->banded.executable, PROGRAM);
    const int64_t delay = cod_program_delay(program);
    double *in = net_new((size_t)(f->band * row)), *band = net_new((size_t)(rows * out_row));
    double *out = net_new((size_t)(f->height * f->scale * out_row));
    for (int64_t k = 0; k * rows < f->height * f->scale + delay; k++) {
        for (int64_t i = 0; i < f->band * row; i++) {
            const int64_t y = k * f->band + i / row, last = f->height - 1;
            in[i] = pixel((y < last ? y : last) * row + i % row, picture);
        }
        assert_ok(net_write(&f->banded, cod_executable_input(f->banded.executable, INPUT), in));
        assert_ok(cod_program_run_band(program, k, f->height));
        assert_ok(net_read(&f->banded, cod_executable_output(f->banded.executable, f->model.output), band));
        for (int64_t i = 0; i < rows; i++) {
            const int64_t y = k * rows + i - delay;
            for (int64_t x = 0; x < out_row && y >= 0 && y < f->height * f->scale; x++)
                out[y * out_row + x] = band[i * out_row + x];
        }
    }
    free(in);
    free(band);
    return out;
}

static double *run_whole(const fixture *f, int picture)
{
    const int64_t count = f->height * f->width * 3;
    double *in = net_new((size_t)count), *out = net_new((size_t)(count * f->scale * f->scale));
    for (int64_t i = 0; i < count; i++)
        in[i] = pixel(i, picture);
    assert_ok(net_write(&f->whole, cod_executable_input(f->whole.executable, INPUT), in));
    assert_ok(net_run((test_net *)&f->whole, PROGRAM));
    assert_ok(net_read(&f->whole, cod_executable_output(f->whole.executable, f->model.output), out));
    free(in);
    return out;
}

static void compare(const fixture *f, const char *name, double tolerance)
{
    for (int picture = 0; picture < 2; picture++) { /* what one leaves behind must not show in the next */
        double *expected = run_whole(f, picture), *actual = run_bands(f, picture);
        for (int64_t i = 0; i < f->height * f->width * 3 * f->scale * f->scale; i++)
            if (!(fabs(actual[i] - expected[i]) <= tolerance))
                fail_msg("%s, %lld rows in bands of %lld, picture %d: row %lld is %.17g, not %.17g", name,
                         (long long)f->height, (long long)f->band, picture, (long long)(i / (f->width * 3 * f->scale)),
                         actual[i], expected[i]);
        free(expected);
        free(actual);
    }
}

static const struct {
    const char *kind, *options;
    int multiple; /**< of heights, that it takes */
} models[] = {
    {"srresnet", "blocks=2 channels=4 scale=4 head_kernel=5 tail_kernel=3", 1},
    {"srresnet", "blocks=1 channels=4 scale=3 norm=none skip=bicubic upsampler=once head_kernel=3 tail_kernel=3", 1},
    {"srresnet", "blocks=3 channels=16 scale=2 skip=nearest head_kernel=9 tail_kernel=9", 1},
    {"msrresnet", "num_feat=4 num_block=2 scale=4", 1},
    {"rrdb", "num_feat=4 num_block=1 num_grow_ch=3", 1},
    {"rrdb", "num_feat=4 num_block=1 num_grow_ch=3 scale=2", 2},
    {"rrdb", "num_feat=3 num_block=1 num_grow_ch=2 scale=1", 4},
    {"compact", "num_feat=4 num_conv=2 scale=3", 1},
    {"edsr", "num_feat=4 num_block=2 scale=4", 1},
    {"edsr", "num_feat=4 num_block=1 scale=3 res_scale=0.3", 1},
};
enum { MODELS = sizeof models / sizeof models[0] };

static const struct {
    int64_t height, band;
} sizes[] = {{13, 4}, {13, 13}, {12, 3}, {5, 8}, {1, 2}, {40, 7}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void check_models(const cod_backend *backend, cod_dtype dtype, double tolerance)
{
    for (int m = 0; m < MODELS; m++) {
        for (int s = 0; s < SIZES; s++) {
            const int64_t multiple = models[m].multiple;
            fixture f = {
                .width = multiple > 1 ? 8 : 6, .height = sizes[s].height * multiple, .band = sizes[s].band * multiple};
            assert_ok(net_model(models[m].kind, models[m].options, &f.arena, &f.model));
            open_model(&f, backend, dtype);
            compare(&f, models[m].kind, tolerance);
            close_model(&f);
        }
    }
}

TEST(bands_equal_the_whole)
{
    check_models(&cod_ref_backend, COD_F64, 1e-12);
}

TEST(bands_equal_the_whole_on_cpu)
{
    check_models(&cod_cpu_backend, COD_F32, 2e-5);
}

TEST(bands_write_where_they_may)
{
    check_models(cod_paranoid_wrap(&cod_ref_backend), COD_F64, 1e-12);
    cod_test_assert_none(cod_paranoid_violations, "on paranoid");
}

/** Branches that see unequally far, joined by a concatenation, and a sum of the input's own enlargement. */
static cod_value build_branches(cod_graph *graph, cod_value input, const void *options)
{
    (void)options;
    const cod_conv2d_spec wide = {.out_channels = 5, .kernel = 7, .padding = 3},
                          narrow = {.out_channels = 3, .kernel = 1},
                          last = {.out_channels = 3, .kernel = 3, .padding = 1};
    const cod_value a = cod_graph_conv2d(graph, "a", cod_graph_conv2d(graph, "a0", input, wide), wide);
    const cod_value b = cod_graph_conv2d(graph, "b", input, narrow);
    const cod_value both[] = {b, a, b};
    cod_value x = cod_graph_conv2d(graph, "c", cod_graph_concat(graph, both, 3), last);
    x = cod_graph_resize(graph, x, 2, COD_RESIZE_NEAREST);
    x = cod_graph_conv2d(graph, "d", x, last);
    return cod_graph_add(graph, cod_graph_resize(graph, input, 2, COD_RESIZE_BICUBIC), x);
}

static const cod_option_table no_options = {.section = "model", .help = "none"};

TEST(branches_meet)
{
    static const cod_model_kind kind = {.name = "branches", .table = &no_options, .build = build_branches};
    for (int s = 0; s < SIZES; s++) {
        fixture f = {.width = 5, .height = sizes[s].height, .band = sizes[s].band};
        assert_ok(cod_model_build(&kind, NULL, &f.model));
        open_model(&f, &cod_ref_backend, COD_F64);
        compare(&f, kind.name, 1e-12);
        close_model(&f);
    }
}

static cod_value build_pooled(cod_graph *graph, cod_value input, const void *options)
{
    (void)options;
    return cod_graph_pool(graph, input, COD_POOL_MAX, 3, 1, 1);
}

static cod_value build_mean(cod_graph *graph, cod_value input, const void *options)
{
    (void)options;
    return cod_graph_mean(graph, input);
}

TEST(what_cannot_run_so_is_refused)
{
    static const cod_model_kind kinds[] = {{.name = "pooled", .table = &no_options, .build = build_pooled},
                                           {.name = "mean", .table = &no_options, .build = build_mean}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        fixture f = {.width = 6, .height = 8, .band = 4};
        assert_ok(cod_model_build(&kinds[i], NULL, &f.model));
        assert_fails(COD_ERR_UNSUPPORTED, "cannot run in bands",
                     compile(&f.banded, &cod_ref_backend, &f.model, COD_F64, f.width, f.band, true));
        close_model(&f);
    }
}

TEST(heights_that_unshuffling_cannot_divide_are_refused)
{
    fixture f = {.width = 8, .height = 12, .band = 4};
    assert_ok(net_model("rrdb", "num_feat=3 num_block=1 num_grow_ch=2 scale=1", &f.arena, &f.model));
    open_model(&f, &cod_ref_backend, COD_F64);
    assert_fails(COD_ERR_ARGUMENT, "a picture of 10 rows; wants a multiple of 4",
                 cod_program_run_band(cod_executable_program(f.banded.executable, PROGRAM), 0, 10));
    close_model(&f);
}
