// Umbrella header of allocator/: devices, pool, records, residency. Knows nothing of torch, codecs,
// environment variables or files.
#pragma once

#include "allocator/block_codec.h"
#include "allocator/device.h"
#include "allocator/event_sink.h"
#include "allocator/host_device.h"
#include "allocator/idle_trimmer.h"
#include "allocator/ids.h"
#include "allocator/payload_arena.h"
#include "allocator/pool.h"
#include "allocator/record.h"
#include "allocator/residency.h"
#include "allocator/statistics.h"
