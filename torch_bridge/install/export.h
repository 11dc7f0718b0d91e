// What the bridge shows: the functions of c_abi.h and nothing else.
#pragma once

#define PLEAT_EXPORT extern "C" __attribute__((visibility("default")))
