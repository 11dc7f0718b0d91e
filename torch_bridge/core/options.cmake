# The option table, torch-free: the bridge and the `pleat` command link the same one. Included by
# torch_bridge/CMakeLists.txt and by tools/, whichever comes first.
include_guard(GLOBAL)
add_library(pleat_options STATIC ${CMAKE_CURRENT_LIST_DIR}/options.cpp
            ${CMAKE_CURRENT_LIST_DIR}/option_text.cpp)
target_include_directories(pleat_options PUBLIC ${CMAKE_CURRENT_LIST_DIR}/../..)
