/**
 * @file
 * What the files of the codistill strategy share.
 */
#ifndef COD_DISTILL_CODISTILL_INTERNAL_H
#define COD_DISTILL_CODISTILL_INTERNAL_H

#include "distill/codistill.h"
#include "exchange/exchange.h"
#include "train/config.h"

/** The student's input where teachers predict. */
#define CODISTILL_TEACHER_INPUT "teacher"

/** Checks conditions between several options; adds problems to run->config. */
void codistill_check(const cod_run_config *run, const cod_distill_options *distill,
                     const cod_exchange_options *exchange);

#endif
