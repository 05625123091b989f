/*
 * One of several processes that share what they learn: for g in 0 1 2; do ./exchange $g 3 folder & done; wait. Its
 * "training" moves all weights toward its own number; what the others have learnt is merged. Nobody waits for anybody.
 */
#include <codistill.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WEIGHTS = 4096, STEPS = 300 };
static float weights[WEIGHTS];

int main(int argc, char **argv)
{
    char group[32], groups[32], directory[1024];
    const char *settings[] = {group, groups, directory, "period=10"};
    const codistill_tensor tensor = {"weights", CODISTILL_F32, 1, {WEIGHTS}, weights, 0};
    const int number = argc > 1 ? atoi(argv[1]) : 0;
    int merged = 0, now = 0;
    codistill *peers = NULL;
    snprintf(group, sizeof group, "group=%s", argc > 1 ? argv[1] : "");
    snprintf(groups, sizeof groups, "groups=%s", argc > 2 ? argv[2] : "");
    snprintf(directory, sizeof directory, "directory=%s", argc > 3 ? argv[3] : "");
    int failed = codistill_open(settings, 4, &tensor, 1, &peers) != CODISTILL_OK;
    for (int step = 1; !failed && (step <= STEPS || merged < codistill_peer_count(peers)); step++) {
        for (int i = 0; i < WEIGHTS; i++)
            weights[i] += 0.01f * ((float)number - weights[i]);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* it takes a while */
        failed = codistill_step(peers, step, NULL) != CODISTILL_OK || codistill_merge(peers, &now) != CODISTILL_OK;
        merged += now;
    }
    if (failed)
        fprintf(stderr, "exchange GROUP GROUPS FOLDER: %s\n", codistill_error(peers));
    else
        printf("group %d: alone its weights would be %d, together they are %.3f\n", number, number, (double)weights[0]);
    codistill_close(peers);
    return failed;
}
