// The codec of a CUDA device where things come late, fail, or happen side by side.
#include <chrono>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "tests/torch_bridge/device_codec_support.h"

namespace pleat::bridge::cuda {
namespace {

using namespace testing;

// ---- words ----

TEST_F(DeviceBlockCodecTest, WithoutWordsForVerdictsABlockIsHeldAndLaterOnesAreNot) {
  device_.holds = true;
  const Bytes source = integers<bool>(4096, [](std::size_t e) { return e % 2 == 0; });
  std::deque<Coded> queued;
  for (std::size_t i = 0; i < DeviceWords::kSlots - 1; ++i) {
    queued.push_back(encode({.type = ElementType::kBool}, source, 1000 + i));
    ASSERT_EQ(queued.back().result.status, CodecStatus::kQueued);
  }
  const std::size_t launches = device_.launches.size();
  const std::vector<ByteRange> three{{0, 1000}, {1001, 2000}, {3000, 4000}};
  EXPECT_EQ(encode({.type = ElementType::kBool}, source, 10, three).result.status,
            CodecStatus::kKeepRaw);
  EXPECT_EQ(held_for(DeviceHold::kNoWords), 1u);
  EXPECT_EQ(device_.launches.size(), launches) << "nothing is queued";
  // The word that it had taken is there for one that needs no more.
  queued.push_back(encode({.type = ElementType::kBool}, source, 11));
  EXPECT_EQ(queued.back().result.status, CodecStatus::kQueued);
  EXPECT_EQ(encode({.type = ElementType::kBool}, source, 12).result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(held_for(DeviceHold::kNoWords), 2u);
  // What needs no verdict goes on.
  const Bytes values = normal(ElementType::kFloat32, 1000);
  EXPECT_EQ(encode({.type = ElementType::kFloat32, .bits = 4}, values, 2).result.status,
            CodecStatus::kOk);
  device_.run();
  for (Coded& coded : queued) {
    coded.result = codec_.verdict(coded.result.ticket, false);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  }
  EXPECT_SAME_BITS(restored(queued.front()), source);
  EXPECT_EQ(words_left(), DeviceWords::kSlots);
}

TEST_F(DeviceBlockCodecTest, VerdictsMayComeOneByOneInAnyOrderOfAsking) {
  device_.holds = true;
  const Bytes source = normal(ElementType::kFloat32, 2000);
  std::deque<Coded> queued;
  for (std::uint64_t i = 0; i < 6; ++i) {
    queued.push_back(encode({.type = ElementType::kFloat32, .bits = 2}, source, i));
  }
  for (std::size_t done = 1; done <= queued.size(); ++done) {
    while (!codec_.is_decided(queued[done - 1].result.ticket)) ASSERT_TRUE(device_.run_next());
    for (std::size_t i = queued.size(); i-- > 0;) {
      EXPECT_EQ(codec_.is_decided(queued[i].result.ticket), i < done) << i << " of " << done;
    }
  }
  for (std::size_t i = queued.size(); i-- > 0;) {
    Coded& coded = queued[i];
    coded.result = codec_.verdict(coded.result.ticket, false);
    ASSERT_EQ(coded.result.status, CodecStatus::kOk);
    EXPECT_EQ(beyond_step(ElementType::kFloat32, 2, source, restored(coded)), "");
  }
}

TEST_F(DeviceBlockCodecTest, APayloadOfSeveralVerdictsIsDecidedByTheLast) {
  device_.holds = true;
  const Sheet sheet{.look = Look::kColumns, .flat = every(3, 20)};
  BlockSpec spec = sheet.spec();
  spec.near_zero = true;
  const Bytes source = floats(ElementType::kFloat32, sheet.rows * sheet.length, [&](std::size_t e) {
    return sheet.flat.contains(e % sheet.length) ? -3.0 : -2 - double(e * 31 % 512) / 8;
  });
  const Coded queued = encode(spec, source);
  ASSERT_EQ(queued.result.status, CodecStatus::kQueued);
  const std::size_t launches = device_.launches.size();
  EXPECT_EQ(launches, 4u) << "codes, near zero, and two for columns";
  for (std::size_t i = 0; i < launches; ++i) {
    EXPECT_FALSE(codec_.is_decided(queued.result.ticket)) << i;
    device_.run_next();
  }
  EXPECT_TRUE(codec_.is_decided(queued.result.ticket));
}

TEST_F(DeviceBlockCodecTest, TheWordOfAForgottenVerdictIsTheDevicesUntilItHasWrittenIt) {
  device_.holds = true;
  const BlockSpec spec{.type = ElementType::kBool};
  const Bytes source = integers<bool>(4096, [](std::size_t e) { return e % 2 == 0; });
  const Coded forgotten = encode(spec, source);
  ASSERT_EQ(forgotten.result.status, CodecStatus::kQueued);
  const void* const word = device_.launches.at(0).verdicts.at(0);
  codec_.forget(forgotten.result.ticket);
  EXPECT_EQ(codec_.verdict(forgotten.result.ticket, true).status, CodecStatus::kKeepRaw)
      << "nobody will ask";
  std::deque<Coded> others;
  do {
    others.push_back(encode(spec, source, 1000 + others.size()));
  } while (others.back().result.status == CodecStatus::kQueued);
  EXPECT_EQ(others.size() - 1, DeviceWords::kSlots - 1);
  for (std::size_t i = 1; i < device_.launches.size(); ++i) {
    ASSERT_NE(device_.launches[i].verdicts.at(0), word);
  }
  ASSERT_TRUE(device_.run_next());  // that of the forgotten one
  const Coded next = encode({.type = ElementType::kBool}, source, 2);
  ASSERT_EQ(next.result.status, CodecStatus::kQueued);
  EXPECT_EQ(device_.launches.back().verdicts.at(0), word);
  // It has taught its key all the same, and counts as no payload and no surprise.
  EXPECT_EQ(encode(spec, source).result.status, CodecStatus::kOk);
  EXPECT_EQ(surprises(), 0u);
  EXPECT_EQ(codec_.counts().totals.boolean.payloads, 1u);
}

TEST_F(DeviceBlockCodecTest, AForgottenPayloadThatIsRefusedIsNoSurprise) {
  device_.holds = true;
  const Bytes bytes = integers<std::uint8_t>(4096, [](std::size_t e) { return e % 3; });
  codec_.forget(encode({.type = ElementType::kBool}, bytes).result.ticket);
  device_.run();
  EXPECT_TRUE(encode({.type = ElementType::kBool}, bytes).held()) << "the key has learned of it";
  EXPECT_EQ(surprises(), 0u);
}

TEST_F(DeviceBlockCodecTest, ForgettingWhatIsNotThereDoesNothing) {
  codec_.forget({});
  codec_.forget({12345});
  EXPECT_TRUE(codec_.is_decided({12345}));
  EXPECT_EQ(codec_.verdict({12345}, true).status, CodecStatus::kKeepRaw);
  EXPECT_EQ(device_.waits, 0);
}

TEST_F(DeviceBlockCodecTest, AVerdictThatIsWaitedForWaitsForItsStreamOnly) {
  device_.holds = true;
  const Bytes source = normal(ElementType::kFloat32, 2000);
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 2};
  Coded mine = encode(spec, source, 1, {}, StreamId{0x60});
  const Coded others = encode(spec, source, 2, {}, StreamId{0x70});
  mine.result = codec_.verdict(mine.result.ticket, true);
  ASSERT_EQ(mine.result.status, CodecStatus::kOk);
  EXPECT_EQ(device_.waits, 1);
  EXPECT_FALSE(codec_.is_decided(others.result.ticket));
  EXPECT_EQ(beyond_step(ElementType::kFloat32, 2, source, restored(mine)), "");
  EXPECT_EQ(codec_.verdict(others.result.ticket, true).status, CodecStatus::kOk);
  EXPECT_EQ(device_.waits, 1) << "what is decided is not waited for";
}

TEST_F(DeviceBlockCodecTest, OfADeviceThatNeverAnswersTheBlockIsHeld) {
  device_.holds = true;
  const Bytes source = normal(ElementType::kFloat32, 2000);
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 2};
  device_.never_answers = true;
  device_.wait_error = HeldDevice::kLaunchFailed;
  const Coded first = encode(spec, source, 1);
  EXPECT_EQ(codec_.verdict(first.result.ticket, true).status, CodecStatus::kKeepRaw);
  EXPECT_EQ(codec_.verdict(first.result.ticket, true).status, CodecStatus::kKeepRaw);
  EXPECT_EQ(device_.waits, 1) << "once";
  device_.gone = true;  // the driver has ended with the process
  device_.wait_error = 0;
  const Coded second = encode(spec, source, 2);
  EXPECT_EQ(second.result.status, CodecStatus::kKeepRaw);
  EXPECT_FALSE(life_.may_call());
  const int calls = device_.calls;
  EXPECT_EQ(encode(spec, source, 3).result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(device_.calls, calls) << "never called again";
  EXPECT_EQ(held_for(DeviceHold::kNoDevice), 2u);
  device_.run();  // what it has of ours it may still write
}

// ---- launches that fail ----

class Failing : public DeviceBlockCodecTest {
 protected:
  // Codes, sides, elements near zero and columns: all that a payload may have.
  Failing() {
    spec_ = sheet_.spec();
    spec_.near_zero = true;
    spec_.sides = {Sides::Kind::kOpen, false, -4, kInfinity};
    for (std::size_t e = 0; e < sheet_.rows * sheet_.length; ++e) {
      set_value(ElementType::kFloat32, source_.data(), e,
                e % 2000 == 7 ? -0.25 : -2 - double(e * 31 % 512) / 64);
    }
  }
  const Sheet sheet_{.look = Look::kColumns};
  BlockSpec spec_;
  Bytes source_{sheet_.rows * sheet_.length * 4};
};

TEST_F(Failing, AnEncodeOfWhichALaunchFailsHoldsTheBlock) {
  std::size_t n = 0;
  for (;; ++n) {
    device_.launches_until_failure = n;
    const Coded coded = encode(spec_, source_, n);
    device_.launches_until_failure = HeldDevice::kNone;
    if (coded.result.status != CodecStatus::kKeepRaw) break;
    EXPECT_EQ(held_for(DeviceHold::kNoDevice), n + 1);
    ASSERT_LT(n, 10u);
  }
  EXPECT_EQ(n, 5u) << "codes, sides, near zero, and two for columns";
  EXPECT_TRUE(life_.may_call()) << "such an error is the job's to find";
  // Nobody knows what the device will do of these: their words, three each, stay taken. So do those
  // of the last one, whose verdict nobody has taken.
  EXPECT_EQ(words_left(), DeviceWords::kSlots - 6 * 3);
}

TEST_F(Failing, ADecodeOfWhichALaunchFailsSaysSo) {
  const Coded coded = settled(spec_, source_);
  ASSERT_EQ(coded.result.status, CodecStatus::kOk);
  ASSERT_EQ(coded.form().side_bits, 1);
  for (std::size_t n = 0; n < 4; ++n) {
    device_.launches_until_failure = n;
    restored(coded, kStream, CodecStatus::kFailed);
  }
  device_.launches_until_failure = 4;
  const Bytes back = restored(coded);
  EXPECT_EQ(other_side(ElementType::kFloat32, spec_.sides, source_, back), "");
  EXPECT_EQ(beyond_step(ElementType::kFloat32, 4, source_, back), "");
  for (std::size_t e = 7; e < sheet_.rows * sheet_.length; e += 2000) {
    EXPECT_EQ(value_at(ElementType::kFloat32, back.data(), e), -0.25);
  }
}

TEST_F(Failing, ADriverThatSaysThatItIsGoneIsNotCalledAgain) {
  const Coded coded = settled(spec_, source_);
  device_.launches_until_failure = 0;
  device_.launch_error = allocator::cuda::kDeinitialized;
  EXPECT_EQ(encode(spec_, source_, 2).result.status, CodecStatus::kKeepRaw);
  EXPECT_FALSE(life_.may_call());
  const int calls = device_.calls;
  const std::size_t launches = device_.launches.size();
  restored(coded, kStream, CodecStatus::kFailed);
  encode(spec_, source_, 3);
  EXPECT_EQ(device_.calls, calls);
  EXPECT_EQ(device_.launches.size(), launches);
}

TEST_F(DeviceBlockCodecTest, BeyondTheLastStreamWithWordsOfItsOwnBlocksAreHeldAndComeBack) {
  device_.holds = true;
  const Bytes source = normal(ElementType::kFloat32, 200);  // too few for a sample
  const BlockSpec spec{.type = ElementType::kFloat32, .bits = 4};
  const Coded coded = encode(spec, source);
  // That of open() is one.
  const std::size_t own = DeviceWords::kWorkspaces - DeviceWords::kOfGraphs - 1;
  for (std::uint64_t stream = 1; stream < own; ++stream) {
    ASSERT_EQ(encode(spec, source, 1, {}, StreamId{0x1000 + stream}).result.status,
              CodecStatus::kOk);
  }
  device_.run();
  const StreamId late{0x9000}, later{0x9001};
  EXPECT_EQ(encode(spec, source, 1, {}, late).result.status, CodecStatus::kKeepRaw);
  EXPECT_EQ(held_for(DeviceHold::kNoDevice), 1u);
  EXPECT_EQ(device_.waits, 0);
  const Bytes expected = restored(coded);
  EXPECT_EQ(device_.waits, 0);
  for (const StreamId stream : {late, later, late})
    EXPECT_SAME_BITS(restored(coded, stream), expected);
  EXPECT_EQ(device_.waits, 3) << "they take turns";
  device_.captures = true;  // where nobody may wait: graphs have words of their own
  for (int i = 0; i < 3; ++i) EXPECT_SAME_BITS(restored(coded, late), expected);
  EXPECT_EQ(device_.waits, 3);
  EXPECT_SAME_BITS(restored(coded), expected);
  EXPECT_EQ(encode(spec, source).result.status, CodecStatus::kOk);
}

// ---- made ready ----

class Opening : public ::testing::Test {
 protected:
  DeviceCodec::Opened open() { return codec_.open(StreamId{0x50}, why_); }
  // A block that any device that is ready would code.
  bool codes() {
    const Bytes source = normal(ElementType::kFloat32, 2000);
    const ByteRange all{0, source.size()};
    EncodeRequest request;
    request.source = const_cast<unsigned char*>(source.data());
    request.source_bytes = source.size();
    request.ranges = &all;
    request.range_count = 1;
    request.choice = BlockSpec{.type = ElementType::kFloat32, .bits = 4}.pack();
    return codec_.plan(request).room != 0;
  }
  HeldDevice device_;
  const allocator::cuda::Driver driver_ = HeldDevice::driver();
  allocator::cuda::DriverLife life_;
  DeviceBlockCodec codec_{device_, driver_, life_, 0};
  std::string why_;
};

TEST_F(Opening, WithoutAContextIsNotYet) {
  device_.has_context = false;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNotYet);
  EXPECT_EQ(open(), DeviceCodec::Opened::kNotYet);
  EXPECT_FALSE(codes());
  device_.has_context = true;
  EXPECT_EQ(open(), DeviceCodec::Opened::kYes);
  EXPECT_TRUE(codes());
  EXPECT_EQ(why_, "");
}

TEST_F(Opening, TakesABlockThereAndBackWithoutAndWithExponents) {
  device_.holds = true;
  EXPECT_EQ(open(), DeviceCodec::Opened::kYes) << why_;
  EXPECT_EQ(device_.waits, 2);
  std::vector<std::string> kernels;
  for (const auto& launch : device_.launches) kernels.push_back(launch.kernel);
  EXPECT_EQ(kernels,
            (std::vector<std::string>{"pleat_encode_float32_4", "pleat_decode_float32_4",
                                      "pleat_measure_parts_float32", "pleat_encode_float32_4",
                                      "pleat_decode_float32_4"}));
}

TEST_F(Opening, EndsWhereTheDeviceCodesOtherBytes) {
  device_.damages = true;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the self-test's block comes back other than the CPU codes it");
  EXPECT_FALSE(codes());
}

TEST_F(Opening, EndsWhereTheDeviceDoesNotAnswer) {
  device_.holds = device_.never_answers = true;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the self-test's block comes back other than the CPU codes it");
  device_.run();
}

TEST_F(Opening, EndsWhereTheKernelsFail) {
  device_.wait_error = 700;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the self-test's kernels fail with error 700");
}

TEST_F(Opening, EndsWhereALaunchFails) {
  device_.launches_until_failure = 1;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the self-test's kernels fail with error 719");
  EXPECT_FALSE(codes());
}

TEST_F(Opening, EndsWhereTheDeviceCannotRunTheKernels) {
  device_.preparing = compress::LaunchStatus::kNoImage;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "Pleat has no kernels that this device can run");
}

