# Bugs in sources, one of which at a time is switched on. A bug is a piece of source and its replacement while `planted_bug`
# is its number; the source itself stays free of them. A piece that is not there exactly once ends the configuration. Files
# are named below `planted_from`, a folder of the project.
set(planted_names "none")
set(planted_folder ${CMAKE_CURRENT_BINARY_DIR}/planted)
set(planted_number 0)

function(pleat_load_for_planting file)
  set(path ${planted_from}/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(READ ${path} text)
  string(PREPEND text "extern int planted_bug;\n")
  set_property(GLOBAL PROPERTY PLEAT_PLANTED_${file} "${text}")
endfunction()

macro(pleat_plant name file right wrong)
  math(EXPR planted_number "${planted_number} + 1")
  get_property(text GLOBAL PROPERTY PLEAT_PLANTED_${file})
  string(FIND "${text}" "${right}" first)
  string(FIND "${text}" "${right}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "planted bug '${name}': its place is not there once in ${file}")
  endif()
  string(REPLACE "${right}" "${wrong}" text "${text}")
  string(REPLACE "PLANTED" "(planted_bug == ${planted_number})" text "${text}")
  set_property(GLOBAL PROPERTY PLEAT_PLANTED_${file} "${text}")
  string(APPEND planted_names "\", \"${name}")
endmacro()

# The same bug in a further place.
macro(pleat_plant_also file right wrong)
  math(EXPR planted_number "${planted_number} - 1")
  set(names_so_far "${planted_names}")
  pleat_plant("" ${file} "${right}" "${wrong}")
  set(planted_names "${names_so_far}")
endmacro()

function(pleat_write_planted file)
  get_property(text GLOBAL PROPERTY PLEAT_PLANTED_${file})
  file(CONFIGURE OUTPUT ${planted_folder}/${file} CONTENT "@text@" @ONLY)
endfunction()
