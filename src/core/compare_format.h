/**
 * @file
 * The format of compare.json (docs/compare.md), which module `compare` writes and module `report` reads.
 */
#ifndef COD_CORE_COMPARE_FORMAT_H
#define COD_CORE_COMPARE_FORMAT_H

/** What compare.json says of itself in "format". */
#define COD_COMPARE_FORMAT "codistill-compare-1"

#endif
