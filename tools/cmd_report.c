/* `codistill report`: the page of a comparison or of a training run, written anew. */
#include "tools/cmd.h"

#include "core/log.h"
#include "io/file.h"
#include "report/report.h"
#include "tools/arguments.h"
#include "tools/photographs.h"
#include "tools/print.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WATCH_S = 5 };

static const char help[] =
    "usage: codistill report FOLDER [--watch | --low DIR]\n\n"
    "Writes the page FOLDER/report.html anew, in one file that needs no other. Trains nothing. FOLDER is either\n"
    "  a comparison's\tthe folder that `codistill compare` names at its end. The page is made from compare.json, and "
    "the plots are also written as PNG files\n"
    "  or a run's\tthe folder that `codistill train` writes to, also while the run goes on. The page shows "
    "quality, losses, what each group learned from which other group, speed, and pictures\n\n"
    "  --watch\tfor a run: write the page every 5 seconds until the run has finished; the browser reloads it\n"
    "  --low DIR\tof super-resolution: also show parts of photographs in DIR, which have no truth: small, by bicubic "
    "interpolation, and by the run's final model or each arm's. The page keeps them until FOLDER/photographs.json is "
    "removed\n"
    "  --help\n";

/** Writes the page until the run has finished. What a run that has just begun lacks may still come. */
static cod_status watch(const char *folder)
{
    bool finished = false, told = false, waiting = false;
    for (;;) {
        const cod_status status = cod_report_write_run(folder, WATCH_S, &finished);
        if (status != COD_OK && status != COD_ERR_IO)
            return status;
        if (status != COD_OK && !waiting)
            cod_log_info("waiting: %s", cod_error_message());
        waiting = status != COD_OK;
        if (status == COD_OK && !told) {
            cod_print(stdout, "open %s/report.html in a browser; Ctrl-C ends this, the run goes on\n", folder);
            fflush(stdout);
            told = true;
        }
        if (finished)
            return status;
        sleep(WATCH_S);
    }
}

static cod_status write_report(cod_arena *arena, const char *folder, bool watched, const char *low)
{
    struct stat state;
    bool finished;
    if (stat(folder, &state) != 0)
        return cod_fail(
            COD_ERR_ARGUMENT,
            "there is no folder '%s'; `codistill compare` prints the one that it writes, and of a run it is "
            "OUTPUT/NAME",
            folder);
    COD_REQUIRE(S_ISDIR(state.st_mode), "'%s' is no folder; name the one that holds compare.json or a run", folder);
    const char *comparison = cod_path_join(arena, folder, "compare.json");
    const char *run = cod_path_join(arena, folder, "config.yaml");
    COD_REQUIRE_MEMORY(comparison);
    COD_REQUIRE_MEMORY(run);
    const bool is_run = cod_file_exists(run) && !cod_file_exists(comparison);
    COD_REQUIRE(is_run || !watched, "'%s' is no run's folder, and only a run can be watched", folder);
    if (low != NULL)
        COD_TRY(cod_photographs_write(folder, is_run, low));
    return watched ? watch(folder) : is_run ? cod_report_write_run(folder, 0, &finished) : cod_report_write(folder);
}

int cod_cmd_report(int argc, char **argv)
{
    bool watched = false;
    cod_arena arena = {0};
    const char *low = NULL;
    const cod_argument own[] = {{.name = "watch", .flag = &watched},
                                {.name = "low", .text = &low, .words = COD_WORDS_FILES}};
    const int code = cod_arguments_parse(argc, argv, help, own, 2, NULL, NULL);
    if (code >= 0)
        return code;
    if (argc == optind)
        return cod_cmd_usage(argv[0], "FOLDER is missing: a comparison's, or a run's");
    if (argc - optind > 1)
        return cod_cmd_usage(argv[0], "one FOLDER is wanted, not also '%s'", argv[optind + 1]);
    if (watched && low != NULL)
        return cod_cmd_usage(argv[0], "--low needs the final model, so it does not go with --watch");
    const cod_status status = write_report(&arena, argv[optind], watched, low);
    cod_arena_clear(&arena);
    if (status != COD_OK)
        return cod_cmd_failed(status);
    cod_print(stdout, "written to %s/report.html\n", argv[optind]);
    return COD_EXIT_OK;
}
