# libcodistill.so: the exchange for other people's programs. It needs no MPI: `alone` stands where `comm` would, so its parts are linked
# as files, without what their targets bring along.
set(library_parts exchange io codec alone core)
set(library_exports ${CMAKE_CURRENT_SOURCE_DIR}/src/library/codistill.map)
add_library(codistill_library SHARED $<TARGET_OBJECTS:cod_library>)
foreach(part IN LISTS library_parts)
    add_dependencies(codistill_library cod_${part})
    list(APPEND library_archives $<TARGET_FILE:cod_${part}>)
endforeach()
foreach(part IN LISTS library_parts ITEMS library)
    set_target_properties(cod_${part} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endforeach()
set_target_properties(codistill_library PROPERTIES OUTPUT_NAME codistill LINKER_LANGUAGE C LINK_DEPENDS "${library_exports};${library_archives}")
if(NOT COD_WHEEL) # a wheel has no links
    set_target_properties(codistill_library PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
endif()
target_include_directories(codistill_library INTERFACE $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/src/library>)
target_link_options(codistill_library PRIVATE -Wl,--no-undefined -Wl,--version-script=${library_exports} -Wl,-Bsymbolic-functions)
target_link_libraries(codistill_library PRIVATE cod_flags -Wl,--start-group ${library_archives} -Wl,--end-group
                      PkgConfig::LZ4 PkgConfig::ZSTD PkgConfig::CJSON PkgConfig::SODIUM Threads::Threads m)
