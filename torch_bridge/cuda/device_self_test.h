// Whether a device codes a block as the CPU does. Torch-free.
#pragma once

#include <string>

#include "allocator/cuda/device_words.h"
#include "allocator/cuda/driver.h"
#include "allocator/ids.h"
#include "compress/kernel_launcher.h"

namespace pleat::bridge::cuda {

// Blocks of known values, one of them with exponents, become the payloads that the CPU makes of
// them, and back, in the pinned memory of `words`, of which nobody has a slot yet. The calling
// thread waits for `stream`. False: `why` says in a few words what is wrong.
[[nodiscard]] bool device_codes_as_the_cpu(compress::KernelLauncher& launcher,
                                           allocator::cuda::DeviceWords& words,
                                           const allocator::cuda::Driver& driver,
                                           allocator::cuda::DriverLife& life,
                                           allocator::StreamId stream, std::string& why);

}  // namespace pleat::bridge::cuda
