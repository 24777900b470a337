# sg_library(NAME file...), sg_tool(NAME), sg_unit_tests(file...): the three kinds of target, and the flags they share.
# sg_python_test(NAME SCRIPT ...): a test that is a script.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# Kernels ask for -O3 themselves (librun); everything else would only take longer to compile.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(SG_CCACHE ccache)
if(SG_CCACHE)
  # Clones on one machine share what is cached: paths within the source folder count as relative ones.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${SG_CCACHE})
endif()

add_library(sg_flags INTERFACE)
target_include_directories(sg_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
target_compile_options(sg_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms of this compiler: `"text" + std::string` (GCC bug 105329), values inside std::variant (GCC bug 80635).
  target_compile_options(sg_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
if(SG_WARNINGS_AS_ERRORS)
  target_compile_options(sg_flags INTERFACE -Werror)
endif()
if(SG_FUZZ)
  target_compile_options(sg_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(sg_flags INTERFACE -fsanitize=address,undefined)
  find_program(SG_LLD ld.lld)
  if(SG_LLD)                                       # each target holds all of libgraph: a second instead of five
    target_link_options(sg_flags INTERFACE -fuse-ld=lld)
  endif()
endif()
if(SG_SANITIZE)
  target_compile_options(sg_flags INTERFACE -fsanitize=${SG_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(sg_flags INTERFACE -fsanitize=${SG_SANITIZE})
endif()

# With SG_UNITY neighbours of one folder are compiled together; headers are then read once a batch. Kernels of the
# processor, and those of any device, never are. Files that a target gets later are in its batches too.
set(SG_UNITY_FILES 12)

function(sg_in_batches target)
  if(SG_UNITY)
    get_target_property(files ${target} SOURCES)
    list(SORT files)
    set_target_properties(${target} PROPERTIES SOURCES "${files}" UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${SG_UNITY_FILES})
    list(FILTER files INCLUDE REGEX "^(cpu|any_device)/")
    set_source_files_properties(${files} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

function(sg_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC sg_flags)
  sg_in_batches(${name})
endfunction()

function(sg_tool name)
  string(REPLACE "-" "_" source ${name})
  add_executable(${name} ${source}.cc)
  target_link_libraries(${name} PRIVATE sg_cli)
  sg_in_batches(${name})
  install(TARGETS ${name} RUNTIME DESTINATION bin)
  set_property(GLOBAL APPEND PROPERTY SG_TOOLS ${name})
endfunction()

# Manual pages and completions of all tools, in share/ of the build folder: each tool writes its own.
function(sg_manuals)
  get_property(tools GLOBAL PROPERTY SG_TOOLS)
  set(stamp ${CMAKE_CURRENT_BINARY_DIR}/manuals.stamp)
  add_custom_command(OUTPUT ${stamp} COMMENT "Writing manual pages and completions" VERBATIM
    COMMAND ${CMAKE_COMMAND} "-DTOOLS=${tools}" -DBIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY} -DOUT=${CMAKE_BINARY_DIR}/share
            -DSTAMP=${stamp} -P ${CMAKE_SOURCE_DIR}/cmake/write_manuals.cmake
    DEPENDS ${tools} ${CMAKE_SOURCE_DIR}/cmake/write_manuals.cmake)
  add_custom_target(manuals ALL DEPENDS ${stamp})
endfunction()

# All unit test files in one binary; ctest sees one test a file, `unit/expr` for expr_test.cc.
function(sg_unit_tests)
  add_executable(unit_tests ${ARGN})
  target_link_libraries(unit_tests PRIVATE sg_test_support)
  target_compile_options(unit_tests PRIVATE $<$<CONFIG:Release>:-O1>)   # most of a test is run once
  sg_in_batches(unit_tests)
  foreach(file ${ARGN})
    get_filename_component(stem ${file} NAME_WE)
    string(REGEX REPLACE "_test$" "" short ${stem})
    add_test(NAME unit/${short} COMMAND unit_tests -\# -w NoTests "[#${stem}]"
             WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(unit/${short} PROPERTIES SKIP_RETURN_CODE 77)   # tests/support/traces.h
  endforeach()
endfunction()

# A script of this folder. It is given the folder of the tools (--bin; NO_BIN: it needs none), then ARGS. LONG: not in
# `make test`. SKIPS: it skips itself, with exit code 77, where what it needs is missing (PyTorch, the shared captures).
function(sg_python_test name script)
  cmake_parse_arguments(PARSE_ARGV 2 test "LONG;SKIPS;NO_BIN" "" "ARGS")
  set(bin --bin ${CMAKE_BINARY_DIR}/bin)
  if(test_NO_BIN)
    unset(bin)
  endif()
  add_test(NAME ${name} COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${bin} ${test_ARGS})
  if(test_LONG)
    set_tests_properties(${name} PROPERTIES LABELS long)
  endif()
  if(test_SKIPS)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  endif()
endfunction()
