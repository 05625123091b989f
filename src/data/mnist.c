/* MNIST and data sets with the same four files, such as Fashion-MNIST, KMNIST and EMNIST. */
#include "core/hash.h"
#include "data/examples_internal.h"
#include "data/idx_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096, PARTS = 2 };

/** Pictures and labels of one part. */
typedef struct part {
    char images[PATH_BYTES], labels[PATH_BYTES];
    cod_idx image_header, label_header;
} part;

typedef struct mnist {
    part parts[PARTS]; /**< training, test */
    uint64_t key;
} mnist;

/** Finds NAME-idxR-ubyte or NAME.idxR-ubyte, with .gz or without. */
static cod_status find_file(const char *folder, const char *name, int rank, uint64_t *key, char path[PATH_BYTES])
{
    struct stat info;
    for (int i = 0; i < 4; i++) {
        snprintf(path, PATH_BYTES, "%s/%s%cidx%d-ubyte%s", folder, name, i % 2 ? '.' : '-', rank, i < 2 ? ".gz" : "");
        if (stat(path, &info) == 0) {
            const int64_t facts[3] = {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
            *key = cod_hash(facts, sizeof facts, cod_hash(path, strlen(path), *key));
            return COD_OK;
        }
    }
    return cod_fail(COD_ERR_ARGUMENT, "data.path: '%s' holds no '%s-idx%d-ubyte' or '%s-idx%d-ubyte.gz'", folder, name,
                    rank, name, rank);
}

static cod_status find_part(const char *folder, const char *name, uint64_t *key, part *p)
{
    char file[64];
    snprintf(file, sizeof file, "%s-images", name);
    COD_TRY(find_file(folder, file, 3, key, p->images));
    snprintf(file, sizeof file, "%s-labels", name);
    COD_TRY(find_file(folder, file, 1, key, p->labels));
    COD_TRY(cod_idx_probe(p->images, 3, &p->image_header));
    COD_TRY(cod_idx_probe(p->labels, 1, &p->label_header));
    if (p->image_header.sides[0] != p->label_header.sides[0])
        return cod_fail(COD_ERR_FORMAT, "%s: %lld labels (byte 4), but '%s' holds %lld pictures", p->labels,
                        (long long)p->label_header.sides[0], p->images, (long long)p->image_header.sides[0]);
    return COD_OK;
}

/** Finds the files; the two parts' pictures must be of one size. */
static cod_status find(const char *folder, mnist *m)
{
    char absolute[PATH_BYTES];
    if (realpath(folder, absolute) == NULL)
        return cod_fail(COD_ERR_IO, "data.path: '%s': %s", folder, strerror(errno));
    m->key = cod_hash(absolute, strlen(absolute), 0);
    COD_TRY(find_part(folder, "train", &m->key, &m->parts[0]));
    COD_TRY(find_part(folder, "t10k", &m->key, &m->parts[1]));
    const int64_t *train = m->parts[0].image_header.sides, *test = m->parts[1].image_header.sides;
    if (train[1] != test[1] || train[2] != test[2])
        return cod_fail(COD_ERR_FORMAT, "%s: pictures of %lldx%lld (bytes 8 to 15), but '%s' has %lldx%lld",
                        m->parts[1].images, (long long)test[1], (long long)test[2], m->parts[0].images,
                        (long long)train[1], (long long)train[2]);
    return COD_OK;
}

/** Reads both parts' labels. @param[out] labels  [count] */
static cod_status read_labels(const mnist *m, uint8_t *labels, size_t *classes)
{
    const size_t train = m->parts[0].label_header.bytes, test = m->parts[1].label_header.bytes;
    COD_TRY(cod_idx_read(m->parts[0].labels, 1, &m->parts[0].label_header, labels));
    COD_TRY(cod_idx_read(m->parts[1].labels, 1, &m->parts[1].label_header, labels + train));
    *classes = 0;
    for (size_t i = 0; i < train; i++)
        *classes = labels[i] >= *classes ? labels[i] + 1u : *classes;
    for (size_t i = 0; i < test; i++)
        if (labels[train + i] >= *classes)
            return cod_fail(COD_ERR_FORMAT, "%s: byte %zu: class %d, but '%s' has 0 to %zu", m->parts[1].labels, 8 + i,
                            labels[train + i], m->parts[0].labels, *classes - 1);
    return COD_OK;
}

static cod_status take_labels(const mnist *m, cod_examples *out)
{
    const size_t count = m->parts[0].label_header.bytes + m->parts[1].label_header.bytes;
    size_t classes = 0;
    uint8_t *labels = malloc(count);
    COD_REQUIRE_MEMORY(labels);
    cod_status status = read_labels(m, labels, &classes);
    COD_THEN(status, cod_examples_reserve(out, count, classes));
    for (size_t i = 0; status == COD_OK && i < count; i++)
        out->labels[i] = labels[i];
    free(labels);
    return status;
}

/** One process of the node unpacks the pictures. */
static cod_status take_pictures(const mnist *m, bool report, cod_examples *out)
{
    const size_t train = m->parts[0].image_header.bytes, test = m->parts[1].image_header.bytes;
    if (!cod_block_open(&out->block, m->key, report)) {
        COD_TRY(cod_block_reserve(&out->block, train + test, report));
        COD_TRY(cod_idx_read(m->parts[0].images, 3, &m->parts[0].image_header, out->block.base));
        COD_TRY(cod_idx_read(m->parts[1].images, 3, &m->parts[1].image_header, out->block.base + train));
        COD_TRY(cod_block_complete(&out->block));
    }
    out->bytes = out->block.base;
    out->held = out->count;
    return COD_OK;
}

cod_status cod_mnist_find(const char *folder, cod_file_list *files)
{
    static const char *const names[4] = {"train-images", "train-labels", "t10k-images", "t10k-labels"};
    char path[PATH_BYTES];
    uint64_t key = 0;
    for (int i = 0; i < 4; i++) {
        COD_TRY(find_file(folder, names[i], i % 2 == 0 ? 3 : 1, &key, path));
        COD_TRY(cod_files_find(files, path, 0));
    }
    return COD_OK;
}

cod_status cod_mnist_read(const cod_data_options *options, bool report, cod_examples *out)
{
    mnist m = {0};
    COD_TRY(find(options->path.items[0], &m));
    COD_TRY(take_labels(&m, out));
    const int64_t *sides = m.parts[0].image_header.sides;
    out->val_begin = out->test_begin = m.parts[0].label_header.bytes;
    out->height = sides[1];
    out->width = sides[2];
    out->channels = 1;
    return take_pictures(&m, report, out);
}
