# Run at every build: writes OUTPUT only when its content changes, so that a new commit recompiles one file.
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
set(source_digest unknown)
if(failed)
  set(commit unknown)
else()
  execute_process(COMMAND git -C ${SOURCE_DIR} status --porcelain --untracked-files=no
    OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND commit "+dirty")
  endif()
  # Of all files that git tracks, as they are now: names and contents, in the order of names.
  execute_process(COMMAND git -C ${SOURCE_DIR} ls-files -z
    COMMAND xargs -0 sha256sum --
    COMMAND sha256sum
    WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE digest ERROR_QUIET RESULTS_VARIABLE codes)
  if(codes MATCHES "^0;[0-9]+;0$" AND digest MATCHES "^([0-9a-f]+) ")
    set(source_digest ${CMAKE_MATCH_1})
  endif()
endif()
set(content "#define NMC_VERSION \"${VERSION}\"\n#define NMC_COMMIT \"${commit}\"\n#define NMC_BUILD_TYPE \"${BUILD_TYPE}\"\n#define NMC_SOURCE_DIGEST \"${source_digest}\"\n")
set(old "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL content)
  file(WRITE ${OUTPUT} "${content}")
endif()
