/**
 * @file
 * The parts of `codistill bench`; `argv[0]` is "bench NAME", for messages.
 */
#ifndef COD_TOOLS_BENCH_BENCH_H
#define COD_TOOLS_BENCH_BENCH_H

/** Times a training step op by op. */
int cod_bench_step(int argc, char **argv);
/** Times the implementations of a step's convolutions. */
int cod_bench_tune(int argc, char **argv);
/** Times what a teacher adds to a training step. */
int cod_bench_teacher(int argc, char **argv);
/** Times a model on a whole picture. */
int cod_bench_upscale(int argc, char **argv);
/** Times NIQE of pictures. */
int cod_bench_niqe(int argc, char **argv);
/** Counts the crops that a core makes. */
int cod_bench_loader(int argc, char **argv);
/** Compares the ways of data to a device. */
int cod_bench_copy(int argc, char **argv);
/** Measures the exchange's codings on checkpoints. */
int cod_bench_codec(int argc, char **argv);
/** Times the bucketed all-reduce against MPI's blocking one. */
int cod_bench_allreduce_command(int argc, char **argv);
/** Measures the exchange, alone or in training over slow links. */
int cod_bench_exchange(int argc, char **argv);
/** Computes the exchange of many groups by a model of it. */
int cod_bench_scale(int argc, char **argv);

#endif
