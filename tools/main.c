/* The `codistill` command: registers what there is, and hands over to a subcommand. */
#include "tools/cmd.h"

#include "core/backend.h"
#include "core/log.h"
#include "core/option.h"
#include "cpu/cpu.h"
#ifdef COD_HAVE_CUDA
#include "cuda/cuda.h"
#endif
#include "gan/esrgan.h"
#include "gan/real_esrgan.h"
#include "gan/srgan.h"
#include "ref/ref.h"
#include "tools/complete.h"
#include "tools/display.h"
#include "tools/help.h"
#include "tools/print.h"
#include "tools/stop.h"
#include "tools/strategies.h"
#include "train/recipe.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct command {
    const char *name, *help;
    int (*run)(int argc, char **argv);
    int operands; /**< COD_WORDS_FILES and so on */
} command;

static const command commands[] = {
    {"train", "train a configuration, as one process or as a job of many ranks", cod_cmd_train, COD_WORDS_CONFIG},
    {"compare", "train a configuration with several strategies and compare the results", cod_cmd_compare,
     COD_WORDS_CONFIG},
    {"report", "write an HTML page about a comparison or a run", cod_cmd_report, COD_WORDS_FILES},
    {"trace", "make one trace of those of a run's ranks", cod_cmd_trace, COD_WORDS_FILES},
    {"plan", "show what a configuration would run on which rank, without training", cod_cmd_plan, COD_WORDS_CONFIG},
    {"data", "write samples that a configuration would train on", cod_cmd_data, COD_WORDS_CONFIG},
    {"eval", "measure a model: PSNR, SSIM and more on pictures, or a classifier's accuracy", cod_cmd_eval,
     COD_WORDS_MODELS | COD_WORDS_BICUBIC},
    {"upscale", "upscale pictures and videos with a model", cod_cmd_upscale, COD_WORDS_MODELS | COD_WORDS_BICUBIC},
    {"gallery", "write an HTML page that compares the results of models on pictures", cod_cmd_gallery,
     COD_WORDS_MODELS},
    {"export", "write a model as ONNX, or as safetensors with folded normalisation", cod_cmd_export, COD_WORDS_MODELS},
    {"import", "convert a PyTorch file to safetensors", cod_cmd_import, COD_WORDS_FILES},
    {"interpolate", "write a model between two models of the same architecture", cod_cmd_interpolate, COD_WORDS_MODELS},
    {"models", "list the architectures and their options", cod_cmd_models, 0},
    {"config", "list every option of a configuration", cod_cmd_config, 0},
    {"bench", "measure this machine: steps, upscaling, data, copies, codings, averages, the exchange", cod_cmd_bench,
     0},
    {"completion", "print the completion of these arguments for bash, zsh or fish", cod_cmd_completion, 0},
};

/** What stands behind `codistill`: a command, or what the command says. */
static int complete(int count, char **words)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0] && count > 1; i++)
        if (strcmp(words[0], commands[i].name) == 0)
            return cod_complete_command(commands[i].run, words[0], commands[i].operands, count - 1, words + 1);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0] && count <= 1; i++)
        cod_complete_word(commands[i].name, commands[i].help);
    for (size_t i = 0; i < 2 && count <= 1; i++)
        cod_complete_word(i == 0 ? "--help" : "--version", NULL);
    return COD_EXIT_OK;
}

static void print_help(FILE *out)
{
    char list[2048];
    for (size_t i = 0, used = 0; i < sizeof commands / sizeof commands[0]; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "  %s\t%s\n", commands[i].name, commands[i].help);
    cod_help_print(
        out, "usage: codistill COMMAND [ARGUMENTS]\n\n"
             "Trains networks for super-resolution and classification on machines joined by slow links: groups of "
             "MPI ranks teach each other and merge their weights. Also uses and compares the trained networks.\n\n"
             "commands:\n");
    cod_help_print(out, list);
    cod_help_print(out,
                   "\noptions:\n"
                   "  --help\tprint this text\n"
                   "  --version\tprint the version, the libraries, the processor and the backends\n"
                   "\n`codistill COMMAND --help` explains a command. Exit codes: 0 ok, 1 failed, 2 wrong usage, 75 "
                   "saved and stopped before the end (train and compare: the same command goes on).\n");
}

