/*
 * main() of the tests that need none of their own: the linker takes it from the library where no other is defined.
 */
#include "support/test.h"

int main(void)
{
    return cod_test_run();
}
