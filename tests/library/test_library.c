/* The shared library as its users see it: groups are handles of one process, which meet in a folder. */
#include "support/folder.h"
#include "support/test.h"

#include <codistill.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GROUPS = 2, WEIGHTS = 6, STATES = 2, PERIOD = 4 };

__extension__ typedef _Float16 half;

/** A group's tensors: weights in three types, and a statistic. */
typedef struct group {
    codistill *peers;
    float wide[WEIGHTS], state[STATES];
    uint16_t brain[WEIGHTS];
    half narrow[WEIGHTS];
    int64_t step;
    int arrived, merged;
    atomic_bool stop; /**< for a reader */
} group;

static float widened(uint16_t brain)
{
    const uint32_t bits = (uint32_t)brain << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/** All weights have one value, which every type holds exactly. */
static void fill(group *g, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < WEIGHTS; i++) {
        g->wide[i] = value;
        g->brain[i] = (uint16_t)(bits >> 16);
        g->narrow[i] = (half)value;
    }
    for (int i = 0; i < STATES; i++)
        g->state[i] = 10 * value;
}

static void list(group *g, codistill_tensor out[4])
{
    const codistill_tensor tensors[] = {
        {.name = "wide", .type = CODISTILL_F32, .rank = 2, .shape = {2, 3}, .data = g->wide},
        {.name = "mean", .type = CODISTILL_F32, .rank = 1, .shape = {STATES}, .data = g->state, .is_state = 1},
        {.name = "brain", .type = CODISTILL_BF16, .rank = 1, .shape = {WEIGHTS}, .data = g->brain},
        {.name = "half", .type = CODISTILL_F16, .rank = 1, .shape = {WEIGHTS}, .data = g->narrow}};
    memcpy(out, tensors, sizeof tensors);
}

static codistill_status join(group *g, int number, const char *more)
{
    char directory[4096], own[32];
    snprintf(directory, sizeof directory, "directory=%s", cod_test_at(""));
    snprintf(own, sizeof own, "group=%d", number);
    const char *settings[] = {directory, own, "groups=2", "period=4", "codec=f32", "min_interval_ms=0", more};
    codistill_tensor tensors[4];
    list(g, tensors);
    return codistill_open(settings, more != NULL ? 7 : 6, tensors, 4, &g->peers);
}

static void assert_good(const group *g, codistill_status status)
{
    if (status != CODISTILL_OK)
        fail_msg("status %d: %s", (int)status, codistill_error(g->peers));
}

static void assert_bad(const group *g, codistill_status status, codistill_status wanted, const char *part)
{
    assert_int_equal(status, wanted);
    cod_test_assert_contains(codistill_error(g->peers), part);
}

static void pause_ms(int count)
{
    nanosleep(&(struct timespec){.tv_nsec = count * 1000000L}, NULL);
}

/** One step of each, at the pace of their threads and of storage. */
static void step_all(group *groups, int count)
{
    for (int i = 0; i < count; i++) {
        int arrived;
        assert_good(&groups[i], codistill_step(groups[i].peers, ++groups[i].step, &arrived));
        groups[i].arrived += arrived;
    }
    pause_ms(1);
}

static void close_all(group *groups, int count)
{
    for (int i = 0; i < count; i++) {
        assert_int_equal(codistill_close(groups[i].peers), CODISTILL_OK);
        groups[i].peers = NULL;
    }
}

TEST_IN_FOLDER(groups_merge_each_others_weights)
{
    group groups[GROUPS] = {{0}};
    for (int i = 0; i < GROUPS; i++) {
        fill(&groups[i], i == 0 ? 1 : 3);
        assert_good(&groups[i], join(&groups[i], i, "merge_alpha=1"));
        assert_int_equal(codistill_peer_count(groups[i].peers), 1);
    }
    /* Nothing trains, so that own publications are the weights: half of the difference is merged, exactly. */
    while (codistill_mergeable(groups[0].peers) == 0)
        step_all(groups, GROUPS);
    assert_good(&groups[0], codistill_merge(groups[0].peers, &groups[0].merged));
    assert_int_equal(groups[0].merged, 1);
    assert_int_equal(codistill_mergeable(groups[0].peers), 0);
    for (int i = 0; i < WEIGHTS; i++) {
        assert_true(groups[0].wide[i] == 2 && groups[1].wide[i] == 3);
        assert_true(widened(groups[0].brain[i]) == 2 && (float)groups[0].narrow[i] == 2);
    }
    for (int i = 0; i < STATES; i++)
        assert_true(groups[0].state[i] == 20 && groups[1].state[i] == 30);
    codistill_peer peer;
    assert_good(&groups[0], codistill_read_peer(groups[0].peers, 0, &peer));
    assert_int_equal(peer.group, 1);
    assert_int_equal(peer.merged, 1);
    assert_true(peer.pulled >= 1 && peer.step >= PERIOD && peer.step % PERIOD == 0 && peer.bytes > 0);
    codistill_figures figures;
    assert_good(&groups[0], codistill_read_figures(groups[0].peers, &figures));
    assert_true(figures.published >= 1 && figures.pulled >= 1 && figures.memory_bytes > 0);
    close_all(groups, GROUPS);
}

