/**
 * @file
 * The parts of loading a run's configuration.
 */
#ifndef COD_TRAIN_CONFIG_INTERNAL_H
#define COD_TRAIN_CONFIG_INTERNAL_H

#include "train/config.h"

/**
 * Adds the problems of options that concern each other or need more than a table; what is wrong with one option is known
 * already, and it has its default. Sets run->strategy and run->max_time_s.
 */
void config_check_together(cod_run_config *run);

/** Adds the problems of files that must be there for training. */
void config_check_files(cod_run_config *run);

#endif
