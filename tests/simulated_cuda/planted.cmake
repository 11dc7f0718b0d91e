# Pleat with bugs in its handling of CUDA devices (../planting.cmake), for test_planted.py: the
# oracle or the values of the simulation must object to each. Built next to libpleat.so in a folder
# of its own, never installed.
# The bridge's objects are the regular ones; only sources without torch have bugs. PLEAT_PLANTED
# names the bug of a process.
set(planted_from ${PROJECT_SOURCE_DIR})
include(${CMAKE_CURRENT_SOURCE_DIR}/../planting.cmake)
set(planted_files allocator/cuda/driver.cpp allocator/cuda/memory_in_front.cpp allocator/cuda/stream_events.cpp
                  allocator/lifecycle/encoding.cpp
                  allocator/lifecycle/residency.cpp allocator/lifecycle/restoring.cpp
                  allocator/store/store.cpp
                  torch_bridge/cuda/expected_payload.cpp)
foreach(file ${planted_files})
  pleat_load_for_planting(${file})
endforeach()

# ---- encode and its source ----
pleat_plant("encode not after the last use" allocator/lifecycle/encoding.cpp
  ".stream = record.stream,"
  ".stream = PLANTED ? raw_block(record.stored)->stream : record.stream,")
pleat_plant("source back before its encode" allocator/lifecycle/residency.cpp
  "if (stream != block->stream) memory_.note_use(block, stream);"
  "if (!PLANTED && stream != block->stream) memory_.note_use(block, stream);")
