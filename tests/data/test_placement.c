/* Which group holds what, and what placement says of its classes beforehand. */
#include "data/labelled.h"
#include "data/pictures.h"

#include <math.h>

enum { CLASSES = 4 };

static cod_data_options synthetic(const char *count)
{
    cod_data_options options = options_of("");
    set_option(&options, "kind", "synthetic");
    set_option(&options, "synthetic_shape", "1,1,2");
    set_option(&options, "synthetic_classes", "4");
    set_option(&options, "synthetic_count", count);
    return options;
}

static cod_labelled *open_data(const cod_data_options *options, const cod_dataset_place *place)
{
    cod_labelled *labelled;
    assert_ok(cod_labelled_open(options, place, &labelled));
    return labelled;
}

TEST(shares_of_classes_are_told)
{
    enum { GROUPS = 3 };
    cod_data_options options = synthetic("60");
    cod_dataset_place place = {.seed = 7, .groups = GROUPS};
    double counts[GROUPS][CLASSES] = {{0}}, of_class[CLASSES] = {0}, of_group[GROUPS] = {0};
    float priors[GROUPS][CLASSES];
    set_option(&options, "placement", "dirichlet");
    set_option(&options, "items_per_group", "16");
    for (place.group = 0; place.group < GROUPS; place.group++) {
        cod_labelled *data = open_data(&options, &place);
        for (size_t i = 0; i < cod_labelled_size(data, COD_SPLIT_TRAIN); i++)
            counts[place.group][cod_labelled_class(data, COD_SPLIT_TRAIN, i)]++;
        for (int k = 0; k < CLASSES; k++) {
            of_group[place.group] += counts[place.group][k];
            of_class[k] += counts[place.group][k];
        }
        assert_true(of_group[place.group] >= 1 && of_group[place.group] <= 16);
        assert_ok(cod_labelled_priors(data, &options, &place, priors[0]));
        cod_labelled_close(data);
    }
    const double all = of_group[0] + of_group[1] + of_group[2];
    int unseen = 0;
    for (int g = 0; g < GROUPS; g++)
        for (int k = 0; k < CLASSES; k++) {
            const double share = of_class[k] / all, own = (counts[g][k] + share) / (of_group[g] + 1);
            assert_true(fabs((double)priors[g][k] - (share > 0 ? log(own / share) : 0)) < 1e-6);
            unseen += share > 0 && counts[g][k] == 0;
        }
    assert_true(unseen > 0);
    /* What all share, or have equal parts of, needs nothing, to the bit. */
    cod_data_options equal = synthetic("600");
    for (int p = 0; p < 2; p++) {
        set_option(&equal, "placement", p == 0 ? "shared" : "disjoint");
        set_option(&equal, "items_per_group", p == 0 ? "17" : "0");
        cod_labelled *data = open_data(&equal, &(cod_dataset_place){.seed = 7, .groups = GROUPS});
        assert_int_equal(cod_labelled_classes(data), CLASSES);
        assert_ok(cod_labelled_priors(data, &equal, &place, priors[0]));
        for (int i = 0; i < GROUPS * CLASSES; i++)
            assert_true(priors[i / CLASSES][i % CLASSES] == 0);
        cod_labelled_close(data);
    }
}

/** Numbers of the training examples held at `place`, as bits. @return how many */
static size_t numbers_at(const cod_data_options *options, const cod_dataset_place *place, uint64_t *bits)
{
    cod_labelled *data = open_data(options, place);
    const size_t count = cod_labelled_size(data, COD_SPLIT_TRAIN);
    *bits = 0;
    for (size_t i = 0; i < count; i++)
        *bits |= (uint64_t)1 << cod_labelled_number(data, COD_SPLIT_TRAIN, i);
    assert_int_equal(__builtin_popcountll(*bits), count);
    cod_labelled_close(data);
    return count;
}

static size_t numbers_of(const cod_data_options *options, int group, int groups, uint64_t *bits)
{
    return numbers_at(options, &(cod_dataset_place){.seed = 7, .group = group, .groups = groups}, bits);
}

