// PLEAT_EXPORT marks the exported functions, those of c_abi.h; no other symbol is exported.
#pragma once

#define PLEAT_EXPORT extern "C" __attribute__((visibility("default")))
