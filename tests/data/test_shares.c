/* What placement says of classes beforehand, against what each group then holds. */
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

static void shares_of_classes_are_told(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares_of_classes_are_told)};
    return cmocka_run_group_tests_name("shares of classes", tests, NULL, NULL);
}