const char *cod_cmd_log_mark(cod_log_level level)
{
    static const char *const marks[] = {"debug: ", "", "warning: ", "error: "};
    return marks[level];
}

void cod_cmd_log(void *context, cod_log_level level, const char *line)
{
    char text[8256];
    (void)context;
    snprintf(text, sizeof text, "%s%s", cod_cmd_log_mark(level), line);
    cod_display_line(text);
}

int cod_cmd_failed(cod_status status)
{
    char text[8256];
    snprintf(text, sizeof text, "codistill: %s", cod_error_message());
    cod_display_line(text);
    return status == COD_ERR_ARGUMENT ? COD_EXIT_USAGE : COD_EXIT_FAILED;
}

int cod_cmd_usage(const char *name, const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    cod_print(stderr, "codistill %s: %s\n", name, text);
    cod_print(stderr, "`codistill %s --help` shows how to use it.\n", name);
    return COD_EXIT_USAGE;
}

static cod_status register_all(void)
{
    cod_log_set_sink(cod_cmd_log, NULL, COD_LOG_INFO);
    COD_TRY(cod_backend_register(&cod_cpu_backend));
    COD_TRY(cod_backend_register(&cod_ref_backend));
#ifdef COD_HAVE_CUDA
    COD_TRY(cod_backend_register(&cod_cuda_backend));
#endif
    cod_recipe_register_supervised();
    cod_recipe_register_srgan();
    cod_recipe_register_esrgan();
    cod_recipe_register_real_esrgan();
    cod_strategies_register_all();
    return COD_OK;
}

static int run(int argc, char **argv)
{
    const cod_status status = register_all();
    if (status != COD_OK)
        return cod_cmd_failed(status);
    if (argc < 2) {
        print_help(stderr);
        return COD_EXIT_USAGE;
    }
    const bool help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0,
               version = strcmp(argv[1], "--version") == 0;
    if ((help || version) && argc > 2) {
        cod_print(stderr,
                  "codistill: %s takes no arguments, but got '%s'; `codistill COMMAND --help` explains a command\n",
                  argv[1], argv[2]);
        return COD_EXIT_USAGE;
    }
    if (help) {
        print_help(stdout);
        return COD_EXIT_OK;
    }
    if (version)
        return cod_cmd_version();
    if (strcmp(argv[1], COD_COMPLETE_WORD) == 0)
        return complete(argc - 2, argv + 2);
    const char *names[sizeof commands / sizeof commands[0]];
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
        names[i] = commands[i].name;
    }
    const char *near = cod_suggest(argv[1], names, sizeof names / sizeof names[0]);
    cod_print(stderr, "codistill: there is no command '%s'%s%s%s\n", argv[1], near ? "; did you mean '" : "",
              near ? near : "", near ? "'?" : "; `codistill --help` lists them");
    return COD_EXIT_USAGE;
}

/** Whether standard output has a reader no more, of a command that goes on without one. */
static bool is_let_go(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return cod_stop_is_caught() && poll(&out, 1, 0) > 0 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

/** Whether the last argument asks for help as it stands, for tools/manual.py; it is taken away. */
static bool takes_unwrapped(int *argc, char **argv)
{
    if (*argc < 2 || strcmp(argv[*argc - 1], "--unwrapped") != 0)
        return false;
    argv[--*argc] = NULL;
    return true;
}

/** What lies in the buffer of standard output is written last of all, where a full disk is noticed last, too. */
int main(int argc, char **argv)
{
    if (takes_unwrapped(&argc, argv))
        cod_help_leave_unwrapped();
    const int code = run(argc, argv);
    const bool unwritten = fflush(stdout) != 0, lost = cod_print_has_lost(),
               failed = unwritten || lost || ferror(stdout) != 0;
    if (!failed || code != COD_EXIT_OK || is_let_go())
        return code;
    const char *reason = unwritten ? strerror(errno) : lost ? "out of memory" : NULL;
    cod_print(stderr, "codistill: standard output: cannot write the result%s%s\n", reason != NULL ? ": " : "",
              reason != NULL ? reason : "");
    return COD_EXIT_FAILED;
}
