// Umbrella header of allocator/: devices, pool, records, residency. The folder depends on libc
// alone: it includes no torch, no codec, and reads no environment variable and no file.
#pragma once

#include "allocator/event_sink.h"
#include "allocator/heap.h"
#include "allocator/host/device.h"
#include "allocator/host/host_device.h"
#include "allocator/host/idle_trimmer.h"
#include "allocator/host/pool.h"
#include "allocator/host_heap.h"
#include "allocator/ids.h"
#include "allocator/residency/block_codec.h"
#include "allocator/residency/payload_arena.h"
#include "allocator/residency/record.h"
#include "allocator/residency/residency.h"
#include "allocator/residency/stream_order.h"
#include "allocator/statistics.h"
