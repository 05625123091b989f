/* Arrays that ranks of a group save in parts: together each is saved once, and every rank has all of it again. */
#include "comm/job.h"
#include "support/folder.h"

#include "train/checkpoint_parts.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 100001 };

static char folder[256];

static unsigned char byte_of(size_t i)
{
    return (unsigned char)(i * 31 + i / 251 + 7);
}

/** What this rank saves of an array of so many bytes; in all of it where `whole`, as earlier versions did. */
static void save(size_t bytes, bool whole)
{
    static unsigned char data[MOST_BYTES];
    cod_checkpoint checkpoint = {0};
    char part[32];
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_of(i);
    check_ok(whole ? cod_checkpoint_add_bytes(&checkpoint, "array", data, bytes)
                   : cod_checkpoint_add_part(&checkpoint, cod_comm_world(job), "array", data, bytes));
    double saved = (double)cod_st_count(&checkpoint.tensors[0]);
    snprintf(part, sizeof part, "rank-%d", cod_comm_rank(job));
    check_ok(cod_checkpoint_write(&checkpoint, folder, 1, part));
    cod_checkpoint_clear(&checkpoint);
    check_ok(cod_group_reduce(cod_comm_world(job), &saved, 1, COD_REDUCE_SUM));
    check_all(saved == (double)bytes * (whole ? cod_comm_size(job) : 1));
}

/** @return what reading this rank's part gave */
static cod_status read_back(size_t bytes, unsigned char *data)
{
    cod_st_file *file = NULL;
    char part[32];
    snprintf(part, sizeof part, "rank-%d", cod_comm_rank(job));
    memset(data, 0, bytes);
    COD_TRY(cod_checkpoint_open(folder, 1, part, &file));
    const cod_status status = cod_checkpoint_read_part(file, cod_comm_world(job), "array", data, bytes);
    cod_st_close(file);
    return status;
}

TEST(parts_make_the_whole)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, MOST_BYTES};
    static unsigned char data[MOST_BYTES];
    for (int whole = 0; whole < 2; whole++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            save(sizes[k], whole != 0);
            check_ok(read_back(sizes[k], data));
            check_ok(cod_group_complete(cod_comm_world(job), data, sizes[k]));
            bool same = true;
            for (size_t i = 0; i < sizes[k]; i++)
                same = same && data[i] == byte_of(i);
            check_all(same);
        }
}

TEST(another_size_is_refused)
{
    static unsigned char data[MOST_BYTES];
    save(6400, false);
    check_all(job_failed(read_back(64000, data), COD_ERR_FORMAT, "it is of another model or set-up"));
}

static int set_up(void **state)
{
    job_setup(state);
    if (cod_comm_rank(job) == 0)
        cod_test_folder_make(state);
    snprintf(folder, sizeof folder, "%s", cod_comm_rank(job) == 0 ? cod_test_at("checkpoints") : "");
    return cod_group_broadcast(cod_comm_world(job), folder, sizeof folder, 0) == COD_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    if (cod_group_barrier(cod_comm_world(job)) != COD_OK)
        return 1;
    if (cod_comm_rank(job) == 0)
        cod_test_folder_remove(state);
    return job_teardown(state);
}

TEST_GROUP(set_up, tear_down)
