# `cmake --install`: the command, the libraries with their public headers, manual pages, completions, the model that `upscale` takes, examples;
# and what others find them by, a CMake package and pkg-config. `cpack` makes a .deb of the same.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(modules core nn ref cpu codec comm data io config exchange infer train strategies distill gan)

install(TARGETS codistill RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
add_library(cod_all INTERFACE)
set_target_properties(cod_all PROPERTIES EXPORT_NAME codistill)
set(archives "")
foreach(module IN LISTS modules)
    set_target_properties(cod_${module} PROPERTIES EXPORT_NAME ${module})
    target_include_directories(cod_${module} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/codistill>)
    install(TARGETS cod_${module} EXPORT codistill ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY src/${module}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/codistill/${module} FILES_MATCHING PATTERN "*.h"
            PATTERN "*_internal.h" EXCLUDE)
    target_link_libraries(cod_all INTERFACE cod_${module})
    list(PREPEND archives -lcod_${module}) # whoever needs others stands before them
endforeach()
set_target_properties(mpi_layer PROPERTIES EXPORT_NAME mpi_layer)
install(TARGETS cod_all mpi_layer EXPORT codistill)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/codistill)
install(EXPORT codistill NAMESPACE codistill:: FILE codistill-targets.cmake DESTINATION ${package})
configure_package_config_file(cmake/codistill-config.cmake.in ${CMAKE_BINARY_DIR}/codistill-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/codistill-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/codistill-config.cmake ${CMAKE_BINARY_DIR}/codistill-config-version.cmake DESTINATION ${package})

list(JOIN archives " " COD_ARCHIVES)
list(JOIN MPI_C_LIBRARIES " " COD_MPI_LIBRARIES)
list(TRANSFORM MPI_C_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE mpi_includes)
list(JOIN mpi_includes " " COD_MPI_INCLUDES)
file(RELATIVE_PATH COD_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/codistill.pc.in ${CMAKE_BINARY_DIR}/codistill.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/codistill.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The shared library stands alone: who links it needs nothing of the above.
set_target_properties(codistill_library PROPERTIES EXPORT_NAME libcodistill)
target_include_directories(codistill_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS codistill_library EXPORT libcodistill LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(FILES src/library/codistill.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT libcodistill NAMESPACE libcodistill:: FILE libcodistill-config.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/libcodistill)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/libcodistill-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/libcodistill-config-version.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/libcodistill)
configure_file(cmake/libcodistill.pc.in ${CMAKE_BINARY_DIR}/libcodistill.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/libcodistill.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY share/models DESTINATION ${CMAKE_INSTALL_DATADIR}/codistill)
install(PROGRAMS tools/get-data.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/codistill/tools)
install(DIRECTORY tools/data DESTINATION ${CMAKE_INSTALL_DATADIR}/codistill/tools)
install(DIRECTORY share/examples configs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.webp" PATTERN "*.diff")
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

# Pages and completions say what the command says of itself, so that they are written by running it.
set(completions ${CMAKE_BINARY_DIR}/completions)
foreach(shell bash zsh fish)
    add_custom_command(OUTPUT ${completions}/${shell} COMMAND ${CMAKE_COMMAND} -E make_directory ${completions}
                       COMMAND $<TARGET_FILE:codistill> completion ${shell} > ${completions}/${shell} DEPENDS codistill VERBATIM)
endforeach()
add_custom_target(completions ALL DEPENDS ${completions}/bash ${completions}/zsh ${completions}/fish)
install(FILES ${completions}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME codistill)
foreach(folder site-functions vendor-completions) # below /usr/local and, on Debian, below /usr
    install(FILES ${completions}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${folder} RENAME _codistill)
endforeach()
install(FILES ${completions}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME codistill.fish)

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
    set(manual ${CMAKE_BINARY_DIR}/manual)
    add_custom_command(OUTPUT ${manual}/man5/codistill.5
                       COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/manual.py $<TARGET_FILE:codistill> ${manual}
                       DEPENDS codistill ${CMAKE_SOURCE_DIR}/tools/manual.py VERBATIM)
    add_custom_target(manual ALL DEPENDS ${manual}/man5/codistill.5)
    install(DIRECTORY ${manual}/man1 ${manual}/man5 DESTINATION ${CMAKE_INSTALL_MANDIR})
else()
    message(STATUS "python3 is not there: manual pages are left out")
endif()

# Shared libraries that the program is linked with become dependencies by dpkg-shlibdeps. Who builds against the archives needs these libraries'
# development packages, too: tools/setup.sh lists them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME codistill)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The developers of Codistill <codistill@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ffmpeg)
include(CPack)
