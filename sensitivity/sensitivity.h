// Umbrella header of sensitivity/: who a tensor is and how many bits it gets. Receives plain
// numbers; knows nothing of torch, allocators or codecs.
#pragma once

#include "sensitivity/assign.h"
#include "sensitivity/bits.h"
#include "sensitivity/gact.h"
#include "sensitivity/key.h"
#include "sensitivity/probe.h"
#include "sensitivity/profile.h"
