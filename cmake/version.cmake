# cmake -DSOURCE=DIR -DVERSION=X.Y.Z -DOUTPUT=FILE -P version.cmake: writes version.c; a file that would not change keeps its time.
execute_process(COMMAND git --no-optional-locks describe --tags --always --dirty WORKING_DIRECTORY ${SOURCE}
                OUTPUT_VARIABLE COD_DESCRIBE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
set(COD_VERSION "${VERSION}")
if(failed EQUAL 0 AND COD_DESCRIBE)
    set(COD_VERSION "${VERSION} (${COD_DESCRIBE})")
endif()
configure_file(${SOURCE}/tools/version.c.in ${OUTPUT} @ONLY)