pleat_plant("gated source reused" allocator/store/store.cpp
  "if (result.status == CodecStatus::kQueued) return encode;
  if (result.status == CodecStatus::kOk) return finished(encode, result);
  discard(slot);"
  "if (!PLANTED && result.status == CodecStatus::kQueued) return encode;
  if (result.status == CodecStatus::kOk || PLANTED) return finished(encode, {CodecStatus::kOk, slot.bytes, result.form, {}});
  discard(slot);")
pleat_plant("verdict believed early" torch_bridge/cuda/expected_payload.cpp
  "bool all = true;
  each_slot"
  "bool all = true;
  if (PLANTED) return true;
  each_slot")
pleat_plant_also(torch_bridge/cuda/expected_payload.cpp
  "found.done = found.done && v.outcome == Outcome::kDone;"
  "found.done = found.done && (v.outcome == Outcome::kDone || (PLANTED && v.outcome == Outcome::kPending));")
pleat_plant("encode under capture" allocator/store/store.cpp
  "if (plan.room == 0 || order_.is_captured(put.stream)) return raw;"
  "if (plan.room == 0 || (!PLANTED && order_.is_captured(put.stream))) return raw;")
pleat_plant_also(allocator/cuda/memory_in_front.cpp
  "!raw_.is_private(events_.device(), stream);"
  "(PLANTED || !raw_.is_private(events_.device(), stream));")
# Residency knows no current stream; the stream of this thread's last pack replaces it.
pleat_plant("encode after a late proof on the proving thread's stream" allocator/lifecycle/residency.cpp
  "if (record.restored != block) record.stream = stream;"
  "if (PLANTED) planted_current_stream = stream.value;
  if (record.restored != block) record.stream = stream;")
pleat_plant_also(allocator/lifecycle/encoding.cpp
  "store_.put({&put, 1});"
  "planted_late = PLANTED && start == Start::kProof;
  store_.put({&put, 1});")
pleat_plant_also(allocator/store/store.cpp
  "put.stream};
  const PinnedPayload"
  "PLANTED && planted_late ? StreamId{planted_current_stream} : put.stream};
  const PinnedPayload")

# ---- payloads and restored storages ----
pleat_plant("payload freed under a decode" allocator/store/store.cpp
  "for (const StreamId reader : payload->readers) order_.follow(payload->stream, reader);"
  "for (const StreamId reader : payload->readers) if (!PLANTED) order_.follow(payload->stream, reader);")
pleat_plant("two restores of one payload at once" allocator/store/store.cpp
  "for (const StreamId reader : payload.readers) order_.follow(on, reader);"
  "for (const StreamId reader : payload.readers) if (!PLANTED) order_.follow(on, reader);")
pleat_plant("restore read elsewhere without a wait" allocator/lifecycle/restoring.cpp
  "order_.follow(stream, complete_for);"
  "if (!PLANTED) order_.follow(stream, complete_for);")

# ---- devices, streams, the driver ----
# Torch's first stream is 0 on every device; the current context decides which one it means.
pleat_plant("the current device's stream for another device's tensor" allocator/cuda/driver.cpp
  "life.note(driver.context_device(&of)) == kSuccess && of == device) {"
  "life.note(driver.context_device(&of)) == kSuccess && (PLANTED || of == device)) {")
pleat_plant("event of a destroyed stream" allocator/cuda/stream_events.cpp
  "if (ours.value == 0) return false;"
  "if (PLANTED) {
    *stand_in = stream;
    return true;
  }
  if (ours.value == 0) return false;")
pleat_plant("driver call in a child" allocator/cuda/driver.cpp
  "if (!life.may_call()) return;"
  "if (!PLANTED && !life.may_call()) return;")
pleat_plant("call after DEINITIALIZED" allocator/cuda/driver.cpp
  "current_ = true;  // nearly always"
  "current_ = true;
    if (PLANTED) planted_at_end = driver.context_current;  // something of ours is freed very late")

foreach(file ${planted_files})
  pleat_write_planted(${file})
endforeach()
file(CONFIGURE OUTPUT ${planted_folder}/planted_names.h CONTENT
     "inline constexpr const char* kPlantedBugs[] = {\"@planted_names@\"};\n" @ONLY)

# The objects of the library: the codec is in the library next to the bridge.
set(planted_of_bridge ${planted_files})
list(FILTER planted_of_bridge EXCLUDE REGEX "^torch_bridge/cuda/")
set(planted_of_cuda ${planted_files})
foreach(library bridge cuda)
  list(TRANSFORM planted_of_${library} PREPEND ${planted_folder}/)
  add_library(simulated_cuda_planted_${library} OBJECT ${planted_of_${library}} planted.cpp)
  set_target_properties(simulated_cuda_planted_${library} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(simulated_cuda_planted_${library} PRIVATE ${planted_folder})
  target_compile_options(simulated_cuda_planted_${library} PRIVATE -include ${CMAKE_CURRENT_SOURCE_DIR}/planted.h)
endforeach()
set(planted_libraries ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/planted)

# The bridge and the library next to it once more: their own objects take the planted sources before
# those of the archives.
function(pleat_add_planted version)
  if(NOT TARGET pleat_cuda_torch${version})
    return()
  endif()
  foreach(library bridge cuda)
    set(of pleat_${library}_torch${version})
    set(target simulated_cuda_planted_${library}_torch${version})
    add_library(${target} SHARED $<TARGET_OBJECTS:${of}> $<TARGET_OBJECTS:simulated_cuda_planted_${library}>)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME ${of} PREFIX lib SKIP_BUILD_RPATH ON
                          LIBRARY_OUTPUT_DIRECTORY ${planted_libraries})
    target_link_libraries(${target} PRIVATE $<TARGET_PROPERTY:${of},LINK_LIBRARIES>)
    target_link_options(${target} PRIVATE $<TARGET_PROPERTY:${of},LINK_OPTIONS>)
  endforeach()
endfunction()
add_custom_command(
  OUTPUT ${planted_libraries}/libpleat.so
  COMMAND ${CMAKE_COMMAND} -E make_directory ${planted_libraries}
  COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:pleat_preload> ${planted_libraries}/libpleat.so
  DEPENDS pleat_preload)
add_custom_target(simulated_cuda_planted_preload ALL DEPENDS ${planted_libraries}/libpleat.so)
