/* What killed jobs left in /dev/shm, and messages where that is too small. */
#include "support/folder.h"
#include "support/test.h"

#include "comm/shared_space.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, OLD_S = 3600 };

/** Makes a file of some bytes. @return its descriptor */
static int make(const char *name, time_t age_s)
{
    const struct timespec at = {.tv_sec = time(NULL) - age_s}, times[] = {at, at};
    const int file = open(cod_test_at(name), O_RDWR | O_CREAT, 0600);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, BYTES), 0);
    assert_int_equal(futimens(file, times), 0);
    return file;
}

static bool has(const char *name)
{
    return access(cod_test_at(name), F_OK) == 0;
}

TEST_IN_FOLDER(files_of_dead_jobs_go)
{
    static const char *const dead[] = {"vader_segment.here.0.7a2a0001.0", "osc_rdma.here.7a2a0001.3",
                                       "osc_sm.here.7a2a0001.3.1", "sm_segment.here.0.7a2a0001.1"};
    static const char *const others[] = {"vader_segment.there.0.7a2a0001.0", "vader_segment.hereby.0.1.0",
                                         "vader_segment", "precious.here.0.1.0"};
    for (size_t i = 0; i < sizeof dead / sizeof dead[0]; i++)
        close(make(dead[i], OLD_S));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        close(make(others[i], OLD_S));
    close(make("vader_segment.here.0.1.young", 1));
    assert_int_equal(symlink("precious.here.0.1.0", cod_test_at("vader_segment.here.0.1.link")), 0);
    const int alive = make("vader_segment.here.0.1.alive", OLD_S);
    void *mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, alive, 0);
    assert_true(mapped != MAP_FAILED);
    close(alive);
    if (getuid() == 0) {
        close(make("vader_segment.here.0.1.stranger", OLD_S));
        assert_int_equal(chown(cod_test_at("vader_segment.here.0.1.stranger"), 65534, 65534), 0);
    }
    assert_int_equal(cod_shared_space_sweep(cod_test_at(""), "here.example.org"), 4);
    for (size_t i = 0; i < sizeof dead / sizeof dead[0]; i++)
        assert_false(has(dead[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_true(has(others[i]));
    assert_true(has("vader_segment.here.0.1.young") && has("vader_segment.here.0.1.alive"));
    assert_true(getuid() != 0 || has("vader_segment.here.0.1.stranger"));
    munmap(mapped, BYTES);
    assert_int_equal(cod_shared_space_sweep(cod_test_at(""), "here"), 1);
    assert_int_equal(cod_shared_space_sweep(cod_test_at("absent"), "here"), 0);
}

TEST_IN_FOLDER(a_space_that_is_too_small_is_named)
{
    const cod_status status = cod_fail(COD_ERR_MPI, "no window");
    assert_false(cod_shared_space_explain(status, cod_test_at(""), 1));
    assert_string_equal(cod_error_message(), "no window");
    assert_true(cod_shared_space_explain(status, cod_test_at(""), 1e18));
    cod_test_assert_contains(cod_error_message(), "the ranks of this host share 1e+12 there: make it larger");
    cod_test_assert_contains(cod_error_message(), "--shm-size=2000000000001m");
    cod_test_assert_contains(cod_error_message(), ": no window");
    assert_false(cod_shared_space_explain(status, cod_test_at("absent"), 1e18));
}
