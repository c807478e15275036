# One helper each for a layer, a program and a fuzz target, so that a folder's CMake line says only what is
# particular to it: its name and the layers it may include from.
include(GNUInstallDirs)
include(GoogleTest)

# Flags every target of ours shares. Kept on an interface target so that they never leak into an embedding project.
add_library(nmc_options INTERFACE)
target_compile_features(nmc_options INTERFACE cxx_std_20)
target_compile_options(nmc_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(nmc_options INTERFACE -Wthread-safety)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ 12 warns of overlap within std::string's operator+ (its bug 105651).
  target_compile_options(nmc_options INTERFACE -Wno-restrict)
endif()
if(NMC_STRICT)
  target_compile_options(nmc_options INTERFACE -Werror)
endif()
if(NOT NMC_FAILPOINTS)
  target_compile_definitions(nmc_options INTERFACE NMC_FAILPOINTS_OFF=1)
endif()
if(NMC_SANITIZE)
  target_compile_options(nmc_options INTERFACE -fsanitize=${NMC_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(nmc_options INTERFACE -fsanitize=${NMC_SANITIZE})
  target_compile_definitions(nmc_options INTERFACE NMC_SANITIZED=1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Instrumented code makes g++ see uninitialized reads that aren't there, and memory that is freed in another way than
    # it was taken where a coroutine's frame is Asio's; the sanitizers see the real ones.
    target_compile_options(nmc_options INTERFACE -Wno-maybe-uninitialized -Wno-mismatched-new-delete)
  endif()
endif()

set(NMC_SRC_DIR ${CMAKE_SOURCE_DIR}/src)
set_property(GLOBAL PROPERTY NMC_LAYER_EDGES "")

# nmc_layer(<name> INCLUDES <layer>... [LIBS <external target>...])
# Target nmc_<name> from every x.cc below src/<name>/; its unit tests, every x_test.cc, become one program
# nmc_<name>_test. INCLUDES are the layers whose headers it may name, and the layering test holds it to that.
function(nmc_layer name)
  cmake_parse_arguments(ARG "" "" "INCLUDES;LIBS" ${ARGN})
  set(dir ${NMC_SRC_DIR}/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${dir}/*.h)
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${dir}/*_test.cc)
  list(REMOVE_ITEM sources ${tests} "")
  list(TRANSFORM ARG_INCLUDES PREPEND nmc_ OUTPUT_VARIABLE layers)

  if(sources)
    add_library(nmc_${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(nmc_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(nmc::${name} ALIAS nmc_${name})
  target_sources(nmc_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${NMC_SRC_DIR} FILES ${headers})
  set_target_properties(nmc_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
  target_include_directories(nmc_${name} ${scope} ${NMC_SRC_DIR})
  target_link_libraries(nmc_${name} ${scope} nmc_options ${layers} ${ARG_LIBS})

  list(JOIN ARG_INCLUDES " " edges)
  set_property(GLOBAL APPEND PROPERTY NMC_LAYER_EDGES "${name}: ${edges}")

  if(NMC_TESTS AND tests)
    add_executable(nmc_${name}_test ${tests})
    target_link_libraries(nmc_${name}_test PRIVATE nmc_${name} GTest::gmock GTest::gtest_main)
    gtest_discover_tests(nmc_${name}_test TEST_PREFIX ${name}. PROPERTIES TIMEOUT 300 LABELS unit
      DISCOVERY_TIMEOUT 60)
  endif()
endfunction()

# nmc_fuzz(<name> LIBS <layer>...): fuzz/<name>_fuzz.cc with corpus fuzz/corpus/<name>/. With NMC_FUZZ it is the
# libFuzzer program fuzz_<name>, part of target nmc_fuzzers; otherwise replay_<name>, a test that runs the corpus through it.
function(nmc_fuzz name)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  list(TRANSFORM ARG_LIBS PREPEND nmc_ OUTPUT_VARIABLE layers)
  if(NMC_FUZZ)
    add_executable(fuzz_${name} ${CMAKE_SOURCE_DIR}/fuzz/${name}_fuzz.cc)
    target_link_libraries(fuzz_${name} PRIVATE ${layers})
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    if(NOT TARGET nmc_fuzzers)
      add_custom_target(nmc_fuzzers)
    endif()
    add_dependencies(nmc_fuzzers fuzz_${name})
  elseif(NMC_TESTS)
    add_executable(replay_${name} ${CMAKE_SOURCE_DIR}/fuzz/${name}_fuzz.cc ${CMAKE_SOURCE_DIR}/fuzz/replay_main.cc)
    target_link_libraries(replay_${name} PRIVATE ${layers})
    add_test(NAME fuzz_corpus.${name} COMMAND replay_${name} ${CMAKE_SOURCE_DIR}/fuzz/corpus/${name})
    set_tests_properties(fuzz_corpus.${name} PROPERTIES TIMEOUT 120 LABELS unit)
  endif()
endfunction()
