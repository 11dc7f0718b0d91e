#include "allocator/store/store.h"

#include <algorithm>
#include <utility>

namespace pleat::allocator {

// ---- put ----------------------------------------------------------------------------------------

void Store::put(std::span<Put> puts) noexcept {
  for (Put& put : puts) {
    put.stored = stored(put);
  }
}

Stored Store::stored(const Put& put) noexcept {
  const Raw raw{put.block};
  EncodeRequest request{
      put.block->begin, put.bytes, put.ranges->data(), put.ranges->size(), put.choice,
      put.nonce,        put.key,   put.stream};
  const PinnedPayload argument =
      put.argument != nullptr ? pin(*put.argument, put.stream) : PinnedPayload();
  if (argument.view().data != nullptr) {
    request.argument = argument.view();
    request.function = put.function;
  }
  switch (put.form) {
    case StoreForm::kRaw:
      return raw;
    case StoreForm::kPlanned: {
      const EncodePlan plan = codec_.plan(request);
      return Raw{put.block, plan.room == 0 ? 0 : codec_.expected_bytes(request, plan)};
    }
    case StoreForm::kInPlace:
      request.thorough = true;  // an encode in place cannot be undone
      break;
    case StoreForm::kPayload:
    case StoreForm::kPayloadAndBlock:
      break;
  }
  CodecStatus status = CodecStatus::kOk;
  Stored stored = encoded(put, request, &status);
  if (status == CodecStatus::kPlanAgain && !request.thorough) {
    request.thorough = true;
    stored = encoded(put, request, &status);
  }
  return stored;
}

Stored Store::encoded(const Put& put, EncodeRequest& request, CodecStatus* status) noexcept {
  const EncodePlan plan = codec_.plan(request);
  *status = CodecStatus::kOk;
  const bool keeps_block = put.form == StoreForm::kPayloadAndBlock;
  if (plan.recomputed) {
    return Recomputed{put.argument, put.function, keeps_block ? put.block : nullptr};
  }
  const Raw raw{put.block};
  if (plan.room == 0 || order_.is_captured(put.stream)) return raw;
  // In place: no other stream may still use the block.
  const bool may_be_in_place =
      plan.in_place && put.stream == put.block->stream && !memory_.used_elsewhere(put.block);
  Stored stored = raw;
  if (may_be_in_place && put.form == StoreForm::kInPlace &&
      encode_in_place(put, request, plan, &stored, status)) {
    return stored;
  }
  PayloadSlot scratch;
  if (plan.scratch != 0 && !(scratch = arena_.allocate(plan.scratch, put.stream))) return raw;
  PayloadSlot slot = arena_.allocate(plan.room, put.stream, put.owner);
  if (!slot) {
    if (scratch) {
      discard(scratch);
    } else if (may_be_in_place && put.form == StoreForm::kPayload) {
      (void)encode_in_place(put, request, plan, &stored, status);
    }
    return stored;
  }
  request.scratch = scratch ? scratch.address() : nullptr;
  const EncodeResult result = codec_.encode(request, plan, slot.address(), slot.bytes);
  if (scratch) discard(scratch);
  *status = result.status;
  const InFlight encode{put.block,  slot,        result.ticket, put.stream,
                        put.ranges, keeps_block, put.tier};
  if (result.status == CodecStatus::kQueued) return encode;
  if (result.status == CodecStatus::kOk) return finished(encode, result);
  discard(slot);
  return raw;
}

bool Store::encode_in_place(const Put& put, const EncodeRequest& request, const EncodePlan& plan,
                            Stored* stored, CodecStatus* status) noexcept {
  PayloadSlot slot = arena_.adopt(put.block);
  if (!slot) return false;
  const EncodeResult result = codec_.encode(request, plan, slot.address(), put.block->bytes);
  *status = result.status;
  if (result.status != CodecStatus::kOk) {
    arena_.disown(slot);
    return false;
  }
  *stored = finished({put.block, slot, {}, put.stream, put.ranges, false, put.tier}, result);
  return true;
}

void Store::discard(PayloadSlot slot) noexcept {
  arena_.unpin(slot);
  arena_.free(slot);
}

Payload Store::finished(const InFlight& encode, const EncodeResult& result) noexcept {
  Payload payload{encode.slot,
                  result.payload_bytes,
                  result.form,
                  encode.stream,
                  encode.ranges,
                  encode.keeps_block ? encode.block : nullptr,
                  {}};
  if (payload.bytes < payload.slot.bytes) arena_.shrink(payload.slot, payload.bytes);
  arena_.unpin(payload.slot);
  if (encode.tier == Tier::kAway) arena_.send(payload.slot);
  return payload;
}

// ---- in flight ----------------------------------------------------------------------------------

Stored Store::verdict(const InFlight& encode, bool may_wait) noexcept {
  const EncodeResult result = codec_.verdict(encode.ticket, may_wait);
  if (result.status == CodecStatus::kQueued) return encode;
  if (result.status == CodecStatus::kOk) {
    return finished(encode, result);
  }
  discard(encode.slot);
  return Raw{encode.block};
}

Raw Store::forget(const InFlight& encode) noexcept {
  codec_.forget(encode.ticket);
  discard(encode.slot);
  return {encode.block};
}

void Store::free(Stored& stored) noexcept {
  if (auto* const payload = std::get_if<Payload>(&stored)) {
    for (const StreamId reader : payload->readers) order_.follow(payload->stream, reader);
    arena_.free(payload->slot);
  }
  if (Block* const block = block_beside(stored)) memory_.free(block);
}

// ---- get ----------------------------------------------------------------------------------------

void Store::get(std::span<Get> gets) noexcept {
  for (Get& get : gets) {
    if (Block* const raw = raw_block(*get.from)) {
      copy(get, raw);
      if (get.reading.noise == nullptr) continue;
      const StreamId on = order_.stand_in(get.stream);
      DecodeRequest request{
          .payload = {.ranges = get.ranges->data(), .range_count = get.ranges->size()},
          .target = get.target->begin,
          .target_bytes = get.bytes,
          .stream = on,
          .noise = get.reading.noise};
      get.status = decode(request);
      order_.follow(get.stream, on);
    } else if (Block* const beside = block_beside(*get.from);
               beside != nullptr && get.reading.original) {
      copy(get, beside);
    } else if (auto* const recomputed = std::get_if<Recomputed>(get.from)) {
      decode(get, *recomputed->argument, recomputed->function);
    } else {
      decode(get, std::get<Payload>(*get.from), 0);
    }
  }
}

void Store::copy(Get& get, Block* from) noexcept {
  const StreamId on = order_.stand_in(get.stream);
  order_.follow(on, get.written);
  if (on != from->stream) memory_.note_use(from, on);
  memory_.copy(get.target->begin, from->begin, get.bytes, on);
  order_.follow(get.stream, on);
}

void Store::decode(Get& get, Payload& payload, std::uint64_t function) noexcept {
  const StreamId on = order_.stand_in(get.stream);
  if (payload.form.has_scratch) {  // one decode at a time
    const std::lock_guard<std::mutex> guard(readers_mutex_);
    for (const StreamId reader : payload.readers) order_.follow(on, reader);
  }
  PinnedPayload pinned = pin(payload, on);
  if (pinned.view().data == nullptr) {
    get.short_of_memory = true;
    return;
  }
  order_.follow(on, payload.stream);
  DecodeRequest request{.payload = pinned.view(),
                        .target = get.target->begin,
                        .target_bytes = get.bytes,
                        .stream = on,
                        .noise = get.reading.noise,
                        .function = function};
  get.status = decode(request);
  note_reader(payload, on);
  order_.follow(get.stream, on);
  get.decoded = true;
  get.stays = order_.is_captured(get.stream);
  if (get.stays) pinned.keep_for_ever();
}

CodecStatus Store::decode(DecodeRequest& request) noexcept {
  PayloadSlot scratch;
  if (const std::size_t needed = codec_.decode_scratch(request); needed != 0) {
    if (!(scratch = arena_.allocate(needed, request.stream))) return CodecStatus::kFailed;
    request.scratch = scratch.address();
  }
  const CodecStatus status = codec_.decode(request);
  if (scratch) discard(scratch);
  return status;
}

// Records a read, so that the payload is not freed before the read is done. Called once the read is
// queued.
void Store::note_reader(Payload& payload, StreamId stream) noexcept {
  if (stream == payload.stream) [[likely]]
    return;
  const std::lock_guard<std::mutex> guard(readers_mutex_);
  std::vector<StreamId>& readers = payload.readers;
  if (std::find(readers.begin(), readers.end(), stream) != readers.end()) return;
  try {
    readers.push_back(stream);
  } catch (...) {
    // Order later work of the payload's stream after the read now instead of at the drop.
    order_.follow(payload.stream, stream);
  }
}

// ---- fork ---------------------------------------------------------------------------------------

void Store::lock_for_fork() noexcept {
  readers_mutex_.lock();
  arena_.lock_for_fork();
  memory_.lock_for_fork();
}

void Store::unlock_after_fork() noexcept {
  memory_.unlock_after_fork();
  arena_.unlock_after_fork();
  readers_mutex_.unlock();
}

}  // namespace pleat::allocator
