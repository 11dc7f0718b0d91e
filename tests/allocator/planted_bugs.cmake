# Residency with bugs in its order of things (planting.cmake): the suite of whole lives must find each.
set(planted_from ${PROJECT_SOURCE_DIR}/allocator/residency)
include(${CMAKE_CURRENT_SOURCE_DIR}/../planting.cmake)

pleat_load_for_planting(residency.cpp)
pleat_load_for_planting(restoring.cpp)
pleat_load_for_planting(encoding.cpp)

# ---- residency.cpp: tag, restore, drop ----
pleat_plant("a pack on another stream is not noted" residency.cpp
  "if (stream != block->stream) memory_.note_use(block, stream);
}

// ---- release"
  "if (!PLANTED && stream != block->stream) memory_.note_use(block, stream);
}

// ---- release")
pleat_plant("an adopted block is read before it is written" restoring.cpp
  "order_.follow(stream, record.stream);
  // The end of a foreign stream"
  "if (!PLANTED) order_.follow(stream, record.stream);
  // The end of a foreign stream")
pleat_plant("an adopted block's new stream is not noted" restoring.cpp
  "if (stream != block->stream && !order_.is_foreign(stream)) memory_.note_use(block, stream);
  count_raw"
  "if (!PLANTED && stream != block->stream && !order_.is_foreign(stream)) memory_.note_use(block, stream);
  count_raw")
pleat_plant("an adopted block's encode goes on" restoring.cpp
  "if (record.ticket.value != 0) {
    codec_.forget(record.ticket);
    record.ticket = {};"
  "if (!PLANTED && record.ticket.value != 0) {
    codec_.forget(record.ticket);
    record.ticket = {};")
pleat_plant("raw bytes are copied before they are written" restoring.cpp
  "order_.follow(on, raw == record.block ? record.stream : raw->stream);"
  "if (!PLANTED) order_.follow(on, raw == record.block ? record.stream : raw->stream);")
pleat_plant("a payload is read before it is written" restoring.cpp
  "order_.follow(on, holder.stream);
  const DisturbanceWords* const noise"
  "if (!PLANTED) order_.follow(on, holder.stream);
  const DisturbanceWords* const noise")
pleat_plant("a payload is given back under a decode" residency.cpp
  "for (const StreamId reader : record.readers) order_.follow(record.stream, reader);"
  "for (const StreamId reader : record.readers) if (!PLANTED) order_.follow(record.stream, reader);")
pleat_plant("a restored storage is read elsewhere before it is restored" restoring.cpp
  "order_.follow(stream, complete_for);"
  "if (!PLANTED) order_.follow(stream, complete_for);")
pleat_plant("a restored storage's second stream is not noted" restoring.cpp
  "if (!order_.is_foreign(stream)) memory_.note_use(restored, stream);"
  "if (!PLANTED && !order_.is_foreign(stream)) memory_.note_use(restored, stream);")
pleat_plant("a record dropped in flight keeps its payload" residency.cpp
  "if (record->ticket.value != 0) {
    codec_.forget(record->ticket);
    arena_.free(record->payload);"
  "if (!PLANTED && record->ticket.value != 0) {
    codec_.forget(record->ticket);
    arena_.free(record->payload);")
pleat_plant("a superseded storage still refers to its record" restoring.cpp
  "record.restored->record.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);"
  "if (!PLANTED) record.restored->record.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);")
pleat_plant("a dropped record stays on the list of what waits" residency.cpp
  "waiting_.remove(*record);
  const RecordState last"
  "if (!PLANTED) waiting_.remove(*record);
  const RecordState last")

# ---- encoding.cpp: start, in flight, finish ----
pleat_plant("the source is given back before the verdict" encoding.cpp
  "if (result.status == CodecStatus::kQueued) {
    record.payload"
  "if (!PLANTED && result.status == CodecStatus::kQueued) {
    record.payload")
pleat_plant("a verdict is believed before it is there" encoding.cpp
  "return r.hold == Hold::kVerdict && codec_.is_decided(r.ticket);"
  "return r.hold == Hold::kVerdict && (PLANTED || codec_.is_decided(r.ticket));")
pleat_plant("an encode begins although a proof is outstanding" encoding.cpp
  "if (record.awaits_proof()) return AtRelease::kWaitForProof;"
  "if (!PLANTED && record.awaits_proof()) return AtRelease::kWaitForProof;")
pleat_plant("a record is started twice" encoding.cpp
  "if (record.state != RecordState::kWaiting || record.hold != Hold::kProof ||
        !waiting_.remove(record)) {"
  "if (!PLANTED && (record.state != RecordState::kWaiting || record.hold != Hold::kProof ||
        !waiting_.remove(record))) {")
pleat_plant_also(encoding.cpp
  "if (record.state != RecordState::kWaiting) {
      // Another thread restored"
  "if (!PLANTED && record.state != RecordState::kWaiting) {
      // Another thread restored")
pleat_plant("a wait for a proof never ends" encoding.cpp
  "end_oldest_wait(shortage, [](const Record&) { return true; })"
  "end_oldest_wait(shortage, [](const Record& r) { return !(PLANTED && r.hold == Hold::kProof); })")
pleat_plant("nothing bounds what waits" encoding.cpp
  "waiting_.bounded_count() > kAlways) {"
  "waiting_.bounded_count() > kAlways && !PLANTED) {")
pleat_plant("an encode on a stream that is captured" encoding.cpp
  "if (plan.room == 0 || order_.is_captured(record.stream)) return {};"
  "if (plan.room == 0 || (!PLANTED && order_.is_captured(record.stream))) return {};")
pleat_plant("in place while another stream reads" encoding.cpp
  "!memory_.used_elsewhere(record.block);"
  "(PLANTED || !memory_.used_elsewhere(record.block));")
pleat_plant("a record that is given up late keeps its payload" encoding.cpp
  "if (attempt.slot) {"
  "if (!PLANTED && attempt.slot) {")

pleat_write_planted(residency.cpp)
pleat_write_planted(restoring.cpp)
pleat_write_planted(encoding.cpp)
file(CONFIGURE OUTPUT ${planted_folder}/planted_names.h CONTENT
     "inline constexpr const char* kPlantedBugs[] = {\"@planted_names@\"};\n" @ONLY)

# An additional bug, found only if the sink takes all locks (lock_taker.h).
set(planted_from ${PROJECT_SOURCE_DIR}/allocator)
pleat_load_for_planting(event_sink.cpp)
pleat_plant("an event is told where it happens, under the locks" event_sink.cpp
  "changed_ = false;
  } catch"
  "changed_ = false;
    if (PLANTED) {
      const Noted now = root_->noted_.back();
      root_->noted_.pop_back();
      now.source->deliver(now.event);
    }
  } catch")
pleat_write_planted(event_sink.cpp)
file(CONFIGURE OUTPUT ${planted_folder}/planted_event.h CONTENT
     "inline constexpr int kToldUnderOurLocks = @planted_number@;\n" @ONLY)
