# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Precompiled headers for a MariaDB server tree, added from outside.
#
#   cmake -DCMAKE_PROJECT_INCLUDE=/path/to/precompile.cmake ...
#
# WHY. Three quarters of the compile time of a typical unit of sql/ is the parsing of
# the same headers (sql_class.h and what it pulls in). Parsed once and loaded as a
# precompiled header (PCH), a small unit costs a fifth, and a change of a central header
# costs mostly the code generation that cannot be avoided.
#
# WHY FROM OUTSIDE. The tree under test must be upstream plus the series and nothing
# else. CMAKE_PROJECT_INCLUDE is read after each project() call; the targets do not
# exist yet at that point, so the work is deferred to the end of the top directory.
#
# WHY THE CODE STAYS THE SAME. CMake passes "-include cmake_pch.hxx": the headers come
# before the unit's own first line. That is harmless for a unit which includes them first
# anyway, and wrong for one that defines macros before its first #include, since headers
# may look at these (MYSQL_LEX changes a type in sql_lex.h, MYSQL_SERVER opens half of
# THD). Such units are found by reading their first lines and get no PCH; so do C units,
# generated parsers, and the units named below. When flags differ, gcc refuses the PCH
# and reads the same headers as text: slower, never different.
#
# A source or target which a release does not have is passed over.
#
#   -DPERFQUILT_PRECOMPILE=OFF     switches it off (for comparisons)
#   -DPERFQUILT_PRECOMPILE_SKIP=…  list of further base names to leave out (a.cc;b.cc)

include_guard(GLOBAL)

# Old releases ask for the policies of CMake 2.8; a function keeps those that were set
# where it was defined, so these are for the functions below and for nothing else.
cmake_policy(PUSH)
cmake_policy(VERSION 3.16...3.25)

option(PERFQUILT_PRECOMPILE "Use precompiled headers in the big targets" ON)
set(PERFQUILT_PRECOMPILE_SKIP "" CACHE STRING "Units (base names) to compile without precompiled header")

# Sets OUT to TRUE when FILE defines, undefines or decides anything before its first #include.
function(perfquilt_defines_first FILE OUT)
  set(${OUT} FALSE PARENT_SCOPE)
  # Licence and comment lines are not in the way: only preprocessor lines are read.
  # (#pragma and #ifdef USE_PRAGMA_IMPLEMENTATION are harmless and are everywhere.)
  file(STRINGS "${FILE}" lines REGEX "^[ \t]*#[ \t]*(include|define|undef)" LIMIT_COUNT 1)
  if(lines AND NOT lines MATCHES "include")
    set(${OUT} TRUE PARENT_SCOPE)
  endif()
endfunction()