TEST_F(Opening, EndsWhereTheDriverRefusesTheKernels) {
  device_.preparing = compress::LaunchStatus::kFailed;
  device_.launch_error = 200;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the driver refuses Pleat's kernels with error 200");
}

TEST_F(Opening, EndsWhereThereIsNoMemoryForWords) {
  device_.no_pinned_memory = 2;
  EXPECT_EQ(open(), DeviceCodec::Opened::kNever);
  EXPECT_EQ(why_, "the driver gives no memory for Pleat's words, error 2");
  EXPECT_FALSE(codes());
}

// ---- threads ----

TEST_F(DeviceBlockCodecTest, ThreadsCodeSideBySideAndEveryPayloadIsRight) {
  device_.holds = true;
  std::atomic<bool> over{false};
  std::thread worker([&] {  // the device
    while (!over || device_.run_next()) {
      if (!device_.run_next()) std::this_thread::yield();
    }
  });
  const Bytes mask =
      floats(ElementType::kFloat32, 1024, [](std::size_t e) { return double(e % 2); });
  const Bytes values = normal(ElementType::kFloat32, 1024, 2);
  const Bytes numbers = integers<std::int32_t>(1024, [](std::size_t e) { return e % 100; });
  const auto job = [&](std::uint64_t thread) {
    std::mt19937_64 random(thread);
    const StreamId stream{0x100 + thread};
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t kind = random() % 4;
      const BlockSpec specs[] = {{.type = ElementType::kFloat32},
                                 {.type = ElementType::kFloat32, .bits = 4, .sides = kSignOfRelu},
                                 {.type = ElementType::kInt32},
                                 {.type = ElementType::kFloat32, .bits = 2}};
      const Bytes& source = kind == 0 ? mask : kind == 2 ? numbers : values;
      // Keys are shared, and asked for different things.
      Coded coded = encode(specs[kind], source, random() % 3, {}, stream);
      if (coded.result.status == CodecStatus::kQueued) {
        const auto ticket = coded.result.ticket;
        if (random() % 8 == 0) {
          codec_.forget(ticket);
          continue;
        }
        if (random() % 2 == 0) {
          while (!codec_.is_decided(ticket)) std::this_thread::yield();
        }
        coded.result = codec_.verdict(ticket, true);
      }
      if (coded.result.status != CodecStatus::kOk) continue;
      Bytes target(source.size());
      EXPECT_EQ(codec_.decode({{coded.payload->data(), coded.result.payload_bytes,
                                coded.result.form, coded.ranges.data(), coded.ranges.size()},
                               target.data(),
                               target.size(),
                               stream}),
                CodecStatus::kOk);
      driver_.stream_synchronize(reinterpret_cast<void*>(stream.value));
      if (kind == 0 || kind == 2) {
        EXPECT_SAME_BITS(target, source);
      } else {
        EXPECT_EQ(beyond_step(ElementType::kFloat32, kind == 1 ? 4 : 2, source, target), "");
        if (kind == 1) {
          EXPECT_EQ(other_side(ElementType::kFloat32, kSignOfRelu, source, target), "");
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t t = 1; t <= 3; ++t) threads.emplace_back(job, t);
  for (std::thread& thread : threads) thread.join();
  over = true;
  worker.join();
  device_.run();
  EXPECT_EQ(words_left(), DeviceWords::kSlots) << "every word has come back";
}

TEST_F(DeviceBlockCodecTest, WhileAForkIsUnderWayNobodyElseIsInTheCodec) {
  const Bytes source = normal(ElementType::kFloat32, 2000);
  std::atomic<bool> done{false};
  codec_.lock_for_fork();
  std::thread other([&] {
    encode({.type = ElementType::kFloat32, .bits = 2}, source);
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(done);
  codec_.unlock_after_fork();
  other.join();
  EXPECT_TRUE(done);
}

// ---- lessons ----

TEST(KeyLessons, WhenThereAreTooManyKeysAllAreForgottenButThoseThatAreThereGoOn) {
  constexpr std::uint64_t kMost = 1u << 16;
  KeyLessons lessons;
  const CodecWords choice{5};
  const auto is_sure = [&](std::uint64_t key) {
    return lessons.ask(TensorKey{key}, choice).lesson.sure();
  };
  for (std::uint64_t key = 0; key < kMost; ++key) {
    EXPECT_FALSE(lessons.ask(TensorKey{key}, choice).pauses);
    lessons.learn(TensorKey{key}, choice, [](KeyLesson& lesson) { lesson.probation = 0; });
  }
  EXPECT_TRUE(is_sure(0));
  EXPECT_TRUE(is_sure(kMost - 1)) << "a key that is there is no further one";
  EXPECT_FALSE(is_sure(kMost));
  EXPECT_FALSE(is_sure(0));
  EXPECT_FALSE(is_sure(kMost - 1));
}

TEST(KeyLessons, WhatAKeyHasLearnedIsOfWhatItIsAskedFor) {
  KeyLessons lessons;
  const TensorKey key{1};
  const auto learn = [&](CodecWords choice) {
    lessons.learn(key, choice, [](KeyLesson& lesson) { lesson.probation = 0; });
  };
  learn({5});  // a key that nobody has asked about
  EXPECT_FALSE(lessons.ask(key, {5}).lesson.sure());
  learn({5, 1});
  EXPECT_FALSE(lessons.ask(key, {5}).lesson.sure());
  learn({5});
  EXPECT_TRUE(lessons.ask(key, {5}).lesson.sure());
  EXPECT_FALSE(lessons.ask(key, {5, 1}).lesson.sure());
  EXPECT_FALSE(lessons.ask(key, {5}).lesson.sure());
}

}  // namespace
}  // namespace pleat::bridge::cuda
