/**
 * @file
 * A clock that a test stops, so that the machine's pace decides nothing: in programs that link `${test_clock}`,
 * cod_clock_s() of all modules is this clock, which is the machine's until it is stopped. It never goes back.
 */
#ifndef COD_TESTS_SUPPORT_CLOCK_H
#define COD_TESTS_SUPPORT_CLOCK_H

/** Stops the clock once so many seconds have passed from now on. One that stands first catches up. */
void cod_test_clock_stop_after(double seconds);
/** Moves the clock on, also while it stands. Any thread. */
void cod_test_clock_pass(double seconds);
/** Lets the clock go as the machine's again. */
void cod_test_clock_go(void);

#endif
