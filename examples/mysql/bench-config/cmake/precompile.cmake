# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Precompiled headers for a MySQL server tree, added from outside (CMAKE_PROJECT_INCLUDE), so that the tree stays
# upstream's plus the series. Most of the time of a small unit goes into reading sql_class.h and what it includes.
#
# CMake passes "-include cmake_pch.hxx", so these headers come before the unit's own first line. Units that define a
# macro before their first #include get none, since headers may depend on it; nor do C units, generated ones, and
# those named below.
#
#   -DPERFQUILT_PRECOMPILE=OFF     switches it off

include_guard(GLOBAL)
option(PERFQUILT_PRECOMPILE "Use precompiled headers in the big targets" ON)

# perfquilt_precompile_target(TARGET HEADERS h… [SKIP base-name…])
function(perfquilt_precompile_target TARGET)
  cmake_parse_arguments(A "" "" "HEADERS;SKIP" ${ARGN})
  if(NOT TARGET ${TARGET})
    return()
  endif()
  get_target_property(dir ${TARGET} SOURCE_DIR)
  get_target_property(sources ${TARGET} SOURCES)
  set(headers)
  foreach(h IN LISTS A_HEADERS)
    list(APPEND headers "$<$<COMPILE_LANGUAGE:CXX>:\"${h}\">")
  endforeach()
  set(used 0)
  set(skipped)
  foreach(s IN LISTS sources)
    if(s MATCHES "^\\$<" OR NOT s MATCHES "\\.(c|cc|cpp)$")
      continue()
    endif()
    get_filename_component(name "${s}" NAME)
    get_filename_component(path "${s}" ABSOLUTE BASE_DIR "${dir}")
    set(first)
    if(EXISTS "${path}" AND NOT path MATCHES "^${CMAKE_BINARY_DIR}/")
      file(STRINGS "${path}" first REGEX "^[ \t]*#[ \t]*(include|define|undef)" LIMIT_COUNT 1)
      set_property(GLOBAL APPEND PROPERTY perfquilt_watched "${path}")
    endif()
    if(first MATCHES "include" AND NOT name MATCHES "\\.c$" AND NOT name IN_LIST A_SKIP)
      math(EXPR used "${used}+1")
    else()
      list(APPEND skipped "${name}")
      set_source_files_properties("${path}" "${s}" TARGET_DIRECTORY ${TARGET} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
  target_precompile_headers(${TARGET} PRIVATE ${headers})
  # ccache sees through a PCH only if the preprocessor leaves a mark of it.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${TARGET} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>")
  endif()
  string(REPLACE ";" " " skipped "${skipped}")
  message(STATUS "perfquilt: ${TARGET}: precompiled header for ${used} units; without: ${skipped}")
endfunction()

function(perfquilt_precompile)
  set(sql_headers sql/sql_class.h sql/sql_lex.h sql/handler.h sql/table.h sql/field.h sql/item.h sql/mysqld.h)
  # Its header has no include guard.
  perfquilt_precompile_target(sql_main HEADERS ${sql_headers} SKIP engine_combination_tracker.cc)
  perfquilt_precompile_target(sql_dd HEADERS ${sql_headers})
  perfquilt_precompile_target(binlog HEADERS ${sql_headers})
  perfquilt_precompile_target(rpl_replica HEADERS ${sql_headers})
  perfquilt_precompile_target(innobase HEADERS univ.i dict0dict.h row0mysql.h trx0trx.h)
  perfquilt_precompile_target(perfschema HEADERS sql/sql_class.h sql/table.h sql/field.h)

  # The first lines of units decide: the builder runs CMake again when these change (heads.txt).
  set(folder "${CMAKE_BINARY_DIR}/perfquilt")
  get_property(watched GLOBAL PROPERTY perfquilt_watched)
  string(REPLACE ";" "\n" watched "${watched}")
  file(WRITE "${folder}/watch.txt" "${watched}\n")
  file(APPEND "${folder}/heads.txt" "")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${folder}/heads.txt")
endfunction()

if(PERFQUILT_PRECOMPILE AND CMAKE_VERSION VERSION_GREATER_EQUAL 3.19)
  cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL perfquilt_precompile)
endif()
