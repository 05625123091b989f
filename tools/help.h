/**
 * @file
 * Texts of help, which are broken into lines as they are printed: for the terminal's width, or for 80 columns where
 * they go elsewhere, so that what is made of them does not depend on who makes it.
 *
 * A line of such a text is a paragraph. Tabs in it separate terms from what is said of them; successive lines with tabs
 * are a table, whose columns are as wide as their terms. Spaces at its beginning indent it.
 */
#ifndef COD_TOOLS_HELP_H
#define COD_TOOLS_HELP_H

#include <stdio.h>

/** Prints a text of help, which ends with a newline. */
void cod_help_print(FILE *out, const char *help);

/** From now on texts are printed as they stand, for programs that read them (tools/manual.py). */
void cod_help_leave_unwrapped(void);

#endif
