/* Which device is opened for what a user asks, on machines with and without a GPU. */
#include "support/test.h"

#include "core/device.h"

struct cod_device {
    int ordinal;
};

/** What the GPU of the test says when it is opened; "" = it opens. */
static const char *gpu_says = "";
static cod_status gpu_status = COD_ERR_UNSUPPORTED;
static int opened, closed;
static cod_device cpu_device, gpu_device;

static cod_status open_cpu(const cod_device_options *options, cod_device **out)
{
    cpu_device.ordinal = options->ordinal;
    *out = &cpu_device;
    opened++;
    return COD_OK;
}

static cod_status open_gpu(const cod_device_options *options, cod_device **out)
{
    if (gpu_says[0] != '\0')
        return cod_fail(gpu_status, "%s", gpu_says);
    gpu_device.ordinal = options->ordinal;
    *out = &gpu_device;
    opened++;
    return COD_OK;
}

static void close_any(cod_device *device)
{
    (void)device;
    closed++;
}

static const char *describe(cod_device *device)
{
    return device == &gpu_device ? "GPU 0: one of the test" : "a processor";
}

static const cod_backend cpu = {
    .version = COD_BACKEND_VERSION, .name = "cpu", .open = open_cpu, .close = close_any, .describe = describe};
static const cod_backend other = {
    .version = COD_BACKEND_VERSION, .name = "other", .open = open_cpu, .close = close_any, .describe = describe};
static const cod_backend gpu = {
    .version = COD_BACKEND_VERSION, .name = "cuda", .open = open_gpu, .close = close_any, .describe = describe};

/** Opens, demands that this backend was taken for this reason, and closes. */
static void takes(const cod_device_choice *choice, const char *name, const char *reason)
{
    const cod_backend *backend = NULL;
    cod_device *device = NULL;
    char why[COD_DEVICE_REASON] = "none";
    opened = closed = 0;
    assert_ok(cod_device_open(choice, &(cod_device_options){.ordinal = 5}, &backend, &device, why));
    assert_string_equal(backend->name, name);
    assert_string_equal(why, reason);
    assert_int_equal(device->ordinal, 5);
    backend->close(device);
    assert_int_equal(opened, 1);
    assert_int_equal(closed, 1);
}

static cod_status fails(const cod_device_choice *choice)
{
    const cod_backend *backend = NULL;
    cod_device *device = NULL;
    char why[COD_DEVICE_REASON];
    return cod_device_open(choice, &(cod_device_options){0}, &backend, &device, why);
}

static cod_device_choice choice_of(cod_device_kind device)
{
    return (cod_device_choice){.device = device, .backend = COD_BACKEND_AUTO, .setting = "cluster.device"};
}

TEST(a_build_without_cuda_says_so)
{
    const cod_device_choice automatic = choice_of(COD_DEVICE_AUTO), cuda = choice_of(COD_DEVICE_CUDA);
    assert_ok(cod_backend_register(&cpu));
    takes(&automatic, "cpu", "cpu (this build has no CUDA)");
    assert_fails(COD_ERR_UNSUPPORTED, "cluster.device: cuda: this build has no CUDA; `cpu` computes without a GPU",
                 fails(&cuda));
    assert_ok(cod_backend_register(&other));
    assert_ok(cod_backend_register(&gpu));
}

TEST(auto_takes_a_gpu_that_opens)
{
    const cod_device_choice automatic = choice_of(COD_DEVICE_AUTO), cuda = choice_of(COD_DEVICE_CUDA);
    gpu_says = "";
    takes(&automatic, "cuda", "cuda (GPU 0: one of the test)");
    takes(&cuda, "cuda", "cuda (GPU 0: one of the test)");
}

TEST(auto_falls_back_and_cuda_does_not)
{
    const cod_device_choice automatic = choice_of(COD_DEVICE_AUTO), cuda = choice_of(COD_DEVICE_CUDA);
    gpu_says = "there is no driver";
    takes(&automatic, "cpu", "cpu (there is no driver)");
    assert_fails(COD_ERR_UNSUPPORTED, "cluster.device: cuda: there is no driver; ", fails(&cuda));
    gpu_status = COD_ERR_MEMORY;
    gpu_says = "the GPU is full";
    takes(&automatic, "cpu", "cpu (the GPU is full)");
    assert_fails(COD_ERR_MEMORY, "cluster.device: cuda: the GPU is full; ", fails(&cuda));
    gpu_status = COD_ERR_UNSUPPORTED;
    gpu_says = "";
}

TEST(the_processor_leaves_the_gpu_alone)
{
    cod_device_choice choice = choice_of(COD_DEVICE_CPU);
    takes(&choice, "cpu", "");
    assert_true(cod_device_is_cpu(&choice));
    choice = choice_of(COD_DEVICE_AUTO);
    assert_false(cod_device_is_cpu(&choice));
    choice.host_only = "weights move in the host's memory";
    assert_true(cod_device_is_cpu(&choice));
    takes(&choice, "cpu", "cpu (weights move in the host's memory)");
}

TEST(a_backend_by_name_decides_alone)
{
    cod_device_choice choice = choice_of(COD_DEVICE_CUDA);
    choice.backend = "other";
    takes(&choice, "other", "");
    assert_true(cod_device_is_cpu(&choice));
    choice.backend = "cuda";
    choice.device = COD_DEVICE_CPU;
    takes(&choice, "cuda", "");
    assert_false(cod_device_is_cpu(&choice));
    choice.backend = "none";
    assert_fails(COD_ERR_ARGUMENT, "there is no backend 'none' in this build; it has cpu, other, cuda", fails(&choice));
}
