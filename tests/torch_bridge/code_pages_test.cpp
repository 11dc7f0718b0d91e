#include "torch_bridge/core/code_pages.h"

#include <gtest/gtest.h>
#include <math.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace pleat::bridge {
namespace {

// Resident KiB of the code of a loaded library.
long resident_code_kib(const std::string& library) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  long kib = 0;
  while (std::getline(smaps, line)) {
    if (line.find(" r-xp ") != std::string::npos) {
      inside = line.find(library) != std::string::npos;
    } else if (line.find("-") < line.find(" ") && line.find("p ") != std::string::npos) {
      inside = false;
    } else if (inside && line.rfind("Rss:", 0) == 0) {
      kib += std::stol(line.substr(4));
    }
  }
  return kib;
}

// Some systems map much of a library with its first page.
void unmap_code_of(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t from = 0, to = 0;
    if (line.find(" r-xp ") != std::string::npos && line.find(library) != std::string::npos &&
        std::sscanf(line.c_str(), "%zx-%zx", &from, &to) == 2) {
      ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
    }
  }
}

TEST(TransientCodePages, WhatWasMappedMeanwhileGoesAndComesBackWhenCalled) {
  const std::string library = "libm.so.6";
  volatile long double argument = 2.5L;
  volatile double of_call = ::fmod(argument, 2);  // so that the library is there
  unmap_code_of(library);
  of_call = of_call + ::fmod(argument, 2);
  const long before = resident_code_kib(library);
  ASSERT_GT(before, 0);
  long double first = 0;
  {
    const TransientCodePages pages(library.c_str());
    first = jnl(3, argument) + tgammal(argument) + erfcl(argument) + sinl(argument);
    EXPECT_GT(resident_code_kib(library), before);
  }
  EXPECT_EQ(resident_code_kib(library), before);
  EXPECT_EQ(jnl(3, argument) + tgammal(argument) + erfcl(argument) + sinl(argument), first);
}

TEST(TransientCodePages, AnUnknownLibraryIsNoTrouble) {
  const TransientCodePages pages("libof_no_such_name.so");
}

}  // namespace
}  // namespace pleat::bridge