TEST(placement_divides_all_and_once)
{
    enum { GROUPS = 4 };
    static const char *const placements[] = {"disjoint", "dirichlet"};
    cod_data_options options = synthetic("60");
    uint64_t all, again;
    assert_int_equal(numbers_of(&options, 0, 1, &all), 54);
    for (int p = 0; p < 2; p++) {
        uint64_t together = 0;
        set_option(&options, "placement", placements[p]);
        set_option(&options, "alpha", "1");
        for (int g = 0; g < GROUPS; g++) {
            uint64_t ours;
            const size_t count = numbers_of(&options, g, GROUPS, &ours);
            if (p == 0)
                assert_in_range(count, 13, 14);
            assert_int_equal(numbers_of(&options, g, GROUPS, &again), count);
            assert_true(ours == again && (ours & together) == 0);
            together |= ours;
        }
        assert_true(together == all);
    }
    /* Limits keep a part of the group's own, and the same of what is shared. */
    uint64_t first, second;
    set_option(&options, "items_per_group", "5");
    set_option(&options, "placement", "shared");
    assert_int_equal(numbers_of(&options, 0, GROUPS, &first), 5);
    assert_int_equal(numbers_of(&options, 1, GROUPS, &second), 5);
    assert_true(first == second && (first & ~all) == 0);
    set_option(&options, "placement", "disjoint");
    assert_int_equal(numbers_of(&options, 0, GROUPS, &first), 5);
    assert_int_equal(numbers_of(&options, 1, GROUPS, &second), 5);
    assert_int_equal(first & second, 0);
    set_option(&options, "items_per_group", "14");
    cod_labelled *data;
    assert_fails(COD_ERR_ARGUMENT, "14 are wanted, but group 2 has 13 of the 54",
                 cod_labelled_open(&options, &(cod_dataset_place){.seed = 7, .group = 2, .groups = GROUPS}, &data));
}

TEST(one_group_holds_what_several_do_together)
{
    enum { GROUPS = 4 };
    static const char *const placements[] = {"shared", "disjoint", "dirichlet"};
    cod_data_options options = synthetic("60");
    const cod_dataset_place one = {.seed = 7, .groups = GROUPS, .all = true};
    uint64_t all, held, ours;
    assert_int_equal(numbers_of(&options, 0, 1, &all), 54);
    for (int p = 0; p < 3; p++) {
        uint64_t together = 0;
        set_option(&options, "placement", placements[p]);
        set_option(&options, "items_per_group", "0");
        assert_int_equal(numbers_at(&options, &one, &held), 54);
        set_option(&options, "items_per_group", "5");
        const size_t count = numbers_at(&options, &one, &held);
        for (int g = 0; g < GROUPS; g++) {
            numbers_of(&options, g, GROUPS, &ours);
            together |= ours;
        }
        assert_true(held == together && (held & ~all) == 0);
        if (p < 2)
            assert_int_equal(count, p == 0 ? 5 : 5 * GROUPS);
    }
    /* Too few to give each group some of its own are enough for one. */
    set_option(&options, "placement", "disjoint");
    set_option(&options, "items_per_group", "0");
    assert_int_equal(numbers_at(&options, &(cod_dataset_place){.seed = 7, .groups = 60, .all = true}, &held), 54);
}

/** The largest share that one class has of a group's examples, in the mean over groups. */
static double purity(const cod_data_options *options, int groups)
{
    double sum = 0;
    for (int g = 0; g < groups; g++) {
        cod_labelled *data = open_data(options, &(cod_dataset_place){.seed = 5, .group = g, .groups = groups});
        size_t of[10] = {0}, most = 0;
        const size_t count = cod_labelled_size(data, COD_SPLIT_TRAIN);
        for (size_t i = 0; i < count; i++)
            of[cod_labelled_class(data, COD_SPLIT_TRAIN, i)]++;
        for (int k = 0; k < 10; k++)
            most = of[k] > most ? of[k] : most;
        sum += (double)most / (double)count / groups;
        cod_labelled_close(data);
    }
    return sum;
}

TEST(a_small_alpha_skews_classes)
{
    cod_data_options options = synthetic("4000");
    set_option(&options, "synthetic_classes", "10");
    set_option(&options, "placement", "dirichlet");
    set_option(&options, "alpha", "0.1");
    const double skewed = purity(&options, 4);
    set_option(&options, "alpha", "1000");
    const double even = purity(&options, 4);
    if (skewed < 0.25 || even > 0.13)
        fail_msg("a class has %.2f of a group at alpha 0.1, %.2f at 1000 (seed 5)", skewed, even);
    set_option(&options, "synthetic_count", "12");
    set_option(&options, "alpha", "0.001");
    cod_labelled *data;
    cod_status status = COD_OK;
    for (int g = 0; g < 8 && status == COD_OK; g++) {
        status = cod_labelled_open(&options, &(cod_dataset_place){.seed = 5, .group = g, .groups = 8}, &data);
        cod_labelled_close(data);
    }
    assert_int_equal(status, COD_ERR_ARGUMENT);
    cod_test_assert_contains(cod_error_message(), "raise data.alpha");
}
