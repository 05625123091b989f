/**
 * @file
 * Event files that TensorBoard reads: TFRecord framing (tensorflow/core/lib/io/record_writer.h) around Event messages.
 */
#ifndef COD_IO_TENSORBOARD_H
#define COD_IO_TENSORBOARD_H

#include "core/status.h"

#include <stdint.h>

/** An event file being written; for one thread at a time. */
typedef struct cod_tensorboard cod_tensorboard;

/** Creates folder/events.out.tfevents.TIME.HOST.PID.N. @param[out] board  new; cod_tensorboard_close() */
COD_MUST_CHECK cod_status cod_tensorboard_open(const char *folder, cod_tensorboard **board);

/** @param[in] tag  such as "train/loss" */
COD_MUST_CHECK cod_status cod_tensorboard_scalar(cod_tensorboard *board, int64_t step, const char *tag, float value);

/** @param[in] png  [bytes] a PNG file of width x height pixels, `channels` 1 (gray), 3 (RGB) or 4 (RGBA) */
COD_MUST_CHECK cod_status cod_tensorboard_image(cod_tensorboard *board, int64_t step, const char *tag, int width,
                                                int height, int channels, const void *png, size_t bytes);

/** NULL is fine. */
void cod_tensorboard_close(cod_tensorboard *board);

#endif
