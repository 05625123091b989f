/**
 * @file
 * How long something takes, as progress lines and messages say it.
 */
#ifndef COD_CORE_DURATION_H
#define COD_CORE_DURATION_H

/** For an argument of printf(): cod_duration(seconds).text lives until the end of the statement. */
typedef struct cod_duration_text {
    char text[32];
} cod_duration_text;

/** "0:40:00": hours, minutes and seconds, to the nearest second; 0 for what is negative or no number. */
cod_duration_text cod_duration(double seconds);

#endif
