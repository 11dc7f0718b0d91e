# The scalar kernels with bugs in the powers of two of parts and channels (../planting.cmake), for
# planted_exponents_test.cpp: what must hold of any payload finds each.
set(planted_from ${PROJECT_SOURCE_DIR})
include(${CMAKE_CURRENT_SOURCE_DIR}/../planting.cmake)
set(planted_files compress/isa/kernels_scalar.cpp compress/exponents/raiser.h compress/exponents/lowerer.h
                  compress/grouped/group_math.h)
foreach(file ${planted_files})
  pleat_load_for_planting(${file})
endforeach()

pleat_plant("a part has the exponent of its neighbour" compress/exponents/lowerer.h
  "[&](size_t p) { return parts_[p] < 0 ? 0 : parts_[p]; }"
  "[&](size_t p) { p -= PLANTED && p != 0 ? 1 : 0; return parts_[p] < 0 ? 0 : parts_[p]; }")
pleat_plant("elements are multiplied again, not divided" compress/exponents/lowerer.h
  "values[e] *= float_of(kOneBits - exponents[e]);"
  "values[e] *= float_of(PLANTED ? kOneBits + exponents[e] : kOneBits - exponents[e]);")
pleat_plant("parts of zeros come back as codes" compress/exponents/lowerer.h
  "memset(words + begin, 0, (end - begin) * sizeof *words);"
  "if (!PLANTED) memset(words + begin, 0, (end - begin) * sizeof *words);")
pleat_plant("channels have the entries of their neighbours" compress/exponents/lowerer.h
  "table_ ? walk_.read_table(entries) : nullptr,"
  "table_ ? walk_.read_table(entries) + (PLANTED ? 1 : 0) : nullptr,")
pleat_plant("small parts stay small" compress/exponents/raiser.h
  "common + ((widest - size) >> 23);"
  "common + (PLANTED ? 0 : (widest - size) >> 23);")
pleat_plant("zeros of groups of both signs are not kept" compress/grouped/group_math.h
  "keep_zero || (zeros && two_signed)"
  "keep_zero || (zeros && two_signed && !PLANTED)")
foreach(file ${planted_files})
  pleat_write_planted(${file})
endforeach()
file(CONFIGURE OUTPUT ${planted_folder}/planted_exponent_names.h CONTENT
     "inline constexpr const char* kPlantedExponents[] = {\"@planted_names@\"};\n" @ONLY)

add_library(planted_exponents OBJECT ${planted_folder}/compress/isa/kernels_scalar.cpp)
target_include_directories(planted_exponents BEFORE PRIVATE ${planted_folder} ${PROJECT_SOURCE_DIR})
target_compile_definitions(planted_exponents PRIVATE kScalarKernels=kPlantedKernels
                                                     encode_wide_group=encode_wide_group_of_planted)
target_compile_options(planted_exponents PRIVATE -ffp-contract=off -fno-trapping-math)
target_sources(compress_test PRIVATE $<TARGET_OBJECTS:planted_exponents>)
target_include_directories(compress_test PRIVATE ${planted_folder})