TEST_IN_FOLDER(a_peers_weights_are_a_teacher)
{
    group groups[GROUPS] = {{0}};
    float wide[WEIGHTS] = {0}, mean[STATES] = {0};
    uint16_t brain[WEIGHTS] = {0};
    void *targets[] = {wide, mean, brain, NULL};
    int64_t step = -1;
    for (int i = 0; i < GROUPS; i++) {
        fill(&groups[i], i == 0 ? 1 : 3);
        assert_good(&groups[i], join(&groups[i], i, "merge=none"));
    }
    assert_good(&groups[0], codistill_peer_weights(groups[0].peers, 0, targets, &step));
    assert_int_equal(step, 0);
    assert_true(wide[0] == 0);
    while (groups[0].arrived == 0)
        step_all(groups, GROUPS);
    assert_good(&groups[0], codistill_peer_weights(groups[0].peers, 0, targets, &step));
    assert_true(step > 0 && wide[WEIGHTS - 1] == 3 && widened(brain[0]) == 3 && mean[1] == 30);
    assert_good(&groups[0], codistill_merge(groups[0].peers, &groups[0].merged));
    assert_int_equal(groups[0].merged, 0);
    assert_true(groups[0].wide[0] == 1);
    close_all(groups, GROUPS);
}

TEST_IN_FOLDER(data_may_move)
{
    group groups[GROUPS] = {{0}};
    float moved[WEIGHTS] = {8, 8, 8, 8, 8, 8};
    for (int i = 0; i < GROUPS; i++) {
        fill(&groups[i], 1);
        assert_good(&groups[i], join(&groups[i], i, "merge=average"));
    }
    assert_good(&groups[1], codistill_set_data(groups[1].peers, 0, moved));
    while (groups[0].merged == 0) {
        step_all(groups, GROUPS);
        assert_good(&groups[0], codistill_merge(groups[0].peers, &groups[0].merged));
    }
    assert_true(groups[0].wide[3] == 4.5f && (float)groups[0].narrow[3] == 1);
    assert_bad(&groups[0], codistill_set_data(groups[0].peers, 4, moved), CODISTILL_ERR_ARGUMENT, "there are 4");
    assert_bad(&groups[0], codistill_set_data(groups[0].peers, 0, NULL), CODISTILL_ERR_ARGUMENT, "'wide' has no data");
    close_all(groups, GROUPS);
}

/** A process that is killed comes back with its state, and merges nothing twice. */
TEST_IN_FOLDER(a_restarted_group_goes_on)
{
    group groups[GROUPS] = {{0}};
    char path[4096];
    snprintf(path, sizeof path, "%s", cod_test_at("state"));
    for (int i = 0; i < GROUPS; i++) {
        fill(&groups[i], i == 0 ? 1 : 3);
        assert_good(&groups[i], join(&groups[i], i, "merge_alpha=1"));
    }
    while (groups[0].merged == 0) {
        step_all(groups, GROUPS);
        assert_good(&groups[0], codistill_merge(groups[0].peers, &groups[0].merged));
    }
    codistill_peer before, after;
    assert_good(&groups[0], codistill_save(groups[0].peers, path));
    assert_good(&groups[0], codistill_read_peer(groups[0].peers, 0, &before));
    assert_int_equal(codistill_close(groups[0].peers), CODISTILL_OK);

    assert_good(&groups[0], join(&groups[0], 0, "merge_alpha=1"));
    assert_good(&groups[0], codistill_load(groups[0].peers, path));
    assert_good(&groups[0], codistill_read_peer(groups[0].peers, 0, &after));
    assert_int_equal(after.step, before.step);
    assert_good(&groups[0], codistill_merge(groups[0].peers, &groups[0].merged));
    assert_int_equal(groups[0].merged, 0);
    assert_bad(&groups[0], codistill_step(groups[0].peers, groups[0].step, NULL), CODISTILL_ERR_ARGUMENT,
               "does not come after");
    fill(&groups[1], 5);
    while (groups[0].merged == 0) {
        step_all(groups, GROUPS);
        assert_good(&groups[0], codistill_merge(groups[0].peers, &groups[0].merged));
    }
    assert_true(groups[0].wide[0] > 2);
    assert_bad(&groups[0], codistill_load(groups[0].peers, path), CODISTILL_ERR_ARGUMENT, "before the first step");
    close_all(groups, GROUPS);
}

