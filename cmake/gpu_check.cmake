# The preset gpu-check: the CUDA backend with what tests and measures it, for machines that have a GPU and little else. No MPI,
# no oneDNN, no YAML. xxHash's header and cmocka come from the system, or from the folder of `tools/gpu-check.sh --pack`.
if(NOT COD_CUDA)
    message(FATAL_ERROR "the preset gpu-check needs nvcc, which was not found")
endif()
set(COD_GPU_PACK ${CMAKE_SOURCE_DIR}/build/gpu-pack CACHE PATH "Headers and libraries that tools/gpu-check.sh --pack collected")
find_path(XXHASH_INCLUDE_DIR xxhash.h PATHS ${COD_GPU_PACK} REQUIRED)
find_path(CMOCKA_INCLUDE_DIR cmocka.h PATHS ${COD_GPU_PACK} REQUIRED)
find_library(CMOCKA_LIBRARY NAMES cmocka libcmocka.so.0 PATHS ${COD_GPU_PACK} REQUIRED)
add_library(gpu_check_cmocka INTERFACE)
target_include_directories(gpu_check_cmocka SYSTEM INTERFACE ${CMOCKA_INCLUDE_DIR})
target_link_libraries(gpu_check_cmocka INTERFACE ${CMOCKA_LIBRARY})
add_library(PkgConfig::CMOCKA ALIAS gpu_check_cmocka)

cod_module(core)
target_include_directories(cod_core SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR})
cod_module(nn LINKS cod_core)
cod_module(ref LINKS cod_core)
cod_module(cuda LINKS cod_core PRIVATE_LINKS CUDA::cudart_static)
