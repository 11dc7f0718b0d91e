#include "allocator/store/store.h"

#include <algorithm>
#include <memory>
#include <new>
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
  if (put.argument != nullptr) {
    request.argument = put.argument->view();
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
  if (plan.recomputed) return Recomputed{put.argument, put.function};
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
      arena_.free(scratch);
    } else if (may_be_in_place && put.form == StoreForm::kPayload) {
      (void)encode_in_place(put, request, plan, &stored, status);
    }
    return stored;
  }
  request.scratch = scratch ? scratch.address() : nullptr;
  const EncodeResult result = codec_.encode(request, plan, slot.address(), slot.bytes);
  if (scratch) arena_.free(scratch);
  *status = result.status;
  const InFlight encode{put.block,  slot,       result.ticket,
                        put.stream, put.ranges, put.form == StoreForm::kPayloadAndBlock};
  if (result.status == CodecStatus::kQueued) return encode;
  if (result.status == CodecStatus::kOk) return finished(encode, result);
  arena_.free(slot);
  return raw;
}

bool Store::encode_in_place(const Put& put, const EncodeRequest& request, const EncodePlan& plan,
                            Stored* stored, CodecStatus* status) noexcept {
  std::unique_ptr<PayloadChunk> chunk(
      new (std::nothrow) PayloadChunk{PayloadChunk::Kind::kInPlace, put.block, put.stream});
  if (chunk == nullptr) return false;
  const EncodeResult result = codec_.encode(request, plan, put.block->begin, put.block->bytes);
  *status = result.status;
  if (result.status != CodecStatus::kOk) return false;
  const PayloadSlot slot{chunk.release(), 0, put.block->requested};
  *stored = finished({put.block, slot, {}, put.stream, put.ranges}, result);
  return true;
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
  return payload;
}

// ---- in flight ----------------------------------------------------------------------------------

Stored Store::verdict(const InFlight& encode, bool may_wait) noexcept {
  const EncodeResult result = codec_.verdict(encode.ticket, may_wait);
  if (result.status == CodecStatus::kQueued) return encode;
  if (result.status == CodecStatus::kOk) {
    return finished(encode, result);
  }
  PayloadSlot slot = encode.slot;
  arena_.free(slot);
  return Raw{encode.block};
}

Raw Store::forget(const InFlight& encode) noexcept {
  codec_.forget(encode.ticket);
  PayloadSlot slot = encode.slot;
  arena_.free(slot);
  return {encode.block};
}

void Store::free(Payload& payload) noexcept {
  for (const StreamId reader : payload.readers) order_.follow(payload.stream, reader);
  arena_.free(payload.slot);
  if (payload.block != nullptr) memory_.free(payload.block);
}

// ---- get ----------------------------------------------------------------------------------------

void Store::get(std::span<Get> gets) noexcept {
  for (Get& get : gets) {
    if (Block* const raw = raw_block(*get.from)) {
      copy(get, raw, get.written);
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
    } else if (auto* const recomputed = std::get_if<Recomputed>(get.from)) {
      decode(get, *recomputed->argument, recomputed->function);
    } else if (auto& payload = std::get<Payload>(*get.from);
               payload.block != nullptr && get.reading.original) {
      copy(get, payload.block, payload.stream);
    } else {
      decode(get, payload, 0);
    }
  }
}

void Store::copy(Get& get, Block* from, StreamId written) noexcept {
  const StreamId on = order_.stand_in(get.stream);
  order_.follow(on, written);
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
  order_.follow(on, payload.stream);
  DecodeRequest request{.payload = payload.view(),
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
}

CodecStatus Store::decode(DecodeRequest& request) noexcept {
  PayloadSlot scratch;
  if (const std::size_t needed = codec_.decode_scratch(request); needed != 0) {
    if (!(scratch = arena_.allocate(needed, request.stream))) return CodecStatus::kFailed;
    request.scratch = scratch.address();
  }
  const CodecStatus status = codec_.decode(request);
  if (scratch) arena_.free(scratch);
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