# perfquilt_precompile_target(TARGET HEADERS h… [SKIP base-name…])
function(perfquilt_precompile_target TARGET)
  cmake_parse_arguments(A "" "" "HEADERS;SKIP" ${ARGN})
  if(NOT TARGET ${TARGET})
    return()
  endif()
  get_target_property(dir ${TARGET} SOURCE_DIR)
  get_target_property(bindir ${TARGET} BINARY_DIR)
  get_target_property(sources ${TARGET} SOURCES)
  get_target_property(includes ${TARGET} INCLUDE_DIRECTORIES)

  # Only headers this release has; found on the include path they keep their short name,
  # found beside the sources only (perfschema) they need the whole path.
  set(headers)
  foreach(h IN LISTS A_HEADERS)
    set(found)
    foreach(i IN LISTS includes bindir)
      if(EXISTS "${i}/${h}")
        set(found "${h}")
        break()
      endif()
    endforeach()
    if(NOT found AND EXISTS "${dir}/${h}")
      set(found "${dir}/${h}")
    endif()
    if(found)
      # C++ only: a C unit of the target must not get a C PCH.
      list(APPEND headers "$<$<COMPILE_LANGUAGE:CXX>:\"${found}\">")
    endif()
  endforeach()
  if(NOT headers)
    return()
  endif()

  set(used 0)
  set(skipped)
  foreach(s IN LISTS sources)
    if(s MATCHES "^\\$<" OR NOT s MATCHES "\\.(c|cc|cpp|cxx)$")
      continue()
    endif()
    get_filename_component(name "${s}" NAME)
    get_filename_component(path "${s}" ABSOLUTE BASE_DIR "${dir}")
    set(skip FALSE)
    if(name MATCHES "\\.c$" OR name IN_LIST A_SKIP OR name IN_LIST PERFQUILT_PRECOMPILE_SKIP)
      set(skip TRUE)
    elseif(path MATCHES "^${CMAKE_BINARY_DIR}/" OR NOT EXISTS "${path}")
      set(skip TRUE)                       # generated: cannot be looked at yet
    else()
      perfquilt_defines_first("${path}" skip)
      set_property(GLOBAL APPEND PROPERTY perfquilt_watched "${path}")
    endif()
    if(skip)
      list(APPEND skipped "${name}")
      set_source_files_properties("${path}" "${s}" TARGET_DIRECTORY ${TARGET}
        PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    else()
      math(EXPR used "${used}+1")
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

# perfquilt_precompile_group(TARGET MACRO HEADERS h…)
#
# A second precompiled header for those units of TARGET whose first two preprocessor lines
# are "#define MACRO" and an #include: the same headers, read with that macro defined.
# (The unit then defines the macro once more in the same words, which C++ allows.)
# CMake knows one PCH a target, so a helper target with the same flags makes this one and
# the units name it themselves. They are few but the largest: the parser's friends in sql/,
# and the units of InnoDB that look into the server (row0sel, ha_innodb, trx0trx…).
function(perfquilt_precompile_group TARGET MACRO)
  cmake_parse_arguments(A "" "" "HEADERS" ${ARGN})
  get_property(multi GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  if(NOT TARGET ${TARGET} OR multi OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  get_target_property(dir ${TARGET} SOURCE_DIR)
  get_target_property(sources ${TARGET} SOURCES)
  set(units)
  set(names)
  foreach(s IN LISTS sources)
    get_filename_component(name "${s}" NAME)
    get_filename_component(path "${s}" ABSOLUTE BASE_DIR "${dir}")
    if(NOT name MATCHES "\\.(cc|cpp|cxx)$" OR path MATCHES "^${CMAKE_BINARY_DIR}/"
       OR NOT EXISTS "${path}" OR name IN_LIST PERFQUILT_PRECOMPILE_SKIP)
      continue()
    endif()
    file(STRINGS "${path}" lines REGEX "^[ \t]*#[ \t]*(include|define|undef)" LIMIT_COUNT 2)
    if(lines MATCHES "^#define ${MACRO};[ \t]*#[ \t]*include")
      list(APPEND units "${path}")
      list(APPEND names "${name}")
    endif()
  endforeach()
  list(LENGTH units n)
  if(n LESS 3)
    return()                               # making the header costs as much as it saves
  endif()

  string(MAKE_C_IDENTIFIER "perfquilt_${TARGET}_${MACRO}" helper)
  set(stub "${CMAKE_BINARY_DIR}/perfquilt/${helper}")
  # Written only when different: these files take part in the build's time stamps.
  file(CONFIGURE OUTPUT "${stub}.h" CONTENT "#define ${MACRO}\n" @ONLY)
  file(CONFIGURE OUTPUT "${stub}.cc" CONTENT "" @ONLY)
  add_library(${helper} OBJECT EXCLUDE_FROM_ALL "${stub}.cc")
  foreach(p INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS)
    set_property(TARGET ${helper} PROPERTY ${p} "$<TARGET_PROPERTY:${TARGET},${p}>")
  endforeach()
  foreach(p COMPILE_FLAGS CXX_STANDARD CXX_STANDARD_REQUIRED CXX_EXTENSIONS
            POSITION_INDEPENDENT_CODE CXX_VISIBILITY_PRESET VISIBILITY_INLINES_HIDDEN
            INTERPROCEDURAL_OPTIMIZATION)
    get_target_property(v ${TARGET} ${p})
    if(NOT v STREQUAL "v-NOTFOUND")
      set_property(TARGET ${helper} PROPERTY ${p} "${v}")
    endif()
  endforeach()
  # Flags that only the target's own directory adds (CMAKE_CXX_FLAGS is per directory).
  get_directory_property(theirs DIRECTORY "${dir}" DEFINITION CMAKE_CXX_FLAGS)
  string(REPLACE "${CMAKE_CXX_FLAGS}" "" theirs "${theirs}")
  # The tree gives these two definitions in one string to add_definitions(), which puts
  # them where no property shows them.
  get_directory_property(ssl DIRECTORY "${dir}" DEFINITION SSL_DEFINES)
  separate_arguments(theirs UNIX_COMMAND "${theirs} ${ssl}")
  target_compile_options(${helper} PRIVATE ${theirs})
  foreach(d GenError GenServerSource)      # headers that are made during the build
    if(TARGET ${d})
      add_dependencies(${helper} ${d})
    endif()
  endforeach()
  set(headers "${stub}.h")
  foreach(h IN LISTS A_HEADERS)
    list(APPEND headers "\"${h}\"")
  endforeach()
  target_precompile_headers(${helper} PRIVATE ${headers})

  get_target_property(bin ${helper} BINARY_DIR)
  set(pch "${bin}/CMakeFiles/${helper}.dir/cmake_pch.hxx")
  set_property(SOURCE ${units} TARGET_DIRECTORY ${TARGET}
    APPEND PROPERTY COMPILE_OPTIONS -Winvalid-pch -include "${pch}")
  set_property(SOURCE ${units} TARGET_DIRECTORY ${TARGET}
    APPEND PROPERTY OBJECT_DEPENDS "${pch}.gch")
  string(REPLACE ";" " " names "${names}")
  message(STATUS "perfquilt: ${TARGET}: second precompiled header (${MACRO}) for ${n} units: ${names}")
endfunction()

function(perfquilt_precompile)
  # sql/: each of these is read by 169 or more of the 191 units (10.11). A header that
  # few units read has no place here: a change of it would rebuild all of them, and the
  # others of sql/ save no more than 0.05 s a unit once sql_class.h is there.
  # sql_plugin.h must be the first: it adds the server's members to an enum of
  # mysql/plugin.h (SHOW_always_last) by a macro, so it has to come before that header.
  # mariadb.h, which it includes, then comes in its usual second place.
  set(sql_headers sql_plugin.h sql_priv.h sql_class.h)
  perfquilt_precompile_target(sql
    HEADERS ${sql_headers}
    SKIP net_serv.cc       # undefines MYSQL_SERVER between its includes
  )
  perfquilt_precompile_group(sql "MYSQL_LEX 1" HEADERS ${sql_headers})

  # storage/innobase/: each of these is read by two thirds of the 113 units or more.
  set(innodb_headers univ.i dict0dict.h row0mysql.h trx0trx.h)
  perfquilt_precompile_target(innobase HEADERS ${innodb_headers})
  perfquilt_precompile_group(innobase "MYSQL_SERVER" HEADERS univ.i sql_class.h ${innodb_headers})

  # storage/perfschema/ (not in "quick"): 110 small units, nearly all reading the server's headers.
  perfquilt_precompile_target(perfschema HEADERS sql_plugin.h sql_class.h pfs_instr_class.h pfs_server.h)

  # What was decided by the first lines of units holds only as long as these lines do. The
  # builder keeps those of the units listed here in heads.txt; when one changes, CMake runs
  # again. (CMake forgets a dependency that is not there yet: hence the empty file.)
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

cmake_policy(POP)
