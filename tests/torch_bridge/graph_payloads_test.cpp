// What a compiled graph does with saved tensors: its operators `encode` and `decode` over the
// store's write() and read(). Every payload is a tensor of the graph, of a size known before any
// value; there is no record, no block and no verdict.
#include <gtest/gtest.h>

#include "allocator/store/write.h"
#include "tests/torch_bridge/device_codec_support.h"
#include "torch_bridge/core/codec_adapter.h"

namespace pleat::bridge::cuda {
namespace {

using namespace testing;
using allocator::BlockCodec;
using allocator::PayloadForm;

// ---- the operators ----

struct Payload {  // of tensor `source`; `form` stays on the host
  Bytes data;
  PayloadForm form;
};

Payload encode(BlockCodec& codec, const Bytes& source, const BlockSpec& spec, std::uint64_t nonce,
               StreamId stream) {
  Payload payload{Bytes(allocator::closed_bytes(codec, spec.pack(), source.size())), {}};
  EXPECT_EQ(allocator::write(codec,
                             {.source = source.data(),
                              .bytes = source.size(),
                              .choice = spec.pack(),
                              .nonce = nonce,
                              .target = payload.data.data(),
                              .stream = stream},
                             &payload.form),
            CodecStatus::kOk);
  return payload;
}

Bytes decode(BlockCodec& codec, const Payload& payload, std::size_t bytes, StreamId stream) {
  Bytes target(bytes);
  EXPECT_EQ(allocator::read(codec, payload.data.data(), payload.data.size(), payload.form,
                            target.data(), bytes, stream),
            CodecStatus::kOk);
  return target;
}

// ---- the graph ----

struct Saved {
  const char* name;
  BlockSpec spec;
  Bytes values;
};

std::vector<Saved> saved_by_a_block(ElementType type) {
  std::vector<Saved> saved;
  const auto lossy = [type](std::uint8_t bits) { return BlockSpec{.type = type, .bits = bits}; };
  Bytes odd = normal(type, 3001, 5, 3);
  set_value(type, odd.data(), 7, kInfinity);
  set_value(type, odd.data(), 2999, std::nan(""));
  saved.push_back({"input of a projection", lossy(4), normal(type, 40'000)});
  saved.push_back({"the same at 8 bits", lossy(8), normal(type, 40'000, 100, 2)});
  saved.push_back({"constant", lossy(4), floats(type, 777, [](std::size_t) { return 2.5; })});
  saved.push_back({"with NaN and infinity", lossy(4), std::move(odd)});
  saved.push_back({"argument of ReLU",
                   {.type = type, .kept = Kept::kSides, .sides = kSignOfRelu},
                   normal(type, 5000, 1, 4)});
  Bytes mask(1234);
  for (std::size_t i = 0; i < mask.size(); ++i) mask.data()[i] = i % 3 == 0;
  saved.push_back({"mask of dropout", {.type = ElementType::kBool}, std::move(mask)});
  return saved;
}

// Forward encodes in order, backward decodes in reverse; `run` lets the device work.
template <class Run>
void forward_and_backward(BlockCodec& codec, StreamId stream, Run&& run) {
  for (const ElementType type : kFloatTypes) {
    const std::vector<Saved> saved = saved_by_a_block(type);
    std::vector<Payload> payloads;
    for (const Saved& one : saved) {
      payloads.push_back(encode(codec, one.values, one.spec, 1000 * payloads.size(), stream));
    }
    run();
    for (std::size_t i = saved.size(); i-- > 0;) {
      const Saved& one = saved[i];
      SCOPED_TRACE(one.name);
      EXPECT_TRUE(payloads[i].data.guard_intact()) << "written beyond the closed size";
      EXPECT_LT(payloads[i].data.size(), one.values.size());
      const Bytes back = decode(codec, payloads[i], one.values.size(), stream);
      run();
      if (one.spec.type == ElementType::kBool) {
        EXPECT_SAME_BITS(back, one.values);
      } else if (one.spec.kept == Kept::kSides) {
        EXPECT_EQ(other_side(type, kSignOfRelu, one.values, back), "");
      } else {
        const std::size_t elements = one.values.size() / element_size(type);
        const bool odd = i == 3;
        EXPECT_EQ(beyond_step(type, one.spec.bits, one.values.data(), back.data(), elements,
                              [odd](std::size_t e) { return odd && (e < 256 || e >= 2816); }),
                  "");
      }
    }
  }
}

TEST(GraphPayloads, OnTheHost) {
  CodecAdapter codec(compress::serial_executor(), false);
  forward_and_backward(codec, {}, [] {});
}

class GraphPayloadsOnADevice : public DeviceBlockCodecTest {};

TEST_F(GraphPayloadsOnADevice, NobodyWaits) {
  device_.holds = true;
  forward_and_backward(codec_, kStream, [this] { device_.run(); });
  EXPECT_EQ(device_.waits, 0);
  EXPECT_EQ(words_left(), DeviceWords::kSlots) << "no verdict is asked for";
  EXPECT_EQ(allocator::closed_bytes(codec_, BlockSpec{.type = ElementType::kFloat32}.pack(), 4096),
            0u)
      << "exact floats have no closed form on a device: the graph keeps them";
}

}  // namespace
}  // namespace pleat::bridge::cuda
