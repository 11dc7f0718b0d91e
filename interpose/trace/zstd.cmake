# zstd, static: the recorder needs libc alone, and an installed `pleat` nothing but the C++ runtime. Included by recorder
# and tools, whichever comes first.
include_guard(GLOBAL)
find_path(PLEAT_ZSTD_INCLUDE_DIR zstd.h)
find_library(PLEAT_ZSTD_LIBRARY libzstd.a)
mark_as_advanced(PLEAT_ZSTD_INCLUDE_DIR PLEAT_ZSTD_LIBRARY)
