#include "core/mutant.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int cod_mutant_chosen;
unsigned char cod_mutant_reached[COD_MUTANTS];

static const char *folder;

/* Before main, so that threads only read. */
__attribute__((constructor)) static void read_environment(void)
{
    const char *chosen = getenv("COD_MUTANT");
    cod_mutant_chosen = chosen != NULL ? atoi(chosen) : 0;
    folder = getenv("COD_MUTANTS_REACHED");
}

void cod_mutant_reach(int number)
{
    if (__atomic_exchange_n(&cod_mutant_reached[number], 1, __ATOMIC_RELAXED) || folder == NULL)
        return;
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", folder, number);
    const int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    if (file >= 0)
        close(file);
}
