# What every target of Troupe is built with, and the three kinds of target there are.

set(TROUPE_SANITIZE "" CACHE STRING "address, thread or empty")

add_library(troupe_options INTERFACE)
# x86-64-v2 is the floor; kernels pick AVX2 or AVX-512 at run time (engine/device).
target_compile_options(troupe_options INTERFACE
  -march=x86-64-v2 -fno-math-errno -Wall -Wextra -Wshadow -Wconversion -Wno-missing-field-initializers -Werror)
target_compile_definitions(troupe_options INTERFACE MSGPACK_NO_BOOST)
target_include_directories(troupe_options INTERFACE ${CMAKE_SOURCE_DIR})
if(TROUPE_SANITIZE STREQUAL "address")
  target_compile_options(troupe_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(troupe_options INTERFACE -fsanitize=address,undefined)
elseif(TROUPE_SANITIZE STREQUAL "thread")
  target_compile_options(troupe_options INTERFACE -fsanitize=thread)
  target_link_options(troupe_options INTERFACE -fsanitize=thread)
endif()

# troupe_layer(name DIR dir DEPS ...): one static library of every .cc below dir.
function(troupe_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PCH" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC troupe_options ${ARG_DEPS})
  target_precompile_headers(${name} PRIVATE
    <algorithm> <cstdint> <functional> <map> <memory> <string> <utility> <vector>
    <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h> ${ARG_PCH})
endfunction()

# troupe_program(name source DEPS ...): one executable, named after its source file.
function(troupe_program source)
  cmake_parse_arguments(ARG "" "NAME" "DEPS" ${ARGN})
  get_filename_component(base ${source} NAME_WE)
  if(ARG_NAME)
    set(base ${ARG_NAME})
  endif()
  add_executable(${base} ${source})
  target_link_libraries(${base} PRIVATE ${ARG_DEPS})
endfunction()
