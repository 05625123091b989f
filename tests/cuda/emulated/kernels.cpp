/** The names of kernels, by the program's own symbols; which of them were launched, for tests that ask whether all are. */
#include "emulated_internal.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <link.h>
#include <map>
#include <set>
#include <string>
#include <vector>

static int first_address(struct dl_phdr_info *info, size_t, void *address)
{
    *static_cast<uintptr_t *>(address) = info->dlpi_addr;
    return 1; /* the program comes first */
}

static bool read_at(FILE *file, uint64_t offset, void *target, size_t bytes)
{
    return fseek(file, static_cast<long>(offset), SEEK_SET) == 0 && fread(target, 1, bytes, file) == bytes;
}

/** Names of functions by their addresses in the running program; empty where its file has no symbols. */
static std::map<uintptr_t, std::string> read_symbols()
{
    std::map<uintptr_t, std::string> names;
    uintptr_t base = 0;
    Elf64_Ehdr head;
    FILE *file = fopen("/proc/self/exe", "rb");
    dl_iterate_phdr(first_address, &base);
    if (file == nullptr || !read_at(file, 0, &head, sizeof head)) {
        if (file != nullptr)
            fclose(file);
        return names;
    }
    std::vector<Elf64_Shdr> sections(head.e_shnum);
    read_at(file, head.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr));
    for (const Elf64_Shdr &section : sections) {
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size())
            continue;
        std::vector<Elf64_Sym> symbols(section.sh_size / sizeof(Elf64_Sym));
        std::vector<char> text(sections[section.sh_link].sh_size + 1);
        read_at(file, section.sh_offset, symbols.data(), symbols.size() * sizeof(Elf64_Sym));
        read_at(file, sections[section.sh_link].sh_offset, text.data(), text.size() - 1);
        for (const Elf64_Sym &symbol : symbols)
            if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_name < text.size())
                names[base + symbol.st_value] = text.data() + symbol.st_name;
    }
    fclose(file);
    return names;
}

const char *cod_emulated_kernel_symbol(const void *kernel)
{
    static const std::map<uintptr_t, std::string> names = read_symbols();
    const auto found = names.find(reinterpret_cast<uintptr_t>(kernel));
    return found != names.end() ? found->second.c_str() : nullptr;
}

void cod_emulated_kernel_name(const void *kernel, char *name, size_t bytes)
{
    const char *symbol = cod_emulated_kernel_symbol(kernel);
    char *readable = symbol != nullptr ? abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr) : nullptr;
    snprintf(name, bytes, "%s", readable != nullptr ? readable : symbol != nullptr ? symbol : "a kernel");
    free(readable);
}

static std::map<const void *, size_t> launches;

size_t cod_emulated_launches_of(const char *part)
{
    size_t count = 0;
    for (const auto &[kernel, times] : launches) {
        const char *symbol = cod_emulated_kernel_symbol(kernel);
        count += symbol != nullptr && strstr(symbol, part) != nullptr ? times : 0;
    }
    return count;
}

void cod_emulated_kernel_record(const void *kernel)
{
    static const char *path = getenv("COD_CUDA_KERNELS");
    launches[kernel]++;
    static std::set<const void *> known;
    if (path == nullptr || !known.insert(kernel).second)
        return;
    FILE *file = fopen(path, known.size() == 1 ? "w" : "a"); /* what an earlier process wrote is gone */
    if (file == nullptr)
        abort();
    const char *symbol = cod_emulated_kernel_symbol(kernel);
    fprintf(file, "%s\n", symbol != nullptr ? symbol : "?");
    fclose(file);
}
