/* `codistill report`: the page of a comparison, written anew. */
#include "tools/cmd.h"

#include "report/report.h"
#include "tools/arguments.h"

#include <getopt.h> /* optind */
#include <stdio.h>
#include <sys/stat.h>

static const char help[] =
    "usage: codistill report FOLDER\n\n"
    "Writes the report of a comparison anew: FOLDER/report.html, one page that needs nothing else, and its plots as "
    "PNG files\n"
    "beside it, from FOLDER/compare.json, which `codistill compare` left there. It trains nothing.\n\n"
    "  --help\n";

static cod_status write_report(const char *folder)
{
    struct stat state;
    if (stat(folder, &state) != 0)
        return cod_fail(COD_ERR_ARGUMENT, "there is no folder '%s'; `codistill compare` prints the one that it writes",
                        folder);
    COD_REQUIRE(S_ISDIR(state.st_mode), "'%s' is no folder; name the one that holds compare.json", folder);
    return cod_report_write(folder);
}

int cod_cmd_report(int argc, char **argv)
{
    const int code = cod_arguments_parse(argc, argv, help, NULL, 0, NULL, NULL);
    if (code >= 0)
        return code;
    if (argc == optind)
        return cod_cmd_usage(argv[0], "FOLDER is missing: where compare.json is");
    if (argc - optind > 1)
        return cod_cmd_usage(argv[0], "one FOLDER is wanted, not also '%s'", argv[optind + 1]);
    const cod_status status = write_report(argv[optind]);
    if (status != COD_OK)
        return cod_cmd_failed(status);
    printf("written to %s/report.html\n", argv[optind]);
    return COD_EXIT_OK;
}
