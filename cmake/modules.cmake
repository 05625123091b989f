# The house (docs/architecture.md): level by level; a module links only what lies below it.
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp libwebpdemux)
pkg_check_modules(TIFF REQUIRED IMPORTED_TARGET libtiff-4>=4.5)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(RSVG IMPORTED_TARGET librsvg-2.0)
# Debian's dnnl-config.cmake asks for OpenCL, which the CPU engine does not need.
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE_DIR dnnl.h REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)

# The message layer: an installed MPI, or for the thread sanitizer ranks that are threads of one process.
set(COD_MPI library CACHE STRING "Message layer of comm: library or inprocess")
set_property(CACHE COD_MPI PROPERTY STRINGS library inprocess)
if(COD_MPI STREQUAL inprocess)
    set(inprocess_dir ${CMAKE_CURRENT_SOURCE_DIR}/tests/mpi/inprocess)
    add_library(mpi_layer STATIC ${inprocess_dir}/mpi.c ${inprocess_dir}/job.c)
    target_include_directories(mpi_layer PUBLIC ${inprocess_dir})
    target_link_libraries(mpi_layer PRIVATE cod_flags PUBLIC Threads::Threads)
    target_link_options(mpi_layer INTERFACE -Wl,--wrap=pthread_create) # a rank's threads belong to it
else()
    find_package(MPI REQUIRED COMPONENTS C)
    add_library(mpi_layer INTERFACE)
    target_link_libraries(mpi_layer INTERFACE MPI::MPI_C)
endif()

# L0
cod_module(core)
# L1
cod_module(nn LINKS cod_core)
cod_module(ref LINKS cod_core)
cod_module(cpu LINKS cod_core PRIVATE_LINKS ${DNNL_LIBRARY} Threads::Threads OpenMP::OpenMP_C ${CMAKE_DL_LIBS})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64") # one source, compiled per instruction set, chosen at run time
    set(avx512 -mfma -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512)
    set_source_files_properties(src/cpu/kernels/avx2.c PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
    set_source_files_properties(src/cpu/kernels/avx512.c PROPERTIES COMPILE_OPTIONS "${avx512}")
    set_source_files_properties(src/cpu/kernels/avx512_bf16.c PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512bf16;-mavx512vnni")
    set_source_files_properties(src/cpu/kernels/winograd4_avx2.c PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
    set_source_files_properties(src/cpu/kernels/winograd4_avx512.c PROPERTIES COMPILE_OPTIONS "${avx512}")
    set_source_files_properties(src/cpu/kernels/tiles.c PROPERTIES COMPILE_OPTIONS "${avx512};-mamx-tile;-mamx-bf16")
endif()
if(COD_CUDA)
    cod_module(cuda LINKS cod_core PRIVATE_LINKS CUDA::cudart_static)
    cod_cuda_libraries(cod_cuda)
endif()
cod_module(codec LINKS cod_core PRIVATE_LINKS PkgConfig::LZ4 PkgConfig::ZSTD)
cod_module(comm LINKS cod_core PRIVATE_LINKS mpi_layer Threads::Threads)
cod_module(data LINKS cod_core PRIVATE_LINKS PkgConfig::PNG PkgConfig::JPEG PkgConfig::WEBP PkgConfig::TIFF PkgConfig::ZLIB Threads::Threads)
# GCC makes no vectors of sqrtf() while that may have to set errno.
set_source_files_properties(src/data/degrade_noise.c PROPERTIES COMPILE_OPTIONS -fno-math-errno)
cod_module(io LINKS cod_core PRIVATE_LINKS PkgConfig::CJSON PkgConfig::SODIUM)
cod_module(config LINKS cod_core PRIVATE_LINKS PkgConfig::YAML)
# L2
cod_module(infer LINKS cod_core cod_nn cod_data cod_io)
# L3
cod_module(train LINKS cod_core cod_nn cod_comm cod_data cod_io cod_config cod_infer PRIVATE_LINKS Threads::Threads)
# L4
cod_module(strategies LINKS cod_core cod_codec cod_nn cod_comm cod_train)
cod_module(distill LINKS cod_core cod_codec cod_nn cod_comm cod_io cod_infer cod_train PRIVATE_LINKS Threads::Threads)
cod_module(gan LINKS cod_core cod_nn cod_io cod_infer cod_train)

# L5
file(GLOB tool_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/tools/*.c ${CMAKE_CURRENT_SOURCE_DIR}/tools/*/*.c)
if(tool_sources AND COD_MPI STREQUAL library)
    # Looked at by every build: a commit does not make cmake configure anew.
    add_custom_target(version COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_CURRENT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION}
                      -DOUTPUT=${CMAKE_BINARY_DIR}/version.c -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/version.cmake
                      BYPRODUCTS ${CMAKE_BINARY_DIR}/version.c VERBATIM)
    add_executable(codistill ${tool_sources} ${CMAKE_BINARY_DIR}/version.c)
    add_dependencies(codistill version)
    # Ranks are started by the launcher of the MPI that they are linked with.
    set_source_files_properties(tools/launcher.c PROPERTIES COMPILE_DEFINITIONS "COD_MPIEXEC=\"${MPIEXEC_EXECUTABLE}\"")
    target_include_directories(codistill PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    if(RSVG_FOUND)
        set_source_files_properties(tools/report_png.c PROPERTIES COMPILE_DEFINITIONS COD_HAVE_RSVG=1)
        target_link_libraries(codistill PRIVATE PkgConfig::RSVG)
    else()
        message(STATUS "librsvg-2.0 is not there (Debian: librsvg2-dev): reports come without PNG plots")
    endif()
    target_link_libraries(codistill PRIVATE cod_flags cod_distill cod_gan cod_strategies cod_train cod_infer cod_config cod_io cod_data cod_comm cod_codec
                          cod_cpu cod_ref cod_nn cod_core mpi_layer m)
    if(COD_CUDA)
        set_source_files_properties(tools/main.c PROPERTIES COMPILE_DEFINITIONS COD_HAVE_CUDA=1) # no other source may depend on it
        target_link_libraries(codistill PRIVATE cod_cuda)
    endif()
endif()
