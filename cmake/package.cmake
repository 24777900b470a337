# `make install` and `make package`: what goes where beyond the tools, and packages of it (DEB, TGZ) by cpack.
#
# All of it is relocatable: a tool finds its plugins and the other tools from its own place. Plugins that need more than
# the tools do (MPI) are Debian packages of their own; the archive holds everything.
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/ DESTINATION share)
# share/stepgraph has what the documents talk about where they say it is: their commands run and their links lead there.
foreach(folder docs examples schema tools/capture tools/python)
  get_filename_component(parent ${folder} DIRECTORY)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder} DESTINATION share/stepgraph/${parent} USE_SOURCE_PERMISSIONS
          PATTERN "__pycache__" EXCLUDE PATTERN "*.egg-info" EXCLUDE PATTERN "build" EXCLUDE
          PATTERN "CMakeLists.txt" EXCLUDE REGEX "/schema/compat$" EXCLUDE)
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CONTRIBUTING.md DESTINATION share/stepgraph)
install(FILES ${CMAKE_SOURCE_DIR}/README.md DESTINATION share/doc/stepgraph)

# One version: that of the project is that which the tools say.
file(STRINGS ${CMAKE_SOURCE_DIR}/tools/cli/cli.h version_line REGEX "string_view kVersion = ")
if(NOT version_line MATCHES "\"${PROJECT_VERSION}\"")
  message(FATAL_ERROR "CMakeLists.txt says version ${PROJECT_VERSION}, tools/cli/cli.h: ${version_line}")
endif()

set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_PACKAGE_NAME stepgraph)
set(CPACK_PACKAGE_VENDOR Stepgraph)
set(CPACK_PACKAGE_CONTACT "The Stepgraph developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "PyTorch training steps as files: change, compare, simulate and run them")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGE_FILE_NAME stepgraph-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_THREADS 0)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME stepgraph)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "stepgraph-mpi, python3")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
  "The tools, their manual pages and completions, and the Python package that captures steps.")
foreach(plugin mpi cuda)
  string(TOUPPER ${plugin} PLUGIN)
  set(CPACK_DEBIAN_${PLUGIN}_PACKAGE_NAME stepgraph-${plugin})
  set(CPACK_DEBIAN_${PLUGIN}_PACKAGE_DEPENDS "stepgraph (= ${PROJECT_VERSION})")
endforeach()
set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_COMPONENT_MPI_DESCRIPTION "Ranks as processes: sg-run --comm mpi.")
set(CPACK_COMPONENT_CUDA_DESCRIPTION "Steps on GPUs: sg-run --backend cuda.")
find_program(SG_SHLIBDEPS dpkg-shlibdeps)
if(SG_SHLIBDEPS)                                   # what the tools are linked with, as Depends
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
include(CPack)
