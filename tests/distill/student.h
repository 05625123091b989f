/**
 * @file
 * A student whose session is made of a net's parts, and its teachers, for tests.
 */
#ifndef COD_TESTS_DISTILL_STUDENT_H
#define COD_TESTS_DISTILL_STUDENT_H

#include "distill/teacher.h"
#include "nn/net.h"

/** A small student with batch normalisation, compiled as the codistill strategy compiles it. */
typedef struct student {
    cod_arena arena;
    cod_model model;
    cod_run_config config;
    cod_train_session session; /**< of the net's parts */
    test_net net;
} student;

#define SMALL "blocks=1 channels=8 scale=2 head_kernel=3 tail_kernel=3"
#define LARGE "blocks=2 channels=12 scale=2 head_kernel=3 tail_kernel=5"

#define CLASSES "height=6 width=6 channels=3 classes=5 hidden=7"

/** The architecture is one of these or another of its kind; the mini-batch has two pictures. */
void student_open(student *s, const cod_backend *backend, const char *architecture);
void student_close(student *s);

/** What the student trains, as a peer. */
cod_group_config architecture_of(const student *s);

/** Predicts, and waits for the loss. */
COD_MUST_CHECK cod_status run_teacher(cod_teacher *teacher, float *loss);
/**
 * Loads values of the host from its memory or, where the backend has memory of its own, every second time from there.
 */
COD_MUST_CHECK cod_status load_teacher(cod_teacher *teacher, const cod_weights *weights, const float *values);

/** Zeroed; free(). */
float *floats_new(size_t count);
/** Values of the host as a buffer. */
cod_buffer held(const float *values, size_t count);
/** A copy of values of the host in the device's memory; NULL of NULL. */
cod_buffer *there(const cod_weights *weights, const float *values, size_t count);

#endif