TEST_IN_FOLDER(a_state_of_others_is_refused)
{
    group g = {0}, other = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s", cod_test_at("state"));
    fill(&g, 1);
    assert_good(&g, join(&g, 0, NULL));
    assert_good(&g, codistill_save(g.peers, path));
    const char *settings[] = {"group=0", "groups=2", "period=4", NULL};
    char directory[4096];
    snprintf(directory, sizeof directory, "directory=%s", cod_test_at("elsewhere"));
    settings[3] = directory;
    codistill_tensor tensors[4];
    list(&g, tensors);
    assert_good(&other, codistill_open(settings, 4, tensors, 1, &other.peers));
    assert_bad(&other, codistill_load(other.peers, path), CODISTILL_ERR_FORMAT, "another number of values");
    assert_bad(&other, codistill_load(other.peers, cod_test_at("none")), CODISTILL_ERR_IO, "none");
    assert_int_equal(truncate(path, 100), 0);
    assert_bad(&other, codistill_load(other.peers, path), CODISTILL_ERR_FORMAT, "state");
    assert_int_equal(codistill_close(other.peers), CODISTILL_OK);
    close_all(&g, 1);
}

/** A group was started twice: the later one goes on. */
TEST_IN_FOLDER(of_two_with_one_number_the_later_goes_on)
{
    group first = {0}, second = {0};
    codistill_status status = CODISTILL_OK;
    fill(&first, 1);
    fill(&second, 1);
    assert_good(&first, join(&first, 0, NULL));
    pause_ms(5); /* their clocks count milliseconds */
    assert_good(&second, join(&second, 0, NULL));
    for (int published = 0; published < 2;) {
        codistill_figures figures;
        step_all(&second, 1);
        assert_good(&second, codistill_read_figures(second.peers, &figures));
        published = (int)figures.published;
    }
    while (status == CODISTILL_OK) {
        status = codistill_step(first.peers, ++first.step, NULL);
        pause_ms(1);
    }
    assert_bad(&first, status, CODISTILL_ERR_IO, "group 0");
    step_all(&second, 1);
    codistill_close(first.peers);
    close_all(&second, 1);
}

/** Storage that goes away costs publications, not steps, and they come again with it. */
TEST_IN_FOLDER(publications_without_storage_are_counted)
{
    group g = {0};
    codistill_figures figures = {0};
    char folder[4096], aside[4096];
    snprintf(folder, sizeof folder, "%s", cod_test_at("group-0"));
    snprintf(aside, sizeof aside, "%s", cod_test_at("aside"));
    fill(&g, 1);
    assert_good(&g, join(&g, 0, NULL));
    while (figures.published == 0) {
        step_all(&g, 1);
        assert_good(&g, codistill_read_figures(g.peers, &figures));
    }
    assert_int_equal(rename(folder, aside), 0);
    FILE *file = fopen(folder, "w"); /* in the place of the folder */
    assert_non_null(file);
    fclose(file);
    for (const uint64_t before = figures.skipped; figures.skipped < before + 3;) {
        step_all(&g, 1);
        assert_good(&g, codistill_read_figures(g.peers, &figures));
    }
    assert_int_equal(remove(folder), 0);
    assert_int_equal(rename(aside, folder), 0);
    char header[5000];
    struct stat first, now;
    snprintf(header, sizeof header, "%s/shard-0/header", folder);
    assert_int_equal(stat(header, &first), 0);
    do {
        step_all(&g, 1);
    } while (stat(header, &now) != 0 || now.st_ino == first.st_ino);
    close_all(&g, 1);
}

/** A peer with other tensors is left alone. */
TEST_IN_FOLDER(peers_with_other_tensors_are_rejected)
{
    group groups[GROUPS] = {{0}};
    codistill_peer peer = {0};
    char directory[4096];
    codistill_tensor tensors[4];
    fill(&groups[0], 1);
    assert_good(&groups[0], join(&groups[0], 0, NULL));
    snprintf(directory, sizeof directory, "directory=%s", cod_test_at(""));
    const char *settings[] = {directory, "group=1", "groups=2", "period=4", "codec=f32", "min_interval_ms=0"};
    list(&groups[1], tensors);
    assert_good(&groups[1], codistill_open(settings, 6, tensors, 2, &groups[1].peers));
    while (peer.rejected == 0) {
        step_all(groups, GROUPS);
        assert_good(&groups[0], codistill_read_peer(groups[0].peers, 0, &peer));
    }
    assert_int_equal(peer.pulled, 0);
    assert_int_equal(peer.step, 0);
    close_all(groups, GROUPS);
}

