// A training without Python: an ordinary program on LibTorch. Prints the losses and a sum of the
// gradients, in full precision.
//
//   libtorch_program DEVICE [VALUES]
//
// VALUES: sim-values.so, which provides true values for torch's kernels on the simulated device.
// Exit code 3: the oracle objects.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

namespace {

template <class Function>
Function find(void* library, const char* name) {
  const auto function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    std::fprintf(stderr, "%s is not there\n", name);
    std::exit(2);
  }
  return function;
}

// Few different values, identical on every device.
at::Tensor numbers(std::int64_t rows, std::int64_t columns, std::int64_t step, at::Device device) {
  const at::Tensor counted = at::arange(rows * columns, at::kLong) * step;
  return ((counted.remainder(7) - 3).to(at::kFloat) * 0.0625).view({rows, columns}).to(device);
}

void train(at::Device device) {
  at::Tensor first = numbers(64, 128, 5, device).requires_grad_();
  at::Tensor second = numbers(128, 16, 3, device).requires_grad_();
  for (int step = 0; step < 6; ++step) {
    const at::Tensor x = numbers(32, 64, step + 1, device);
    at::Tensor hidden = at::matmul(x, first).relu();
    at::Tensor chosen = at::where(hidden > 0, hidden, hidden * 0.5);
    at::Tensor loss;
    const auto use = [&] { loss = at::matmul(chosen.tanh() * chosen.sign(), second).exp().mean(); };
    if (device.is_cuda() && step % 2 == 1) {  // on its own stream
      const auto main = c10::cuda::getCurrentCUDAStream();
      const auto side = c10::cuda::getStreamFromPool();
      cudaEvent_t event = nullptr;
      C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      C10_CUDA_CHECK(cudaEventRecord(event, main));
      C10_CUDA_CHECK(cudaStreamWaitEvent(side, event, 0));
      {
        const c10::cuda::CUDAStreamGuard guard(side);
        use();
        C10_CUDA_CHECK(cudaEventRecord(event, side));
      }
      C10_CUDA_CHECK(cudaStreamWaitEvent(main, event, 0));
      C10_CUDA_CHECK(cudaEventDestroy(event));
    } else {
      use();
    }
    hidden = chosen = at::Tensor();
    const at::Tensor others = at::full({32, 128}, step, at::TensorOptions(device));
    loss.backward();
    std::printf("%a\n", static_cast<double>(loss.item<float>() + 0 * others[0][0].item<float>()));
    const at::NoGradGuard without_gradients;
    for (at::Tensor* const weights : {&first, &second}) {
      std::printf("%a\n", weights->grad().cpu().to(at::kDouble).abs().sum().item<double>());
      weights->sub_(weights->grad(), 0.1);
      weights->mutable_grad().reset();
    }
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  at::set_num_threads(1);
  const bool simulated = count > 2;
  try {
    if (simulated) {
      using Configure = bool (*)(int, std::size_t, std::uint64_t, std::uint64_t, bool);
      find<Configure>(RTLD_DEFAULT, "simulated_cuda_configure")(1, std::size_t{1} << 32, 50, 1,
                                                                true);
      void* const values = dlopen(words[2], RTLD_NOW);
      find<int (*)()>(values, "simulated_cuda_replace_kernels")();
    }
    train(at::Device(words[1]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  if (!simulated) return 0;
  return find<std::size_t (*)()>(RTLD_DEFAULT, "simulated_cuda_objections")() != 0 ? 3 : 0;
}
