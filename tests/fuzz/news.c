/*
 * Standard error of a job, as its launching process reads it: words of ranks, of mpirun and of anybody else, and news.
 *
 * An input's first two bytes say in what pieces the rest comes. In it '@' stands for what news begin with, which only
 * ranks know; the same input is read once more with another token, by which none of it is news.
 */
#include "fuzz.h"

#include "core/shown.h"
#include "tools/display.h"
#include "tools/news.h"
#include "tools/relay.h"

static const char token[] = "0123456789abcdef0123456789abcdef", other[] = "fedcba9876543210fedcba9876543210";

fuzz_kind fuzz_kinds[] = {{"ranks that told of themselves", 0},
                          {"ranks that were asked", 0},
                          {"lines of groups", 0},
                          {"exit codes", 0},
                          {"deaths", 0},
                          {NULL, 0}};

/** What came out. */
static struct outcome {
    int code, told, heard, groups, death;
    size_t text; /**< a checksum */
} outcome;

static void take_text(const char *text)
{
    char shown[4 * COD_NEWS_MOST_LINE + 1];
    const size_t bytes = strlen(text), length = cod_show(text, bytes, false, shown, sizeof shown);
    FUZZ_DEMAND(length == bytes && memcmp(shown, text, bytes) == 0); /* nothing is left to escape */
    for (size_t i = 0; i < bytes; i++)
        outcome.text = outcome.text * 31 + (unsigned char)text[i];
}

/* In place of the terminal, and of connections. */
void cod_display_line(const char *text)
{
    take_text(text);
    outcome.text++;
}

void cod_display_group(int group, const char *line)
{
    FUZZ_DEMAND(group >= 0);
    outcome.groups++;
    take_text(line);
}

void cod_deaths_note(cod_deaths *deaths, int rank, int pid)
{
    (void)deaths;
    FUZZ_DEMAND(rank >= 0 && rank < COD_RELAY_MOST && pid > 0);
}

int cod_deaths_first(const cod_deaths *deaths, int told)
{
    (void)deaths;
    FUZZ_DEMAND(told >= 0 && told <= COD_RELAY_MOST);
    return -1;
}

static void read_all(const char *text, size_t bytes, size_t piece, const char *with)
{
    static cod_relay relay;
    static cod_deaths deaths;
    cod_lines lines = {0};
    cod_relay_death death;
    outcome = (struct outcome){0};
    FUZZ_DEMAND(cod_relay_begin(&relay, with, &deaths));
    for (size_t i = 0; i < bytes; i += piece)
        cod_lines_add(&lines, text + i, piece < bytes - i ? piece : bytes - i, cod_relay_line, &relay);
    cod_lines_end(&lines, cod_relay_line, &relay);
    FUZZ_DEMAND(relay.code >= -1 && relay.heard >= 0 && relay.heard <= relay.told && relay.told <= COD_RELAY_MOST);
    const int deaf = cod_relay_deaf(&relay);
    FUZZ_DEMAND((deaf < 0) == (relay.heard == relay.told) && deaf < COD_RELAY_MOST);
    cod_relay_end(&relay, &death);
    FUZZ_DEMAND(death.rank >= -1 && (death.rank < 0) == (death.text[0] == '\0'));
    outcome.code = relay.code;
    outcome.told = relay.told;
    outcome.heard = relay.heard;
    outcome.death = death.rank;
    cod_relay_clear(&relay);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    enum { LONGEST = 1 + COD_NEWS_TOKEN + 1 };
    if (bytes < 2)
        return 0;
    const size_t piece = 1 + input[0] % 64 + (size_t)(input[1] % 16) * 256;
    char *const text = malloc(bytes * LONGEST);
    size_t length = 0;
    FUZZ_DEMAND(text != NULL);
    for (size_t i = 2; i < bytes; i++) {
        if (input[i] == '@')
            length += (size_t)sprintf(text + length, "%c%s ", COD_NEWS_MARK, token);
        else
            text[length++] = (char)input[i];
    }
    read_all(text, length, length + 1, token);
    const struct outcome whole = outcome;
    read_all(text, length, piece, token);
    FUZZ_DEMAND(memcmp(&whole, &outcome, sizeof whole) == 0); /* however it comes */
    fuzz_kinds[0].taken += outcome.told > 0;
    fuzz_kinds[1].taken += outcome.heard > 0;
    fuzz_kinds[2].taken += outcome.groups > 0;
    fuzz_kinds[3].taken += outcome.code >= 0;
    fuzz_kinds[4].taken += outcome.death >= 0;
    if (memmem(text, length, other, strlen(other)) == NULL) { /* which fuzzers find by what it is compared with */
        read_all(text, length, piece, other);
        FUZZ_DEMAND(outcome.code == -1 && outcome.told == 0 && outcome.heard == 0 && outcome.groups == 0);
    }
    free(text);
    return 0;
}

int fuzz_write(const char *folder)
{
    static const char job[] =
        "\x05\x01"
        "@P0 1000\n@P1 1001\ngroup 0: 3 training pictures\n@S0 group 0  step 10\nhalf a @S1 line\n"
        "@A0\n@A1\n@X0\n",
                      killed[] = "\x07\x02"
                                 "@P1 77\n--------------------------------------------------------------------------\n"
                                 "mpirun noticed that process rank 1 with PID 77 on node vm exited on signal 9 "
                                 "(Killed).\n"
                                 "--------------------------------------------------------------------------\n",
                      hydra[] = "\x09\x00"
                                "@P0 5\n@P1 6\n"
                                "===================================================================================\n"
                                "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
                                "=   PID 6 RUNNING AT node7\n=   EXIT CODE: 9\n"
                                "===================================================================================\n"
                                "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n",
                      foreign[] = "\x01\x00"
                                  "codistill: x\ncodistill: y\n\x1eX0\n\x1e"
                                  "fedcba X1\n\x1b]0;name\x07 \xc2\x9b \xff\xfe\n@X\n@S\n@P1\n@P1 \n@X99999999999\n"
                                  "@A4096\n@P4096 1\n@Z\n";
    return fuzz_write_file(folder, "job", job, sizeof job - 1) |
           fuzz_write_file(folder, "killed", killed, sizeof killed - 1) |
           fuzz_write_file(folder, "hydra", hydra, sizeof hydra - 1) |
           fuzz_write_file(folder, "foreign", foreign, sizeof foreign - 1);
}
