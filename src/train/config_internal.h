/**
 * @file
 * The parts of loading a run's configuration.
 */
#ifndef COD_TRAIN_CONFIG_INTERNAL_H
#define COD_TRAIN_CONFIG_INTERNAL_H

#include "train/config.h"

/** This run's values of a section of any recipe or strategy; NULL = there is none. */
const cod_config_table *config_find_section(const cod_run_config *run, const cod_option_table *table);

/**
 * Checks conditions between several options, and those that a table cannot express, and adds the problems. Options that
 * are wrong in themselves were reported already and have their defaults. Sets run->strategy and run->max_time_s.
 */
void config_check_together(cod_run_config *run);

/** Adds the problems of files that must be there for training. */
void config_check_files(cod_run_config *run);

#endif
