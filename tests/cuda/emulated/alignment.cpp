/**
 * Misaligned accesses, which a GPU refuses: kernels are compiled with -fsanitize=alignment, which calls this before each. In trees with
 * sanitizers, UBSan's own library has the function.
 */
#include "emulated_internal.h"

#ifdef COD_CUDA_ALIGNMENT

#include <cstdint>

/** As the compiler lays them out: a type, and an access with the place in the source and the boundary that it needs. */
struct cod_emulated_type {
    uint16_t kind, info;
    char name[1]; /**< as long as it is */
};

struct cod_emulated_access {
    const char *file;
    uint32_t line, column;
    const cod_emulated_type *type;
    unsigned char boundary_bits, kind;
};

extern "C" void __ubsan_handle_type_mismatch_v1(const cod_emulated_access *access, uintptr_t address);

/** A thread of a kernel ends here, since the processor might not forgive the access either. */
void __ubsan_handle_type_mismatch_v1(const cod_emulated_access *access, uintptr_t address)
{
    cod_emulated_fault("%s:%u: an access of %s at an address that is no multiple of %u, %#tx", access->file,
                       access->line, access->type->name, 1u << access->boundary_bits, static_cast<ptrdiff_t>(address));
    cod_emulated_leave_thread();
}

#endif
