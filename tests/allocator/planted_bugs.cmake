# The lifecycle and the store with bugs in their order of things (planting.cmake): the suite of whole lives must find each.
set(planted_from ${PROJECT_SOURCE_DIR}/allocator)
include(${CMAKE_CURRENT_SOURCE_DIR}/../planting.cmake)

pleat_load_for_planting(lifecycle/residency.cpp)
pleat_load_for_planting(lifecycle/restoring.cpp)
pleat_load_for_planting(lifecycle/encoding.cpp)
pleat_load_for_planting(store/store.cpp)
pleat_load_for_planting(store/chunk_moves.cpp)

# ---- lifecycle: tag, restore, drop ----
pleat_plant("a pack on another stream is not noted" lifecycle/residency.cpp
  "if (stream != block->stream) memory_.note_use(block, stream);
}

// ---- release"
  "if (!PLANTED && stream != block->stream) memory_.note_use(block, stream);
}

// ---- release")
pleat_plant("an adopted block is read before it is written" lifecycle/restoring.cpp
  "order_.follow(stream, record.stream);
  // The end of a foreign stream"
  "if (!PLANTED) order_.follow(stream, record.stream);
  // The end of a foreign stream")
pleat_plant("an adopted block's new stream is not noted" lifecycle/restoring.cpp
  "if (stream != block->stream && !order_.is_foreign(stream)) memory_.note_use(block, stream);
  count"
  "if (!PLANTED && stream != block->stream && !order_.is_foreign(stream)) memory_.note_use(block, stream);
  count")
pleat_plant("an adopted block's encode goes on" lifecycle/restoring.cpp
  "record.stored = store_.forget(*in_flight);"
  "if (!PLANTED) record.stored = store_.forget(*in_flight);")
pleat_plant("raw bytes are copied before they are written" lifecycle/restoring.cpp
  ".written = has_bytes ? record.stream : record.restored->stream,"
  ".written = PLANTED ? stream : has_bytes ? record.stream : record.restored->stream,")
pleat_plant("a restored storage is read elsewhere before it is restored" lifecycle/restoring.cpp
  "order_.follow(stream, complete_for);"
  "if (!PLANTED) order_.follow(stream, complete_for);")
pleat_plant("a restored storage's second stream is not noted" lifecycle/restoring.cpp
  "if (!order_.is_foreign(stream)) memory_.note_use(restored, stream);"
  "if (!PLANTED && !order_.is_foreign(stream)) memory_.note_use(restored, stream);")
pleat_plant("a record dropped in flight keeps its payload" lifecycle/residency.cpp
  "record.stored = store_.forget(*in_flight);"
  "if (!PLANTED) record.stored = store_.forget(*in_flight);")
pleat_plant("a superseded storage still refers to its record" lifecycle/restoring.cpp
  "record.restored->record.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);"
  "if (!PLANTED) record.restored->record.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);")
pleat_plant("a dropped record stays on the list of what waits" lifecycle/residency.cpp
  "waiting_.remove(*record);
  count"
  "if (!PLANTED) waiting_.remove(*record);
  count")

# ---- lifecycle: start, in flight, finish ----
pleat_plant("the source is given back before the verdict" lifecycle/encoding.cpp
  "wait(scope, record, Hold::kVerdict);
    return;"
  "wait(scope, record, Hold::kVerdict);
    if (PLANTED) memory_.free(block);
    return;")
pleat_plant("a verdict is believed before it is there" lifecycle/encoding.cpp
  "return is_decided(r);"
  "return PLANTED ? std::holds_alternative<InFlight>(r.stored) : is_decided(r);")
pleat_plant_also(store/store.cpp
  "may_wait);
  if (result.status == CodecStatus::kQueued) return encode;"
  "may_wait);
  if (!PLANTED && result.status == CodecStatus::kQueued) return encode;")
pleat_plant("an encode begins although a proof is outstanding" lifecycle/residency.cpp
  "until != Hold::kNone) {"
  "!PLANTED && until != Hold::kNone) {")
pleat_plant("a record is started twice" lifecycle/encoding.cpp
  "if (record.state != RecordState::kWaiting || record.waiting.hold != Hold::kProof ||
        !waiting_.remove(record)) {"
  "if (!PLANTED && (record.state != RecordState::kWaiting || record.waiting.hold != Hold::kProof ||
        !waiting_.remove(record))) {")
pleat_plant_also(lifecycle/encoding.cpp
  "if (record.state != RecordState::kWaiting) {
      // Another thread restored"
  "if (!PLANTED && record.state != RecordState::kWaiting) {
      // Another thread restored")
pleat_plant("a wait for a proof never ends" lifecycle/encoding.cpp
  "const auto waits = [](const Record&) { return true; };"
  "const auto waits = [](const Record& r) { return !(PLANTED && r.waiting.hold == Hold::kProof); };")
pleat_plant("nothing bounds what waits" lifecycle/encoding.cpp
  "waiting_.bounded_count() > kAlways) {"
  "waiting_.bounded_count() > kAlways && !PLANTED) {")
pleat_plant("a block that a payload has is freed" lifecycle/encoding.cpp
  "if (block_beside(record.stored) == nullptr && !("
  "if ((PLANTED || block_beside(record.stored) == nullptr) && !(")

# ---- store ----
pleat_plant("a payload is read before it is written" store/store.cpp
  "order_.follow(on, payload.stream);
  DecodeRequest"
  "if (!PLANTED) order_.follow(on, payload.stream);
  DecodeRequest")
pleat_plant("a payload is given back under a decode" store/store.cpp
  "for (const StreamId reader : payload->readers) order_.follow(payload->stream, reader);
    arena_"
  "for (const StreamId reader : payload->readers) if (!PLANTED) order_.follow(payload->stream, reader);
    arena_")
pleat_plant("a reader of a payload is not noted" store/store.cpp
  "note_reader(payload, on);"
  "if (!PLANTED) note_reader(payload, on);")
pleat_plant("an encode on a stream that is captured" store/store.cpp
  "if (plan.room == 0 || order_.is_captured(put.stream)) return raw;"
  "if (plan.room == 0 || (!PLANTED && order_.is_captured(put.stream))) return raw;")
pleat_plant("in place while another stream reads" store/store.cpp
  "!memory_.used_elsewhere(put.block);"
  "(PLANTED || !memory_.used_elsewhere(put.block));")
pleat_plant("an encode that is given up late keeps its slot" store/store.cpp
  "discard(encode.slot);
  return Raw{encode.block};"
  "if (!PLANTED) discard(encode.slot);
  return Raw{encode.block};")
pleat_plant("an encode that is refused at once keeps its slot" store/store.cpp
  "discard(slot);
  return raw;"
  "if (!PLANTED) discard(slot);
  return raw;")
pleat_plant("a forgotten encode keeps its slot" store/store.cpp
  "discard(encode.slot);
  return {encode.block};"
  "if (!PLANTED) discard(encode.slot);
  return {encode.block};")
pleat_plant("a slot is freed twice" store/store.cpp
  "arena_.free(payload->slot);"
  "if (PLANTED) {
    PayloadSlot again = payload->slot;
    arena_.free(again);
  }
  arena_.free(payload->slot);")
pleat_plant("put twice" store/store.cpp
  "put.stored = stored(put);"
  "put.stored = stored(put);
    if (PLANTED && std::holds_alternative<Payload>(put.stored)) put.stored = stored(put);")
pleat_plant("get before put" store/store.cpp
  "codec_.encode(request, plan, slot.address(), slot.bytes);"
  "PLANTED ? EncodeResult{CodecStatus::kOk, slot.bytes, {}, {}} : codec_.encode(request, plan, slot.address(), slot.bytes);")
pleat_plant("the block next to a payload is lost" store/store.cpp
  "if (Block* const block = block_beside(stored)) memory_.free(block);"
  "if (Block* const block = PLANTED ? nullptr : block_beside(stored)) memory_.free(block);")
pleat_plant("the block next to a payload is copied before it is written" store/store.cpp
  "copy(get, beside);"
  "if (PLANTED) get.written = get.stream;
      copy(get, beside);")
pleat_plant("a recomputed record returns its argument" store/store.cpp
  "decode(get, *recomputed->argument, recomputed->function);"
  "decode(get, *recomputed->argument, PLANTED ? 0 : recomputed->function);")

# ---- store: chunks that move to a tier ----
pleat_plant("a chunk's block is freed before its copy is complete" store/chunk_moves.cpp
  "if (chunk == nullptr || !a.order->complete(chunk->copied)) continue;"
  "if (chunk == nullptr || (!PLANTED && !a.order->complete(chunk->copied))) continue;")
pleat_plant("a chunk on its way is given payloads" store/chunk_moves.cpp
  "if (Chunk* const of_several = shared(&chunk)) unlist(of_several);"
  "if (Chunk* const of_several = shared(&chunk); of_several != nullptr && !PLANTED) unlist(of_several);")
pleat_plant("a reader of a chunk that goes is not noted" store/chunk_moves.cpp
  "if (stream != chunk.stream) a.memory.note_use(chunk.block, stream);"
  "if (stream != chunk.stream && !PLANTED) a.memory.note_use(chunk.block, stream);")
pleat_plant("room of the tier is not given back" store/chunk_moves.cpp
  "tier->give(std::exchange(chunk.room, nullptr));
  chunk.block = block;"
  "if (!PLANTED) tier->give(chunk.room);
  chunk.room = nullptr;
  chunk.block = block;")
pleat_plant("a chunk dropped on its way is forgotten" store/chunk_moves.cpp
  "if (chunk.dropped) (void)drop_chunk(&chunk);"
  "if (chunk.dropped && !PLANTED) (void)drop_chunk(&chunk);")
pleat_plant("payloads in the tier count as memory" store/chunk_moves.cpp
  "if (of_several != nullptr) count_requested(scope, of_several->payload_bytes, 0);"
  "if (of_several != nullptr && !PLANTED) count_requested(scope, of_several->payload_bytes, 0);")

foreach(file lifecycle/residency.cpp lifecycle/restoring.cpp lifecycle/encoding.cpp store/store.cpp store/chunk_moves.cpp)
  pleat_write_planted(${file})
endforeach()
file(CONFIGURE OUTPUT ${planted_folder}/planted_names.h CONTENT
     "inline constexpr const char* kPlantedBugs[] = {\"@planted_names@\"};\n" @ONLY)

# An additional bug, found only if the sink takes all locks (lock_taker.h).
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