/** Reads all that can be read, until the group says stop. */
static void *read_on(void *context)
{
    group *g = context;
    while (!atomic_load(&g->stop)) {
        codistill_figures figures;
        codistill_peer peer;
        float wide[WEIGHTS];
        void *targets[] = {wide, NULL, NULL, NULL};
        int64_t step;
        if (codistill_read_figures(g->peers, &figures) != CODISTILL_OK ||
            codistill_read_peer(g->peers, 0, &peer) != CODISTILL_OK ||
            codistill_peer_weights(g->peers, 0, targets, &step) != CODISTILL_OK)
            return g;
        pause_ms(1); /* a lock is not fair: others get their turn */
    }
    return NULL;
}

/** Under the thread sanitizer, above all. */
TEST_IN_FOLDER(threads_share_a_handle)
{
    group groups[GROUPS] = {{0}};
    pthread_t reader;
    void *failed;
    for (int i = 0; i < GROUPS; i++) {
        fill(&groups[i], i == 0 ? 1 : 3);
        assert_good(&groups[i], join(&groups[i], i, NULL));
    }
    assert_int_equal(pthread_create(&reader, NULL, read_on, &groups[0]), 0);
    for (int merged = 0, now = 0; merged < 3; merged += now) {
        step_all(groups, GROUPS);
        assert_good(&groups[0], codistill_merge(groups[0].peers, &now));
    }
    atomic_store(&groups[0].stop, true);
    assert_int_equal(pthread_join(reader, &failed), 0);
    assert_null(failed);
    close_all(groups, GROUPS);
}

TEST_IN_FOLDER(a_forked_process_is_refused)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* its own locks do not survive the fork of a process that has threads */
#endif
    group g = {0};
    fill(&g, 1);
    assert_good(&g, join(&g, 0, NULL));
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = codistill_step(g.peers, 1, NULL) == CODISTILL_ERR_ARGUMENT &&
                             strstr(codistill_error(g.peers), "fork") != NULL;
        _exit(refused && codistill_close(g.peers) == CODISTILL_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    step_all(&g, 1);
    close_all(&g, 1);
}

TEST_IN_FOLDER(bad_settings_are_named)
{
    static const struct {
        const char *setting, *part;
    } wrong[] = {
        {"perod=10", "unknown setting 'perod'; did you mean 'period'?"},
        {"zzz=1", "there are: group, groups, name, period"},
        {"period", "'period' is no key=value"},
        {"=1", "no key=value"},
        {"period=0", "setting period: '0' is not a whole number from 1"},
        {"groups=1", "setting groups"},
        {"group=2", "2 is not one of 2 groups, 0 to 1"},
        {"directory=", "setting directory is missing"},
        {"transport=rma", "rma needs MPI"},
        {"deterministic=true", "unknown setting 'deterministic'"},
        {"exchange.codec=zip", "setting exchange.codec: 'zip' is not one of"},
        {"fragments=3", "setting exchange.fragments: 3 is no divisor of exchange.period, 4"},
        {"peers=random(2)", "draws from 1 other group"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        group g = {0};
        fill(&g, 1);
        assert_bad(&g, join(&g, 0, wrong[i].setting), CODISTILL_ERR_ARGUMENT, wrong[i].part);
        assert_bad(&g, codistill_step(g.peers, 1, NULL), CODISTILL_ERR_ARGUMENT, "was not opened");
        codistill_close(g.peers);
    }
}

TEST_IN_FOLDER(bad_tensors_are_named)
{
    float values[4] = {0};
    const codistill_tensor good = {.name = "w", .type = CODISTILL_F32, .rank = 1, .shape = {4}, .data = values};
    codistill_tensor nameless = good, empty = good, typeless = good, negative = good, deep = good, missing = good;
    nameless.name = NULL;
    empty.shape[0] = 0;
    typeless.type = (codistill_type)9;
    negative.shape[0] = -4;
    deep.rank = 9;
    missing.data = NULL;
    const struct {
        codistill_tensor tensors[2];
        size_t count;
        const char *part;
    } wrong[] = {{{good}, 0, "no tensors"},
                 {{good, good}, 2, "two tensors are called 'w'"},
                 {{nameless}, 1, "tensor 0 has no name"},
                 {{empty}, 1, "have no values"},
                 {{typeless}, 1, "type 9 is none of"},
                 {{negative}, 1, "its shape has -4"},
                 {{deep}, 1, "a rank of 9"},
                 {{missing}, 1, "'w' has no data"}};
    const char *settings[] = {"group=0", "groups=2", NULL};
    char directory[4096];
    snprintf(directory, sizeof directory, "directory=%s", cod_test_at(""));
    settings[2] = directory;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        group g = {0};
        assert_bad(&g, codistill_open(settings, 3, wrong[i].tensors, wrong[i].count, &g.peers), CODISTILL_ERR_ARGUMENT,
                   wrong[i].part);
        codistill_close(g.peers);
    }
    assert_int_equal(codistill_close(NULL), CODISTILL_OK);
    assert_true(strlen(codistill_version()) > 0);
}
