// The host side of the CUDA path against a stand-in libcuda: the kernels, streams and parameters of
// launches.
#include <dlfcn.h>

#include "compress/cuda/driver_launcher.h"
#include "tests/compress/fake_cuda.h"
#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

using cuda::DriverLauncher;

constexpr unsigned char kImage[] = {1, 2, 3};
constexpr DeviceImage kSomeImage{kImage, sizeof kImage};

class CudaLaunch : public testing::Test {
 protected:
  CudaLaunch() {
    void* const library = dlopen(PLEAT_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    fake_ = reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda_state"))();
    fake_->context = &context_;
    fake_->context_id = 7;
    fake_->multiprocessors = 132;
    fake_->active_blocks = 3;
    fake_->parameter_bytes = 8;
    fake_->failing.clear();
    fake_->images.clear();
    fake_->functions.clear();
    fake_->block_sizes.clear();
    fake_->launches.clear();
  }
  void fail(const char* function, int code) {
    fake_->failing = function;
    fake_->failure = code;
  }

  int context_ = 0, other_context_ = 0;
  FakeCuda* fake_;
  DriverLauncher launcher_{PLEAT_FAKE_CUDA};
  const std::uint64_t parameter_ = 0x1122'3344'5566'7788;
};

TEST_F(CudaLaunch, WithoutADriverEveryCallSaysSo) {
  for (const char* library : {"libno-such-driver.so.1", "libm.so.6"}) {  // none; not a driver
    DriverLauncher launcher(library);
    EXPECT_EQ(launcher.prepare(kSomeImage), LaunchStatus::kNoDriver);
    EXPECT_EQ(launcher.launch(kSomeImage, "k", 1, 1, &parameter_, {}), LaunchStatus::kNoDriver);
  }
}

TEST_F(CudaLaunch, ArgumentsReachTheDriver) {
  ASSERT_EQ(launcher_.launch(kSomeImage, "some_kernel", 12, 256, &parameter_, {0xABC0}),
            LaunchStatus::kOk);
  ASSERT_EQ(fake_->launches.size(), 1u);
  const FakeLaunch& launch = fake_->launches[0];
  EXPECT_EQ(launch.kernel, "some_kernel");
  EXPECT_EQ(launch.grid[0], 12u);
  EXPECT_EQ(launch.grid[1] * launch.grid[2], 1u);
  EXPECT_EQ(launch.block[0], 256u);
  EXPECT_EQ(launch.block[1] * launch.block[2], 1u);
  EXPECT_EQ(launch.shared_bytes, 0u);
  EXPECT_EQ(launch.stream, reinterpret_cast<void*>(0xABC0));
  EXPECT_FALSE(launch.has_extra);
  EXPECT_EQ(std::memcmp(launch.parameter.data(), &parameter_, sizeof parameter_), 0);
  EXPECT_EQ(fake_->images, std::vector<const void*>{kImage});
}

TEST_F(CudaLaunch, BlocksAreAsManyAsRunAtATime) {
  const auto blocks_of = [&](const char* kernel, unsigned most, unsigned threads = 256) {
    EXPECT_EQ(launcher_.launch(kSomeImage, kernel, most, threads, &parameter_, {}),
              LaunchStatus::kOk);
    return fake_->launches.back().grid[0];
  };
  EXPECT_EQ(blocks_of("three", 395), 395u);
  EXPECT_EQ(blocks_of("three", 397), 132u * 3);
  fake_->active_blocks = 4;
  EXPECT_EQ(blocks_of("three", 100000), 132u * 3);  // asked once
  EXPECT_EQ(blocks_of("four", 100000), 132u * 4);
  EXPECT_EQ(blocks_of("three", 100000, 128), 132u * 4);  // another size of block
  EXPECT_EQ(fake_->block_sizes, (std::vector<int>{256, 256, 128}));
}

TEST_F(CudaLaunch, AModuleIsLoadedOncePerContext) {
  const auto launch = [&] {
    ASSERT_EQ(launcher_.launch(kSomeImage, "k", 1, 1, &parameter_, {}), LaunchStatus::kOk);
  };
  EXPECT_EQ(launcher_.prepare(kSomeImage), LaunchStatus::kOk);
  launch();
  launch();
  EXPECT_EQ(fake_->images.size(), 1u);
  EXPECT_EQ(fake_->functions.size(), 1u);
  fake_->context = &other_context_;
  fake_->context_id = 8;
  launch();
  EXPECT_EQ(fake_->images.size(), 2u);
  fake_->context_id = 9;  // destroyed, and another made at the same address
  launch();
  EXPECT_EQ(fake_->images.size(), 3u);
  launch();
  EXPECT_EQ(fake_->images.size(), 3u);
}

TEST_F(CudaLaunch, WithoutContextIdsAContextIsItsAddress) {
  cuda::DriverFunctions functions;
  ASSERT_TRUE(functions.find(PLEAT_FAKE_CUDA));
  functions.context_id = nullptr;
  DriverLauncher launcher(functions);
  EXPECT_EQ(launcher.prepare(kSomeImage), LaunchStatus::kOk);
  fake_->context_id = 9;
  EXPECT_EQ(launcher.prepare(kSomeImage), LaunchStatus::kOk);
  EXPECT_EQ(fake_->images.size(), 1u);
}

TEST_F(CudaLaunch, FailuresAreNamedAndNotRemembered) {
  const auto launch = [&] { return launcher_.launch(kSomeImage, "k", 1, 1, &parameter_, {}); };
  const struct {
    const char* function;
    int code;
    LaunchStatus status;
  } kFailures[] = {{"cuCtxGetCurrent", 4, LaunchStatus::kFailed},
                   {"cuCtxGetId", 201, LaunchStatus::kNoContext},
                   {"cuCtxGetDevice", 201, LaunchStatus::kNoContext},
                   {"cuDeviceGetAttribute", 1, LaunchStatus::kFailed},
                   {"cuModuleLoadData", 209, LaunchStatus::kNoImage},
                   {"cuModuleLoadData", 222, LaunchStatus::kNoImage},
                   {"cuModuleLoadData", 2, LaunchStatus::kFailed},
                   {"cuModuleGetFunction", 500, LaunchStatus::kFailed},
                   {"cuOccupancyMaxActiveBlocksPerMultiprocessor", 1, LaunchStatus::kFailed},
                   {"cuLaunchKernel", 700, LaunchStatus::kFailed}};
  for (const auto& failure : kFailures) {
    fail(failure.function, failure.code);
    EXPECT_EQ(launch(), failure.status) << failure.function;
    EXPECT_EQ(launcher_.driver_error(), failure.code) << failure.function;
    EXPECT_TRUE(fake_->launches.empty());
  }
  fake_->failing.clear();
  EXPECT_EQ(launch(), LaunchStatus::kOk);
  fake_->context = nullptr;
  EXPECT_EQ(launch(), LaunchStatus::kNoContext);
  fake_->context = &context_;
  EXPECT_EQ(launcher_.prepare({}), LaunchStatus::kNoImage);
  EXPECT_EQ(fake_->launches.size(), 1u);
}

TEST_F(CudaLaunch, ThreadsShareOneModule) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) {
        EXPECT_EQ(launcher_.launch(kSomeImage, n % 2 == 0 ? "even" : "odd", 1, 1, &parameter_, {}),
                  LaunchStatus::kOk);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_->launches.size(), 200u);
  EXPECT_EQ(fake_->images.size(), 1u);
}

}  // namespace
}  // namespace pleat::compress::test
