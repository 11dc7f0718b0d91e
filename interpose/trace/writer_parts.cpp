// What the writer's thread makes of its book: another part of the file, and the page on stderr.
#include <algorithm>
#include <array>
#include <cstdio>

#include "interpose/trace/writer.h"

namespace pleat::trace {

// The part that is full is ended, and the next one begins with all names and with what lives. Where
// that would fill more than half of it, the trace ends.
bool Writer::begin_part() noexcept {
  if (most_bytes_ == 0) return false;
  file_.end();
  file_.close();
  const std::uint64_t time_ns = std::max(book_.time_ns(), part_ns_);
  if (parts_.create_next(file_, time_ns)) {
    part_ns_ = time_ns;
    file_.names(names_, modules_);
    const bool told =
        replay() && file_.state() == FileState::kOpen && file_.file_bytes() <= most_bytes_ / 4;
    if (told && parts_.publish(file_)) {
      fresh_part_ = true;
      return true;
    }
    parts_.drop_next();
  }
  file_.close_full();
  return false;
}

bool Writer::replay() noexcept {
  if (told_ == nullptr)
    told_ = static_cast<PleatTraceEvent*>(map_zeros(kToldAtOnce * sizeof *told_));
  if (told_ == nullptr) return false;
  told_count_ = 0;
  const auto tell = [](void* self, const PleatTraceEvent& event) {
    auto& writer = *static_cast<Writer*>(self);
    if (writer.told_count_ == kToldAtOnce) {
      writer.file_.records({writer.told_, writer.told_count_}, writer.base_);
      writer.told_count_ = 0;
    }
    writer.told_[writer.told_count_++] = event;
  };
  const bool complete = replay_.tell(book_, part_ns_, tell, this);
  file_.records({told_, told_count_}, base_);
  return complete;
}

// Of the device that had no memory last, or else of the one where most lives.
void Writer::write_page() noexcept {
  const BookAlarm& alarm = book_.alarm();
  int device = alarm.device;
  if (alarm.kind != PLEAT_TRACE_OUT_OF_MEMORY || !book_.device(device).heard_of) {
    book_.for_each_device([&](int index, const BookDevice& one) {
      if (one.now.live() > book_.device(device).now.live()) device = index;
    });
  }
  const char* const moment = alarm.kind == PLEAT_TRACE_OUT_OF_MEMORY ? "oom" : "dump";
  page_.compose(book_, lines_, pages_.title(), device, moment, parts_.path());
  write_to_stderr(page_.text());
}

}  // namespace pleat::trace
