# The part of a bridge that needs libc10_cuda: a library of its own, beside the bridge of a torch that has
# CUDA. c10's headers include CUDA's: those of the wheel, or of a toolkit.
function(pleat_add_cuda_access bridge torch_dir)
  if(NOT EXISTS ${torch_dir}/lib/libc10_cuda.so)
    return()
  endif()
  file(GLOB of_wheel ${torch_dir}/../nvidia/*/include)
  find_path(PLEAT_CUDA_HEADERS_${bridge} cuda_runtime_api.h HINTS ${of_wheel} /usr/local/cuda/include
            NO_CMAKE_FIND_ROOT_PATH)
  set(cuda_headers ${PLEAT_CUDA_HEADERS_${bridge}})
  if(NOT cuda_headers)
    message(STATUS "Pleat: no CUDA headers found for ${torch_dir}: CUDA tensors are left to stock there")
    return()
  endif()
  set(header ${torch_dir}/include/c10/cuda/CUDACachingAllocator.h)
  file(STRINGS ${header} capture_marks REGEX "markCaptureBegin")
  file(STRINGS ${header} oom_rejection REGEX "allocateWithAddress")
  string(COMPARE NOTEQUAL "${capture_marks}" "" capture_marks)
  string(COMPARE NOTEQUAL "${oom_rejection}" "" oom_rejection)

  string(REPLACE pleat_bridge_ pleat_cuda_ target ${bridge})
  add_library(${target} SHARED ${CMAKE_CURRENT_SOURCE_DIR}/cuda/access_over_torch.cpp
              ${CMAKE_CURRENT_SOURCE_DIR}/cuda/allocator_in_front.cpp)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${target} PREFIX lib UNITY_BUILD ${PLEAT_UNITY})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(${target} SYSTEM PRIVATE ${torch_dir}/include
                             ${torch_dir}/include/torch/csrc/api/include ${cuda_headers})
  pleat_optimise(${target} -O2)
  target_compile_options(${target} PRIVATE -UNDEBUG)
  target_compile_definitions(${target} PRIVATE NDEBUG
    PLEAT_CUDA_HAS_CAPTURE_MARKS=$<BOOL:${capture_marks}>
    PLEAT_CUDA_HAS_OOM_REJECTION=$<BOOL:${oom_rejection}>)
  target_link_libraries(${target} PRIVATE pleat_cuda_codec ${torch_dir}/lib/libc10_cuda.so ${torch_dir}/lib/libc10.so)
  pleat_link_beside_torch(${target})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
