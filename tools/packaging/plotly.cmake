# The charts of reports: plotly.min.js of the Python that Pleat is built for, with its licence. Without the file, reports
# hold tables, flame graph and map. Without a licence text, the file stays in the build folder and is not installed.
set(PLEAT_PLOTLY "" CACHE FILEPATH "plotly.min.js for the charts of reports, instead of the one of PLEAT_PYTHON")
set(plotly "${PLEAT_PLOTLY}")
if(NOT plotly AND PLEAT_PYTHON)
  execute_process(COMMAND ${PLEAT_PYTHON} -c
      "import importlib.util as u, os; s = u.find_spec('plotly'); print(os.path.join(s.submodule_search_locations[0], 'package_data', 'plotly.min.js') if s else '', end='')"
    OUTPUT_VARIABLE plotly ERROR_QUIET)
endif()
if(NOT plotly OR NOT EXISTS "${plotly}")
  message(STATUS "Pleat: no plotly.min.js: `pleat trace report` leaves out charts")
  return()
endif()
set(assets ${PROJECT_BINARY_DIR}/share/pleat)
configure_file("${plotly}" ${assets}/plotly.min.js COPYONLY)

# Next to the file, or in the metadata of the Python package.
get_filename_component(folder "${plotly}" DIRECTORY)
file(GLOB licences "${folder}/LICENSE*" "${folder}/../../plotly-*.dist-info/licenses/LICENSE*"
     "${folder}/../../plotly-*.dist-info/LICENSE*")
if(NOT licences)
  message(STATUS "Pleat: no licence text for ${plotly}: it is not installed")
  return()
endif()
list(GET licences 0 licence)
file(READ "${licence}" licence)
file(READ "${plotly}" header LIMIT 1000)
string(REGEX MATCH "plotly\\.js v[0-9.]+" name "${header}")
string(REGEX MATCH "Copyright [^\n]*" copyright "${header}")
file(CONFIGURE OUTPUT ${assets}/NOTICE CONTENT
"This installation of Pleat holds a file of another project.

plotly.min.js: @name@, https://github.com/plotly/plotly.js
@copyright@

@licence@" @ONLY)
# A wheel's files lie in the package.
install(FILES ${assets}/plotly.min.js ${assets}/NOTICE DESTINATION ${CMAKE_INSTALL_DATADIR}/pleat)
